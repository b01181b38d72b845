"""Buffers: non-trainable state of a layer is copied and saved like parameters, and not seen by optimizers."""

import copy
import pickle
from itertools import pairwise

import numpy as np
import pytest

from minidl import Layer, Sequential, Trainer
from minidl.initializers import ones, zeros
from minidl.layers import Dense, ReLU
from minidl.optimizers import SGD
from minidl.testing import check_layer


class Whiten(Layer):
    """y = gain * (x - mean), with a running mean that training updates before use."""

    def __init__(self, momentum=0.25):
        self.momentum = momentum

    def build(self, in_shape):
        self.gain = self.param("gain", in_shape, ones)
        self.mean = self.buffer("mean", in_shape, zeros)
        self.buffer("count", (), zeros)
        return in_shape

    def forward(self, x, training):
        if training and len(x):
            self.move(x)
            self.buffers["count"][...] += 1
        if training:
            self.centred = x - self.mean
        return (x - self.mean) * self.gain.value

    def move(self, x):
        self.mean += self.momentum * (x.mean(0) - self.mean)

    def backward(self, dy):
        self.gain.grad = (dy * self.centred).sum(0)
        return self.dx_to_input(dy * self.gain.value)

    def dx_to_input(self, dx):
        return dx - self.momentum * dx.mean(0) if len(dx) else dx


def saved(model, folder):
    model.save(folder / "model.safetensors")
    return Sequential.load(folder / "model.safetensors", custom_objects={"Whiten": Whiten})


COPIES = {
    "copy": lambda model, folder: copy.copy(model),
    "deepcopy": lambda model, folder: copy.deepcopy(model),
    "pickle": lambda model, folder: pickle.loads(pickle.dumps(model)),
    "slice": lambda model, folder: model[:],
    "file": saved,
}


@pytest.fixture(params=["float32", "float64"])
def model(request, rng):
    model = Sequential([Dense(3), Whiten(), ReLU(), Dense(2)], input_shape=(4,), dtype=request.param)
    for _ in range(3):
        model.forward(rng.standard_normal((5, 4)), training=True)
    return model


def test_training_updates_them_and_inference_does_not(model, rng):
    layer = model.layers[1]
    before = layer.mean.copy()
    assert layer.buffers["count"] == 3 and before.any()
    model.predict(rng.standard_normal((5, 4)))
    model.forward(rng.standard_normal((5, 4)))
    np.testing.assert_array_equal(layer.mean, before)
    assert layer.mean is layer.buffers["mean"] and layer.mean.dtype == model.dtype


def test_names_are_pytorchs_and_params_has_parameters_only(model):
    names = ["0.weight", "0.bias", "1.gain", "1.mean", "1.count", "3.weight", "3.bias"]
    assert list(model.state_dict()) == names
    assert list(model.params) == [name for name in names if name not in ("1.mean", "1.count")]
    assert model.summary().parameters == sum(param.value.size for param in model.params.values())
    assert not np.shares_memory(model.state_dict()["1.mean"], model.layers[1].mean)


@pytest.mark.parametrize("make", COPIES.values(), ids=COPIES)
def test_every_copy_has_its_own(model, make, tmp_path, rng):
    X = rng.standard_normal((6, 4))
    twin, expected = make(model, tmp_path), model.predict(X)
    assert twin.predict(X).tobytes() == expected.tobytes()
    assert twin.layers[1].mean is twin.layers[1].buffers["mean"]
    twin.forward(X, training=True)
    assert twin.layers[1].buffers["count"] == 4 and model.layers[1].buffers["count"] == 3
    assert (twin.predict(X) != expected).any() and model.predict(X).tobytes() == expected.tobytes()


def test_a_slice_finds_them_under_another_path(model):
    part = model[1:3]
    assert part.state_dict()["0.mean"].tobytes() == model.state_dict()["1.mean"].tobytes()


def test_load_state_dict_is_all_or_nothing(model):
    home, state = model.layers[1].mean, model.state_dict()
    changed = {name: value + 1 for name, value in state.items()}
    for change, message in [
        ({"1.mean": np.ones(4)}, r"state\['1.mean'\]: expected shape \(3,\), got \(4,\)"),
        ({"1.more": np.ones(3)}, r"missing \[\], unknown \['1.more'\]"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.load_state_dict(changed | change)
    with pytest.raises(ValueError, match=r"missing \['1.mean'\]"):
        model.load_state_dict({name: value for name, value in changed.items() if name != "1.mean"})
    assert all(np.array_equal(value, state[name]) for name, value in model.state_dict().items())
    model.load_state_dict(changed)
    assert model.layers[1].mean is home
    np.testing.assert_array_equal(home, changed["1.mean"])


def build_model(build):
    return Sequential([type("Custom", (Layer,), {"build": build})()], input_shape=(2,))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s, i: s.param("a", i, ones) and s.buffer("a", i, ones), "buffer 'a' already exists"),
        (lambda s, i: s.buffer("a", i, ones).any() and s.param("a", i, ones), "param 'a' already exists"),
        (lambda s, i: s.buffer("a", i, ones).any() and s.buffer("a", i, ones), "buffer 'a' already exists"),
        (lambda s, i: s.buffer("a", (3,), lambda r, n: np.ones(2)), r"init of 'a': expected shape \(3,\), got \(2,\)"),
        (lambda s, i: s.buffer(3, i, ones), "buffer: expected a string as its name, got 3"),
    ],
)
def test_invalid_names_and_shapes(build, message):
    with pytest.raises((TypeError, ValueError), match=f"layer 0, Custom.*{message}"):
        build_model(build)


def test_initial_values_depend_on_seed_path_and_name():
    def draw(generator, shape):
        return generator.random(shape)

    class Custom(Layer):
        def build(self, in_shape):
            self.buffer("a", in_shape, draw)
            self.buffer("b", in_shape, draw)
            return in_shape

    def first(seed=0):
        return Sequential([Custom()], input_shape=(3,), seed=seed).state_dict()

    np.testing.assert_array_equal(first()["0.a"], first()["0.a"])
    assert (first()["0.a"] != first()["0.b"]).all() and (first()["0.a"] != first(1)["0.a"]).all()


def test_a_failed_build_leaves_none():
    whiten = Whiten()
    model = Sequential([whiten, Dense(3)])
    with pytest.raises(ValueError, match="Flatten"):
        model.build((2, 2))
    assert not hasattr(whiten, "buffers")
    model.build((2,))
    assert whiten.mean.shape == (2,)


def test_a_non_finite_step_leaves_them(rng):
    model = Sequential([Whiten(), Dense(2)], input_shape=(3,))
    trainer = Trainer(model, lambda scores, y: (np.full(len(y), np.nan), scores), SGD(0.1))
    before = model.state_dict()
    with pytest.raises(FloatingPointError):
        trainer.train_batch(rng.standard_normal((4, 3)), [0, 1, 0, 1])
    assert all(np.array_equal(value, before[name]) for name, value in model.state_dict().items())


# ---- check_layer
def test_check_layer_accepts_them():
    check_layer(Whiten(), (3,), couples_examples=True)
    check_layer(Whiten(0.0), (2, 2))


class MovesInInference(Whiten):
    def forward(self, x, training):
        self.mean += 0.1
        return super().forward(x, training)


class Replaces(Whiten):
    def move(self, x):
        self.mean = self.mean + self.momentum * (x.mean(0) - self.mean)


class ReplacesInDict(Whiten):
    def move(self, x):
        self.buffers["mean"] = self.mean + 0 * x.mean(0)


class IgnoresTheMeansGradient(Whiten):
    def dx_to_input(self, dx):
        return dx


@pytest.mark.parametrize(
    ("bug", "message"),
    [
        (MovesInInference, r"MovesInInference: inference changed buffers\['mean'\], mean"),
        (Replaces, r"Replaces: training replaces the array in self.mean; it must write into the buffer"),
        (ReplacesInDict, r"ReplacesInDict: training replaces the array in buffers\['mean'\]"),
        (IgnoresTheMeansGradient, r"IgnoresTheMeansGradient: dx\[0, 0\]: expected"),
    ],
)
def test_check_layer_finds_faults(bug, message):
    with pytest.raises(AssertionError, match=f"^{message}"):
        check_layer(bug(), (3,), couples_examples=True)


def test_training_with_them_is_reproducible(rng):
    X, y = rng.standard_normal((40, 3)), rng.integers(0, 2, 40)
    result = []
    for threads in (1, 3):
        model = Sequential([Dense(5), Whiten(), ReLU(), Dense(2)], input_shape=(3,))
        trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1), num_threads=threads)
        trainer.fit(X, y, epochs=2, batch_size=8, verbose=0)
        assert model.state_dict()["1.count"] == 10
        result.append({name: value.tobytes() for name, value in model.state_dict().items()})
    assert all(one == other for one, other in pairwise(result))
