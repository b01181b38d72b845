"""Native segments and NumPy layers between them: forward, backward, and what layers return."""

import faulty_layers
import numpy as np
import pytest

from minidl import Layer, Sequential, Trainer
from minidl.engine.segments import NativeSegment, NumpySegment
from minidl.initializers import damped_he_uniform, zeros
from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, Parallel, ReLU
from minidl.losses import softmax_cross_entropy
from minidl.optimizers import SGD


class Identity(Layer):
    """Returns its input; counts its calls."""

    def __init__(self):
        self.calls = []

    def forward(self, x, training):
        self.calls.append(("forward", training))
        return x

    def backward(self, dy):
        self.calls.append("backward")
        return dy


class NumpyDense(Layer):
    """A dense layer in NumPy."""

    def __init__(self, units):
        self.units = units

    def build(self, in_shape):
        self.weight = self.param("weight", (self.units, *in_shape), damped_he_uniform)
        self.bias = self.param("bias", (self.units,), zeros)
        return (self.units,)

    def forward(self, x, training):
        if training:
            self.x = x
        return x @ self.weight.value.T + self.bias.value

    def backward(self, dy):
        self.weight.grad[:], self.bias.grad[:] = dy.T @ self.x, dy.sum(axis=0)
        return dy @ self.weight.value


def make_layers(*places):
    """Returns a small convolutional net with Same at these positions."""
    layers = [Conv2D(4, 3), ReLU(), MaxPool2D(2), Flatten(), Dense(8), ReLU(), Dense(3)]
    for index in sorted(places, reverse=True):
        layers.insert(index, Identity())
    return layers


def kinds(model):
    return "".join({NativeSegment: "C", NumpySegment: "P"}[type(s)] for s in model.network.segments)


@pytest.mark.parametrize(
    ("places", "expected"),
    [((), "C"), ((0,), "PC"), ((7,), "CP"), ((2, 5), "CPCPC"), ((3, 3), "CPPC"), ((0, 7), "PCP")],
)
def test_numpy_layers_split_the_model_without_changing_a_bit(places, expected, rng):
    """Weights are copied in order: positions differ, and with them names and initial values."""
    X, y = rng.normal(size=(35, 1, 8, 8)), rng.integers(0, 3, 35)
    plain = Sequential(make_layers(), input_shape=(1, 8, 8))
    model = Sequential(make_layers(*places), input_shape=(1, 8, 8))
    assert kinds(model) == expected and model.network.native == (not places)
    for ours, theirs in zip(model.params.values(), plain.params.values(), strict=True):
        ours.value = theirs.value
    assert model.predict(X).tobytes() == plain.predict(X).tobytes()
    scores = [m.forward(X, training=True) for m in (model, plain)]
    dy = softmax_cross_entropy(scores[0], y)[1]
    dx = [m.backward(dy) for m in (model, plain)]
    assert scores[0].tobytes() == scores[1].tobytes()
    assert dx[0].tobytes() == dx[1].tobytes()
    for m in (model, plain):
        Trainer(m, "softmax_cross_entropy", SGD(0.1, 0.9)).fit(X, y, 3, batch_size=16, verbose=0)
    for ours, theirs in zip(model.params.values(), plain.params.values(), strict=True):
        assert ours.value.tobytes() == theirs.value.tobytes()
        assert ours.grad.tobytes() == theirs.grad.tobytes()


def test_a_numpy_layer_trains_like_its_native_counterpart(rng):
    """Between native layers, first and last; in float64, where only rounding may differ."""
    X, y = rng.normal(size=(50, 4)), rng.integers(0, 3, 50)
    states = []
    for kind in (
        [Dense, Dense, Dense],
        [Dense, NumpyDense, Dense],
        [NumpyDense, Dense, NumpyDense],
    ):
        layers = [kind[0](6), ReLU(), kind[1](5), ReLU(), kind[2](3)]
        model = Sequential(layers, input_shape=(4,), dtype="float64")
        Trainer(model, "softmax_cross_entropy", SGD(0.1, 0.9)).fit(X, y, 5, batch_size=16, verbose=0)
        states.append(model.state_dict())
    for other in states[1:]:
        for name, value in states[0].items():
            np.testing.assert_allclose(other[name], value, rtol=1e-9, atol=1e-11, err_msg=name)


def test_layers_can_distinguish_training_from_inference(rng):
    model = Sequential([Identity(), Dense(3)], input_shape=(4,))
    X, same = rng.normal(size=(6, 4)), model.layers[0]
    model.predict(X)
    model.forward(X)
    assert same.calls == [("forward", False)] * 2
    same.calls.clear()
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1))
    trainer.evaluate(X, [0] * 6)
    assert same.calls == [("forward", False)]
    same.calls.clear()
    trainer.train_batch(X, [0] * 6)
    assert same.calls[0] == ("forward", True)


def test_backward_stops_where_no_gradient_is_needed(rng):
    model = Sequential([Identity(), ReLU(), Identity(), Dense(3), Identity()], input_shape=(4,))
    Trainer(model, "softmax_cross_entropy", SGD(0.1)).train_batch(rng.normal(size=(6, 4)), [0] * 6)
    backward = ["backward" in model.layers[i].calls for i in (0, 2, 4)]
    assert backward == [False, False, True]


def test_values_between_segments_have_the_models_dtype(rng):
    class Other(Identity):
        def forward(self, x, training):
            self.seen = x.dtype
            return x.astype("float64")

        def backward(self, dy):
            self.seen_back = dy.dtype
            return dy.astype("float64")

    for dtype in ("float32", "float64"):
        model = Sequential([Other(), Dense(3), Other()], input_shape=(4,), dtype=dtype)
        y = model.forward(rng.integers(0, 9, (5, 4)).astype(np.uint8), training=True)
        dx = model.backward(np.ones((5, 3)))
        assert y.dtype == dx.dtype == dtype
        for layer in (model.layers[0], model.layers[2]):
            assert layer.seen == layer.seen_back == dtype


@pytest.mark.parametrize("returned", [None, 3.0, np.zeros((5, 3)), np.zeros(4), [[0.0] * 4] * 5])
def test_a_wrong_result_is_blamed_on_the_layer_that_returned_it(returned):
    class Wrong(Identity):
        bad = "forward"

        def forward(self, x, training):
            return returned if self.bad == "forward" else x

        def backward(self, dy):
            return returned if self.bad == "backward" else dy

    model = Sequential([Dense(4), Wrong(), Dense(2)], input_shape=(3,))
    message = r"layer 1, Wrong: expected {} to return shape \(5, 4\), got "
    for forward in (model.predict, lambda x: model.forward(x, training=True)):
        with pytest.raises(ValueError, match=message.format("forward")):
            forward(np.zeros((5, 3)))
    Wrong.bad = "backward"
    model.forward(np.zeros((5, 3)), training=True)
    with pytest.raises(ValueError, match=message.format("backward")):
        model.backward(np.zeros((5, 2)))


# ---- what a layer returns may be a view -----------------------------------------------------------
class Columns(faulty_layers.Columns):
    """Returns part of the first axis as a view; backward returns part of a larger array."""

    def backward(self, dy):
        wider = np.zeros((len(dy), self.in_shape[0] + 2, *self.in_shape[1:]), dy.dtype)
        wider[:, 1 + self.start : 1 + self.stop] = dy
        return wider[:, 1:-1]


class CopiedColumns(Columns):
    """The same, but returns arrays of its own."""

    def forward(self, x, training):
        return super().forward(x, training).copy()

    def backward(self, dy):
        return super().backward(dy).copy()


VIEW_CASES = {
    "dense": ((6,), lambda cut: [Dense(6), cut(1, 4), Dense(3)]),
    "first": ((6,), lambda cut: [cut(1, 4), Dense(3)]),
    "last": ((6,), lambda cut: [Dense(6), cut(1, 4)]),
    "conv": ((3, 6, 6), lambda cut: [Conv2D(4, 3), cut(0, 1), Conv2D(3, 3), Flatten(), Dense(3)]),
    "relu": ((3, 6, 6), lambda cut: [Conv2D(4, 3), cut(1, 3), ReLU(), Flatten(), Dense(3)]),
    "flatten": ((3, 6, 6), lambda cut: [Conv2D(4, 3), cut(1, 3), Flatten(), Dense(3)]),
    "towers": ((6,), lambda cut: [Parallel([cut(0, 3), Dense(2)], [cut(3, 6), Dense(2)]), Dense(3)]),
    "ends": ((6,), lambda cut: [Parallel(cut(0, 3), cut(3, 6)), Dense(3)]),
    "one": ((6,), lambda cut: [Parallel([Dense(6), cut(0, 3)]), Dense(3)]),
}


@pytest.mark.parametrize(("shape", "layers"), VIEW_CASES.values(), ids=VIEW_CASES)
def test_returned_views_give_the_same_bits_as_copies(shape, layers, rng):
    X, y = rng.normal(size=(35, *shape)), rng.integers(0, 3, 35)
    result = []
    for cut in (Columns, CopiedColumns):
        model = Sequential(layers(cut), input_shape=shape)
        Trainer(model, "softmax_cross_entropy", SGD(0.1)).fit(X, y, batch_size=16, epochs=2, verbose=0)
        scores = model.forward(X, training=True)
        dx = model.backward(softmax_cross_entropy(scores, y)[1])
        result.append([model.predict(X), scores, dx, *(p.value for p in model.params.values())])
    assert [a.tobytes() for a in result[0]] == [a.tobytes() for a in result[1]]
