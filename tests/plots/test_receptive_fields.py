"""What comes by at a max-pool: beside argmax in NumPy, finite differences of the loss, and the model by hand."""

import itertools

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from faulty_layers import Center, Scale

from minidl import Layer, Sequential, losses
from minidl.engine.layer_paths import layer_paths
from minidl.layers import (
    BatchNorm2D,
    Block,
    Conv2D,
    Dense,
    Dropout,
    Flatten,
    GlobalMaxPool2D,
    MaxPool2D,
    Parallel,
    RandomCrop,
    RandomFlip,
    RandomShift,
    ReLU,
    Rescale,
    Residual,
)  # fmt: skip
from minidl.plots import receptive_fields as module
from minidl.plots.receptive_fields import trace_pool, winners
from minidl.plots.windows import View, Windows
from minidl.training.labeled_data import LabeledData
from minidl_c.runtime.single_op import forward_batch

RNG = np.random.default_rng(0)
POOLS = [
    MaxPool2D(2), MaxPool2D(3, 2), MaxPool2D(3, 1, 1), MaxPool2D((2, 3), (1, 2), (1, 0)), MaxPool2D(2, 3),
    MaxPool2D(3, 2, 1, ceil_mode=True), MaxPool2D(2, ceil_mode=True), MaxPool2D((7, 9)), GlobalMaxPool2D(),
]  # fmt: skip


def built(pool, shape=(1, 7, 9), dtype="float32"):
    made = type(pool)(**pool.config())
    made.setup(shape, dtype, 0, "")
    return made


def winners_by_numpy(pool, x):
    """The first maximum of each window, row by row; a NaN is larger than anything; padding is no candidate."""
    config = pool.config()
    kernel, stride, padding = (
        value if isinstance(value, tuple) else (value, value)
        for value in (config.get("pool_size", x.shape), config.get("stride"), config.get("padding", 0))
    )
    stride = kernel if stride == (None, None) else stride
    count, cells = pool.ops[0].out_shape[1:], np.arange(x.size).reshape(x.shape)
    found = []
    for i, j in itertools.product(range(count[0]), range(count[1])):
        top, left = i * stride[0] - padding[0], j * stride[1] - padding[1]
        here = np.s_[max(top, 0) : top + kernel[0], max(left, 0) : left + kernel[1]]
        found.append(cells[here].flat[x[here].argmax()])
    return np.array(found)


def seen(model, X, y, layer, loss="mean_squared_error", max_examples=3):
    found = layer_paths(model.layers)[layer]
    data = LabeledData.from_arrays(model, losses.get(loss), X, y)
    return found[-1], trace_pool(model, found, int(layer.split(".")[0]), data, losses.get(loss), max_examples)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("pool", POOLS, ids=repr)
def test_winners(pool, dtype):
    pool = built(pool, dtype=dtype)
    maps = [RNG.normal(size=(7, 9)), RNG.integers(0, 2, (7, 9)), np.zeros((7, 9)), np.full((7, 9), -np.inf)]
    maps.append(np.where(RNG.random((7, 9)) < 0.2, np.nan, RNG.integers(0, 3, (7, 9))))
    for x in maps:
        found = winners(pool, x.astype(dtype), View(Windows.of(pool), (0, 0, 7, 9)))
        np.testing.assert_array_equal(found, winners_by_numpy(pool, x))


@pytest.mark.parametrize("pool", POOLS, ids=repr)
def test_windows_lie_where_the_kernel_looks(pool):
    """A cell is in a window if it is what comes out there as soon as it is the largest."""
    pool = built(pool)
    (op,) = pool.ops
    windows = Windows.of(pool)
    cells = np.arange(63).reshape(7, 9)
    inside = [
        cells[slice(*windows.cells(i, 0)), slice(*windows.cells(j, 1))]
        for i, j in itertools.product(*map(range, windows.count))
    ]
    for cell in range(63):
        x, y = np.zeros((1, *op.in_shape), "f4"), np.empty((1, *op.out_shape), "f4")
        x.flat[cell] = 1
        forward_batch(op, x, y)
        np.testing.assert_array_equal(y.ravel() == 1, [cell in some for some in inside])


class Nudge(Layer):
    """Adds a number to one of its inputs, for finite differences."""

    place, by = (), 0.0

    def forward(self, x, training):
        x = x.copy()
        x[(slice(None), *self.place)] += self.by
        return x

    def backward(self, dy):
        return dy


def nested(nudge=()):
    """A pool among layers that behave differently in training; a Nudge may follow the pool."""
    inner = Parallel([MaxPool2D(3, 2), *nudge, BatchNorm2D(), Dropout(0.5)], [Conv2D(2, 3, stride=2), ReLU()])
    block = Block(RandomCrop(9, padding=1), RandomShift(1), BatchNorm2D(), Residual(Conv2D(4, 3, padding=1)), inner)
    layers = [Rescale(1 / 4), Dropout(0.3), Conv2D(4, 3), block, RandomFlip(), Conv2D(3, 2), Flatten(), Dense(2)]
    return Sequential(layers, (2, 12, 12), dtype="float64")


def test_gradients_are_slopes_of_what_inference_makes():
    """Inside containers, after batch norm, dropout and crops: dy by finite differences of the loss of `predict`."""
    nudge = Nudge()
    model, nudged = nested(), nested([nudge])
    state = {name: RNG.normal(0.1, 0.5, value.shape) for name, value in model.state_dict().items()}
    state = {name: np.abs(value) + 0.1 if "var" in name else value for name, value in state.items()}
    model.load_state_dict(state)
    moved = {name: name for name in state}  # layers after the Nudge have the next index
    for name in state:
        if name.startswith("3.4.branches.0.1."):
            moved[name] = name.replace("3.4.branches.0.1.", "3.4.branches.0.2.")
    nudged.load_state_dict({moved[name]: value for name, value in state.items()})
    X, y = RNG.normal(size=(3, 2, 12, 12)), RNG.normal(size=(3, 2))
    np.testing.assert_allclose(nudged.predict(X), model.predict(X), rtol=1e-12)

    pool, found = seen(model, X, y, "3.4.branches.0.0")
    for place in itertools.product(*map(range, pool.out_shape)):
        nudge.place, slopes = place, []
        for nudge.by in (1e-4, -1e-4):
            slopes.append(losses.get("mean_squared_error")(nudged.predict(X), y)[0])
        nudge.by = 0.0
        slope = (slopes[0] - slopes[1]) / 2e-4
        np.testing.assert_allclose(found.dy[(slice(None), *place)], slope, rtol=1e-6, atol=1e-9)
    check_routed(pool, found)


def check_routed(pool, found):
    """dx has each number of dy at its winner, their sum where there are several, and is 0 elsewhere."""
    x, dy, dx = (a.reshape(-1, *a.shape[2:]) for a in (found.x, found.dy, found.dx))
    rounding = 8 * np.finfo(dx.dtype).eps * np.abs(dy).max()
    for i in range(len(x)):
        expected = np.zeros(x[i].size)
        np.add.at(expected, winners_by_numpy(pool, x[i]), dy[i].ravel())
        np.testing.assert_allclose(dx[i].ravel(), expected, atol=rounding)
        np.testing.assert_array_equal(dx[i].ravel() != 0, expected != 0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("pool", [MaxPool2D(2), MaxPool2D(3, 1, 1), MaxPool2D(9)], ids=repr)
def test_they_are_those_of_the_model_by_hand(pool, dtype, monkeypatch):
    monkeypatch.setattr(module, "MAX_EXAMPLES", 4)  # in parts
    pool = MaxPool2D(**pool.config())
    layers = [Conv2D(3, 2), ReLU(), pool, Conv2D(4, 1), ReLU(), Flatten(), Dense(5)]
    model = Sequential(layers, (1, 10, 10), dtype=dtype)
    X, y = RNG.integers(0, 3, (11, 1, 10, 10)), RNG.integers(0, 5, 11)
    _, found = seen(model, X, y, "2", "softmax_cross_entropy", 6)
    front, rest, behind = model[:2], model[2:], model[3:]
    dscores = losses.softmax_cross_entropy(model.predict(X), y)[1]
    x = front.predict(X)
    rest.forward(x, training=True)
    dx = rest.backward(dscores)
    behind.forward(model[:3].predict(X), training=True)
    np.testing.assert_array_equal(found.x, x[:6])
    np.testing.assert_array_equal(found.dx, dx[:6])
    np.testing.assert_array_equal(found.dy, behind.backward(dscores)[:6])
    np.testing.assert_allclose(found.total, dx.astype("f8").sum(axis=0), rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(found.n_reached, (dx != 0).sum(axis=0))
    assert found.count == 11
    check_routed(model.layers[2], found)


def test_layers_in_numpy_see_one_example_at_a_time():
    model = Sequential([MaxPool2D(2), Center(), Flatten(), Dense(2)], (1, 4, 4))
    _, found = seen(model, RNG.random((3, 1, 4, 4)), RNG.random((3, 2)), "0")
    assert not found.dx.any()  # alone, an example minus the mean is 0, whatever it is


class Reuses(Layer):
    """Gives the same array each time."""

    def forward(self, x, training):
        if not hasattr(self, "y") or len(self.y) != len(x):
            self.y = np.empty_like(x)
        self.y[...] = x
        return self.y

    def backward(self, dy):
        return dy


def test_what_was_seen_stays():
    model = Sequential([Block(Reuses(), MaxPool2D(2)), Flatten(), Dense(2)], (1, 4, 4))
    X = RNG.random((5, 1, 4, 4)).astype("f4")
    _, found = seen(model, X, RNG.random((5, 2)), "0.1", max_examples=4)
    np.testing.assert_array_equal(found.x, X[:4])


def everything(model):
    params = [(p.value.tobytes(), p.grad.tobytes()) for p in model.params.values()]
    return params, [b.tobytes() for layer in model.layers for b in layer.buffers.values()], model.network.segments


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
def test_nothing_changes(own, frozen):
    def made():
        behind = [Scale()] if own else []
        layers = [Conv2D(2, 3), BatchNorm2D(), Block(ReLU(), MaxPool2D(2), BatchNorm2D()), Dropout(0.5), *behind]
        model = Sequential([*layers, Flatten(), Dense(2)], (1, 8, 8))
        model.layers[0].trainable = not frozen
        return model

    model, other = made(), made()
    X, y = RNG.random((4, 1, 8, 8)), RNG.random((4, 2))
    for one in (model, other):
        one.forward(X, training=True)
        one.backward(y)
        one.forward(X[::-1], training=True)
    before = everything(model)
    seen(model, X, y, "2.1")

    def broken(scores, y):
        raise KeyError("no loss")

    with pytest.raises(KeyError):
        trace_pool(model, layer_paths(model.layers)["2.1"], 2, LabeledData.from_arrays(model, broken, X, y), broken, 2)
    assert everything(model) == before and all(layer.trainable for layer in model.layers[1:])
    np.testing.assert_array_equal(model.backward(y), other.backward(y))  # of the forward before
    np.testing.assert_array_equal(model.forward(X, training=True), other.forward(X, training=True))  # the same masks


def test_layers_that_cannot_be_copied_are_named():
    class Stuck(Nudge):
        def __deepcopy__(self, memo):
            raise OSError("an open file")

    Stuck.place, Stuck.by = (0,), 0.0
    model = Sequential([Stuck(), MaxPool2D(2), Flatten(), Dense(2)], (1, 4, 4))
    X, y = RNG.random((3, 1, 4, 4)), RNG.random((3, 2))
    seen(model, X, y, "1")  # layers before the pool are not copied
    model = Sequential([MaxPool2D(2), Stuck(), Flatten(), Dense(2)], (1, 4, 4))
    with pytest.raises(TypeError, match="pool_routing: expected layers that can be copied: an open file"):
        seen(model, X, y, "0")


def test_what_there_is_to_see():
    """Shares of an example's gradient; none where a map is smallest, or a number is not finite."""
    dx = np.array([[[[1.0, 3.0], [4.0, 0.0]]], [[[np.nan, 2.0], [0.0, -2.0]]]])
    x = np.array([[[[5.0, 1.0], [2.0, 1.0]]], [[[1.0, 1.0], [0.0, 1.0]]]])
    found = module.PoolTrace(x, dx, dx, dx[0], dx[0] != 0, 2).saliency()
    np.testing.assert_array_equal(found, [[[[0.2, 0], [0.8, 0]]], [[[0, 0.5], [0, 0.5]]]])
