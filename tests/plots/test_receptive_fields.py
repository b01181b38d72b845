"""The trace of a max-pool against argmax in NumPy, finite differences of the loss, and the model's own backward."""

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
from minidl.plots.receptive_fields import find_winners, trace_pool
from minidl.plots.windows import View, Windows
from minidl.training.labeled_data import LabeledData
from minidl_c.runtime.single_op import forward_batch

RNG = np.random.default_rng(0)
POOLS = [
    MaxPool2D(2), MaxPool2D(3, 2), MaxPool2D(3, 1, 1), MaxPool2D((2, 3), (1, 2), (1, 0)), MaxPool2D(2, 3),
    MaxPool2D(3, 2, 1, ceil_mode=True), MaxPool2D(3, 2, (0, 1, 1, 0)), MaxPool2D(2, ceil_mode=True),
    MaxPool2D((7, 9)), GlobalMaxPool2D(),
]  # fmt: skip


def build_pool(pool, shape=(1, 7, 9), dtype="float32"):
    copy = type(pool)(**pool.config())
    copy.setup(shape, dtype, 0, "")
    return copy


def winners_by_numpy(pool, x):
    """Returns the first maximum of each window in row-major order; NaN exceeds all values, padding never wins."""
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
        window = np.s_[max(top, 0) : top + kernel[0], max(left, 0) : left + kernel[1]]
        found.append(cells[window].flat[x[window].argmax()])
    return np.array(found)


def trace_layer(model, X, y, layer, loss="mean_squared_error", max_examples=3):
    found = layer_paths(model.layers)[layer]
    data = LabeledData.from_arrays(model, losses.get(loss), X, y)
    return found[-1], trace_pool(model, found, int(layer.split(".")[0]), data, losses.get(loss), max_examples)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("pool", POOLS, ids=repr)
def test_winners(pool, dtype):
    pool = build_pool(pool, dtype=dtype)
    maps = [RNG.normal(size=(7, 9)), RNG.integers(0, 2, (7, 9)), np.zeros((7, 9)), np.full((7, 9), -np.inf)]
    maps.append(np.where(RNG.random((7, 9)) < 0.2, np.nan, RNG.integers(0, 3, (7, 9))))
    for x in maps:
        found = find_winners(pool, x.astype(dtype), View(Windows.from_pool(pool), (0, 0, 7, 9)))
        np.testing.assert_array_equal(found, winners_by_numpy(pool, x))


@pytest.mark.parametrize("pool", POOLS, ids=repr)
def test_windows_match_the_kernel(pool):
    """A cell is in a window if it is the output of the window when it is the largest."""
    pool = build_pool(pool)
    (op,) = pool.ops
    windows = Windows.from_pool(pool)
    cells = np.arange(63).reshape(7, 9)
    inside = [
        cells[slice(*windows.cells(i, 0)), slice(*windows.cells(j, 1))]
        for i, j in itertools.product(*map(range, windows.count))
    ]
    for cell in range(63):
        x, y = np.zeros((1, *op.in_shape), "f4"), np.empty((1, *op.out_shape), "f4")
        x.flat[cell] = 1
        forward_batch(op, x, y)
        np.testing.assert_array_equal(y.ravel() == 1, [cell in window for window in inside])


class Perturb(Layer):
    """Adds a number to one input, for finite differences."""

    position, delta = (), 0.0

    def forward(self, x, training):
        x = x.copy()
        x[(slice(None), *self.position)] += self.delta
        return x

    def backward(self, dy):
        return dy


def make_nested(extra=()):
    """Returns a model with layers that differ in training, and `extra` layers after the pool."""
    inner = Parallel([MaxPool2D(3, 2), *extra, BatchNorm2D(), Dropout(0.5)], [Conv2D(2, 3, stride=2), ReLU()])
    block = Block(RandomCrop(9, padding=1), RandomShift(1), BatchNorm2D(), Residual(Conv2D(4, 3, padding=1)), inner)
    layers = [Rescale(1 / 4), Dropout(0.3), Conv2D(4, 3), block, RandomFlip(), Conv2D(3, 2), Flatten(), Dense(2)]
    return Sequential(layers, (2, 12, 12), dtype="float64")


def test_gradients_match_finite_differences_of_inference():
    """Inside containers, after batch norm, dropout and crops: dy against finite differences of the loss."""
    perturb = Perturb()
    model, perturbed = make_nested(), make_nested([perturb])
    state = {name: RNG.normal(0.1, 0.5, value.shape) for name, value in model.state_dict().items()}
    state = {name: np.abs(value) + 0.1 if "var" in name else value for name, value in state.items()}
    model.load_state_dict(state)
    new_names = {name: name for name in state}  # layers after the Perturb have the next index
    for name in state:
        if name.startswith("3.4.branches.0.1."):
            new_names[name] = name.replace("3.4.branches.0.1.", "3.4.branches.0.2.")
    perturbed.load_state_dict({new_names[name]: value for name, value in state.items()})
    X, y = RNG.normal(size=(3, 2, 12, 12)), RNG.normal(size=(3, 2))
    np.testing.assert_allclose(perturbed.predict(X), model.predict(X), rtol=1e-12)

    pool, found = trace_layer(model, X, y, "3.4.branches.0.0")
    for position in itertools.product(*map(range, pool.out_shape)):
        perturb.position, slopes = position, []
        for perturb.delta in (1e-4, -1e-4):
            slopes.append(losses.get("mean_squared_error")(perturbed.predict(X), y)[0])
        perturb.delta = 0.0
        slope = (slopes[0] - slopes[1]) / 2e-4
        np.testing.assert_allclose(found.dy[(slice(None), *position)], slope, rtol=1e-6, atol=1e-9)
    check_gradients(pool, found)


def check_gradients(pool, found):
    """Checks that dx is the sum of dy over the windows that a cell wins, else 0."""
    x, dy, dx = (a.reshape(-1, *a.shape[2:]) for a in (found.x, found.dy, found.dx))
    rounding = 8 * np.finfo(dx.dtype).eps * np.abs(dy).max()
    for i in range(len(x)):
        expected = np.zeros(x[i].size)
        np.add.at(expected, winners_by_numpy(pool, x[i]), dy[i].ravel())
        np.testing.assert_allclose(dx[i].ravel(), expected, atol=rounding)
        np.testing.assert_array_equal(dx[i].ravel() != 0, expected != 0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("pool", [MaxPool2D(2), MaxPool2D(3, 1, 1), MaxPool2D(9)], ids=repr)
def test_traces_match_the_model(pool, dtype, monkeypatch):
    monkeypatch.setattr(module, "MAX_EXAMPLES", 4)  # several chunks
    pool = MaxPool2D(**pool.config())
    layers = [Conv2D(3, 2), ReLU(), pool, Conv2D(4, 1), ReLU(), Flatten(), Dense(5)]
    model = Sequential(layers, (1, 10, 10), dtype=dtype)
    X, y = RNG.integers(0, 3, (11, 1, 10, 10)), RNG.integers(0, 5, 11)
    _, found = trace_layer(model, X, y, "2", "softmax_cross_entropy", 6)
    front, rest, after = model[:2], model[2:], model[3:]
    dscores = losses.softmax_cross_entropy(model.predict(X), y)[1]
    x = front.predict(X)
    rest.forward(x, training=True)
    dx = rest.backward(dscores)
    after.forward(model[:3].predict(X), training=True)
    np.testing.assert_array_equal(found.x, x[:6])
    np.testing.assert_array_equal(found.dx, dx[:6])
    np.testing.assert_array_equal(found.dy, after.backward(dscores)[:6])
    np.testing.assert_allclose(found.dx_sum, dx.astype("f8").sum(axis=0), rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(found.dx_nonzero, (dx != 0).sum(axis=0))
    assert found.n_examples == 11
    check_gradients(model.layers[2], found)


def test_numpy_layers_run_on_one_example_at_a_time():
    model = Sequential([MaxPool2D(2), Center(), Flatten(), Dense(2)], (1, 4, 4))
    _, found = trace_layer(model, RNG.random((3, 1, 4, 4)), RNG.random((3, 2)), "0")
    assert not found.dx.any()  # one example minus its mean is 0


class ReusesOutput(Layer):
    """Returns the same array from each forward."""

    def forward(self, x, training):
        if not hasattr(self, "y") or len(self.y) != len(x):
            self.y = np.empty_like(x)
        self.y[...] = x
        return self.y

    def backward(self, dy):
        return dy


def test_traces_are_copies():
    model = Sequential([Block(ReusesOutput(), MaxPool2D(2)), Flatten(), Dense(2)], (1, 4, 4))
    X = RNG.random((5, 1, 4, 4)).astype("f4")
    _, found = trace_layer(model, X, RNG.random((5, 2)), "0.1", max_examples=4)
    np.testing.assert_array_equal(found.x, X[:4])


def get_state(model):
    params = [(p.value.tobytes(), p.grad.tobytes()) for p in model.params.values()]
    return params, [b.tobytes() for layer in model.layers for b in layer.buffers.values()], model.network.segments


@pytest.mark.parametrize("custom_layer", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
def test_the_model_is_not_changed(custom_layer, frozen):
    def make_model():
        after = [Scale()] if custom_layer else []
        layers = [Conv2D(2, 3), BatchNorm2D(), Block(ReLU(), MaxPool2D(2), BatchNorm2D()), Dropout(0.5), *after]
        model = Sequential([*layers, Flatten(), Dense(2)], (1, 8, 8))
        model.layers[0].trainable = not frozen
        return model

    model, other = make_model(), make_model()
    X, y = RNG.random((4, 1, 8, 8)), RNG.random((4, 2))
    for one in (model, other):
        one.forward(X, training=True)
        one.backward(y)
        one.forward(X[::-1], training=True)
    before = get_state(model)
    trace_layer(model, X, y, "2.1")

    def broken(scores, y):
        raise KeyError("no loss")

    with pytest.raises(KeyError):
        trace_pool(model, layer_paths(model.layers)["2.1"], 2, LabeledData.from_arrays(model, broken, X, y), broken, 2)
    assert get_state(model) == before and all(layer.trainable for layer in model.layers[1:])
    np.testing.assert_array_equal(model.backward(y), other.backward(y))  # of the forward before the trace
    np.testing.assert_array_equal(model.forward(X, training=True), other.forward(X, training=True))  # the same masks


def test_layers_that_cannot_be_copied_are_named():
    class Uncopyable(Perturb):
        def __deepcopy__(self, memo):
            raise OSError("an open file")

    Uncopyable.position, Uncopyable.delta = (0,), 0.0
    model = Sequential([Uncopyable(), MaxPool2D(2), Flatten(), Dense(2)], (1, 4, 4))
    X, y = RNG.random((3, 1, 4, 4)), RNG.random((3, 2))
    trace_layer(model, X, y, "1")  # layers before the pool are not copied
    model = Sequential([MaxPool2D(2), Uncopyable(), Flatten(), Dense(2)], (1, 4, 4))
    with pytest.raises(TypeError, match="pool_routing: expected layers that can be copied: an open file"):
        trace_layer(model, X, y, "0")


def test_relevance():
    """Shares of an example's gradient, 0 at the minima of a map and at NaN."""
    dx = np.array([[[[1.0, 3.0], [4.0, 0.0]]], [[[np.nan, 2.0], [0.0, -2.0]]]])
    x = np.array([[[[5.0, 1.0], [2.0, 1.0]]], [[[1.0, 1.0], [0.0, 1.0]]]])
    found = module.PoolTrace(x, dx, dx, dx[0], dx[0] != 0, 2).relevance()
    np.testing.assert_array_equal(found, [[[[0.2, 0], [0.8, 0]]], [[[0, 0.5], [0, 0.5]]]])
