"""The layer contract: what Layer and Param offer, and what they refuse."""

import numpy as np
import pytest

from minidl import Layer, Param, Sequential, Trainer
from minidl.initializers import he_uniform, ones, zeros
from minidl.layers import Conv2D, Dense, ReLU
from minidl.optimizers import SGD
from minidl_c.kernels.relu import ReLUOp


class Noise(Layer):
    """Adds random numbers in training, and records them."""

    def __init__(self, size=1.0):
        self.size = size
        self.drawn = []

    def forward(self, x, training):
        if not training:
            return x
        self.drawn.append(self.rng.normal(size=x.shape))
        return x + self.size * self.drawn[-1]

    def backward(self, dy):
        return dy


def record_noise(seed, position, steps=2):
    """Returns the random numbers of a Noise layer at this position, in each step of a training run."""
    layers = [ReLU() for _ in range(position)] + [Noise()]
    model = Sequential([*layers, Dense(2)], input_shape=(3,), seed=seed)
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1), seed=seed)
    for _ in range(steps):
        trainer.train_batch(np.ones((4, 3)), [0, 1, 0, 1])
    return layers[-1].drawn


# ---- parameters
@pytest.fixture
def param():
    return Param(np.arange(6.0).reshape(2, 3))


def test_assignment_copies(param):
    home, new = param.value, np.ones((2, 3))
    param.value = new
    new[:] = 5
    assert param.value is home
    np.testing.assert_array_equal(home, 1)
    param.grad = new
    grad = param.grad
    param.grad = [[1, 2, 3], [4, 5, 6]]
    assert param.grad is grad
    np.testing.assert_array_equal(grad, [[1, 2, 3], [4, 5, 6]])


def test_a_gradient_starts_at_zero_and_is_writable(param):
    np.testing.assert_array_equal(param.grad, np.zeros((2, 3)))
    param.grad[1, 2] = 7
    assert param.grad[1, 2] == 7


@pytest.mark.parametrize("name", ["value", "grad"])
@pytest.mark.parametrize(
    ("new", "error", "message"),
    [
        (np.ones((3, 2)), ValueError, r"expected shape \(2, 3\), got \(3, 2\)"),
        (1.0, ValueError, r"expected shape \(2, 3\), got \(\)"),  # no accidental broadcasting
        (np.ones(3), ValueError, r"expected shape \(2, 3\), got \(3,\)"),
        (np.ones((2, 3), complex), TypeError, "real numbers, got dtype complex128"),
        (np.full((2, 3), "a"), TypeError, "real numbers, got dtype <U1"),
        (None, (TypeError, ValueError), "got"),
    ],
)
def test_refuses_values_of_another_shape(param, name, new, error, message):
    before = param.value.copy(), param.grad.copy()
    with pytest.raises(error, match=f"^{name}: .*{message}"):
        setattr(param, name, new)
    np.testing.assert_array_equal([param.value, param.grad], before)


def test_repr_shows_shape_and_dtype(param):
    assert repr(param) == "Param(shape=(2, 3), dtype=float64)"


# ---- building
def build_model(build, in_shape=(4,), dtype="float32"):
    """Returns a model of one layer with this `build`."""
    layer = type("Custom", (Layer,), {"build": build, "forward": lambda self, x, training: x})()
    return Sequential([layer], input_shape=in_shape, dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_param_makes_a_parameter_of_the_models_dtype(dtype):
    def build(self, in_shape):
        assert self.dtype == dtype and self.in_shape == in_shape == (4,)
        self.gain = self.param("gain", (2, 4), ones)
        assert self.gain is self.params["gain"]
        return in_shape

    model = build_model(build, dtype=dtype)
    assert model.params["0.gain"].value.dtype == model.params["0.gain"].grad.dtype == dtype
    np.testing.assert_array_equal(model.params["0.gain"].value, np.ones((2, 4)))
    assert model.layers[0].gain.value is model.params["0.gain"].value


def test_initial_values_depend_only_on_seed_path_and_name():
    def first(seed=0, position=0, name="gain"):
        class Custom(Layer):
            def build(self, in_shape):
                self.param(name, (3, 4), he_uniform)
                self.param("other", (5,), zeros)
                return in_shape

        layers = [ReLU() for _ in range(position)] + [Custom()]
        return Sequential(layers, input_shape=(4,), seed=seed).params[f"{position}.{name}"].value

    np.testing.assert_array_equal(first(), first())
    for other in (first(seed=1), first(position=1), first(name="loss")):
        assert (first() != other).all()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s, i: s.param("a", (2,), ones) and s.param("a", (2,), ones), "'a' already exists"),
        (lambda s, i: s.param("a", (2,), lambda r, n: np.ones(3)), r"'a'.*\(2,\), got \(3,\)"),
        (lambda s, i: setattr(s, "op", Dense(3)) or i, "op"),
        (lambda s, i: setattr(s, "op", ReLUOp((9,), s.dtype)) or i, "op"),
        (lambda s, i: setattr(s, "op", ReLUOp(i, s.dtype)) or (9,), "op"),
        (lambda s, i: setattr(s, "op", ReLUOp(i, "float64")) or i, "float32.*float64"),
        (
            lambda s, i: setattr(s, "op", ReLUOp(i, s.dtype)) or (s.param("a", (2,), ones) and i),
            "op: reads 0 parameters, but the layer has 2",
        ),
    ],
)
def test_an_invalid_build_names_the_layer(build, message):
    with pytest.raises((TypeError, ValueError), match=f"layer 0, Custom.*{message}"):
        build_model(build)


@pytest.mark.parametrize("returned", [None, 4, (0,), (2.5,), "4", (-1,)])
def test_build_must_return_a_shape(returned):
    with pytest.raises((TypeError, ValueError), match="layer 0, Custom"):
        build_model(lambda self, in_shape: returned)


def test_a_layer_with_neither_op_nor_forward_is_refused():
    class Empty(Layer):
        pass

    model = Sequential([Empty()], input_shape=(2,))
    with pytest.raises(NotImplementedError, match=r"Empty .*neither an op nor forward"):
        model.predict(np.zeros((1, 2)))


def test_a_custom_layer_may_provide_an_op(rng):
    class Custom(Layer):
        def build(self, in_shape):
            self.op = ReLUOp(in_shape, self.dtype)
            return in_shape

    x = rng.normal(size=(20, 2, 3)).astype("float32")
    model = Sequential([Custom()], input_shape=(2, 3))
    np.testing.assert_array_equal(model.predict(x), np.maximum(x, 0))


# ---- random numbers
def test_random_numbers_depend_only_on_seed_path_and_step():
    first, again = record_noise(0, 0), record_noise(0, 0)
    np.testing.assert_array_equal(first, again)
    for other in (first[1], record_noise(1, 0)[0], record_noise(0, 1)[0]):
        assert (first[0] != other).all()


def test_random_numbers_are_new_in_each_training_forward():
    one, other = Noise(), Noise()
    for layer in (one, other):
        model = Sequential([layer], input_shape=(3,))
        for _ in range(2):
            model.forward(np.zeros((2, 3)), training=True)
    np.testing.assert_array_equal(one.drawn, other.drawn)
    assert (one.drawn[0] != one.drawn[1]).all()


def test_numpys_global_generator_is_never_used():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    record_noise(0, 1)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


# ---- config
def test_config_holds_the_constructors_arguments():
    assert Noise(0.5).config() == {"size": 0.5}
    assert repr(Noise(0.5)) == "Noise(size=0.5)"
    assert ReLU().config() == {} and repr(ReLU()) == "ReLU()"
    assert repr(Conv2D(6, 5, padding=2)) == "Conv2D(filters=6, kernel_size=5, padding=2)"


def test_needs_dx_tells_whether_the_gradient_is_used(rng):
    class ReportsNeedsDx(Noise):
        def backward(self, dy):
            self.needed = self.needs_dx
            return dy if self.needs_dx else None

    class Gain(ReportsNeedsDx):
        def build(self, in_shape):
            self.param("gain", in_shape, ones)
            return in_shape

    for layers, needed in (([Gain()], False), ([Dense(3), ReportsNeedsDx()], True), ([Gain(), ReportsNeedsDx()], True)):
        model = Sequential([*layers, Dense(2)], input_shape=(3,))
        trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1))
        trainer.train_batch(rng.normal(size=(4, 3)), [0, 1, 0, 1])
        assert layers[-1].needed is needed
        model.forward(np.ones((2, 3)), training=True)
        model.backward(np.ones((2, 2)))
        assert layers[-1].needed is True  # by hand, the caller wants the gradient of X


def test_a_layer_with_an_op_and_a_forward_is_refused():
    """Only one of them would be used, and the other silently ignored."""

    class Loud(ReLU):
        def forward(self, x, training):
            return x

    with pytest.raises(TypeError, match=r"layer 0, Loud.*forward: never called"):
        Sequential([Loud()], input_shape=(2,))


def test_a_constructor_that_does_not_store_its_argument_is_reported():
    class Forgetful(Layer):
        def __init__(self, size):
            self.width = size

    with pytest.raises(TypeError, match="Forgetful: the constructor takes 'size'"):
        Forgetful(3).config()


def test_values_that_overflow_the_dtype_are_refused():
    param = Param(np.ones(2, "f4"))
    for name in ("value", "grad"):
        with pytest.raises(ValueError, match=f"{name}: expected values that float32 can hold"):
            setattr(param, name, [1e300, 1])
        setattr(param, name, [np.inf, 1])  # explicitly given
    assert param.value[0] == np.inf
