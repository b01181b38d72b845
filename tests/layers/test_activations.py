"""The activations as layers: arguments, reprs and training."""

import numpy as np
import pytest

from minidl import Sequential, Trainer
from minidl.layers import (
    CELU,
    ELU,
    GELU,
    SELU,
    Dense,
    Exp,
    Hardshrink,
    HardSigmoid,
    Hardswish,
    Hardtanh,
    LeakyReLU,
    LogSigmoid,
    LogSoftmax,
    Mish,
    PReLU,
    ReLU,
    ReLU6,
    Rescale,
    Sigmoid,
    SiLU,
    Softmax,
    Softmin,
    Softplus,
    Softshrink,
    Softsign,
    SparsePlus,
    Squareplus,
    Tanh,
    Tanhshrink,
    Threshold,
)
from minidl.optimizers import SGD

LEARNING = (
    *(LeakyReLU, ELU, GELU, PReLU, SiLU, Sigmoid, Tanh, Hardswish, Softmax, CELU, HardSigmoid, Hardtanh, LogSigmoid),
    *(Mish, ReLU6, SELU, Softmin, Softplus, Softsign, SparsePlus, Squareplus, Tanhshrink),
)
ALL = (*LEARNING, Exp, Hardshrink, LogSoftmax, Softshrink)  # the last four do not suit hidden layers


@pytest.mark.parametrize(
    ("layer", "error", "message"),
    [
        (LeakyReLU(np.inf), ValueError, "negative_slope: expected a finite number.*inf"),
        (LeakyReLU("0.1"), TypeError, "negative_slope: expected a number, got '0.1'"),
        (LeakyReLU(True), TypeError, "negative_slope.*True"),
        (ELU(-0.5), ValueError, "alpha: expected at least 0, got -0.5"),
        (ELU(np.nan), ValueError, "alpha: expected a finite number.*nan"),
        (ELU(1e39), ValueError, "alpha.*float32 can hold"),
        (ELU(None), TypeError, "alpha: expected a number, got None"),
        (Hardtanh(1, 1), ValueError, "min_val: expected a number below max_val, 1.0, got 1.0"),
        (Hardtanh(-np.inf), ValueError, "min_val: expected a finite number.*inf"),
        (Hardtanh(max_val="1"), TypeError, "max_val: expected a number, got '1'"),
        (HardSigmoid(beta=np.nan), ValueError, "beta: expected a finite number.*nan"),
        (HardSigmoid(None), TypeError, "alpha: expected a number, got None"),
        (CELU(0), ValueError, "alpha: expected at least 1.17549435e-38, got 0.0"),
        (Softplus(-1), ValueError, "beta: expected at least 1.17549435e-38, got -1.0"),
        (Squareplus(0.0), ValueError, "b: expected at least 1.17549435e-38, got 0.0"),
        (Hardshrink(-0.5), ValueError, "lambd: expected at least 0, got -0.5"),
        (Softshrink(-0.5), ValueError, "lambd: expected at least 0, got -0.5"),
        (Softshrink(True), TypeError, "lambd.*True"),
        (Threshold(np.inf, 0), ValueError, "threshold: expected a finite number.*inf"),
        (Threshold(0, "0"), TypeError, "value: expected a number, got '0'"),
        (GELU("erf"), ValueError, "approximate: expected 'none' or 'tanh', got 'erf'"),
        (GELU(None), ValueError, "approximate.*None"),
        (GELU(True), ValueError, "approximate.*True"),
        (PReLU(init=np.nan), ValueError, "init: expected a finite number.*nan"),
        (PReLU(init="0"), TypeError, "init.*'0'"),
        (PReLU(shared=1), TypeError, "shared: expected True or False, got 1"),
    ],
    ids=str,
)
def test_invalid_arguments(layer, error, message):
    with pytest.raises(error, match=rf"layer 1, {type(layer).__name__}.*{message}"):
        Sequential([Dense(4), layer], input_shape=(4,))


def test_reprs():
    relus = [LeakyReLU(), LeakyReLU(0.3), ELU(2.0), GELU(), GELU("tanh")]
    layers = [*relus, PReLU(), PReLU(init=0.1, shared=True), Tanh()]
    shown = "LeakyReLU() LeakyReLU(negative_slope=0.3) ELU(alpha=2.0) GELU() GELU(approximate='tanh')"
    assert str(layers) == f"[{shown} PReLU() PReLU(init=0.1, shared=True) Tanh()]".replace(") ", "), ")
    assert str([Hardtanh(), Hardtanh(None, 2)]) == "[Hardtanh(), Hardtanh(min_val=None, max_val=2)]"
    assert str([HardSigmoid(), Threshold(1, 0)]) == "[HardSigmoid(), Threshold(threshold=1, value=0)]"


def test_prelu_starts_as_in_pytorch_and_counts_channels():
    for shape, shared, count in (((3, 4, 5), False, 3), ((7,), False, 7), ((3, 4, 5), True, 1)):
        model = Sequential([PReLU(shared=shared)], input_shape=shape)
        weight = model.params["0.weight"].value
        np.testing.assert_array_equal(weight, np.full(count, 0.25, "f4"))
        assert set(model.state_dict()) == {"0.weight"}


def test_softmax_sums_channels_to_one(rng):
    y = Sequential([Softmax()], input_shape=(4, 3, 2), dtype="float64").predict(rng.normal(size=(5, 4, 3, 2)))
    np.testing.assert_allclose(y.sum(axis=1), 1, rtol=1e-14)
    scores = rng.normal(size=(5, 6))
    np.testing.assert_array_equal(
        Sequential([Softmax()], input_shape=(6,)).predict(scores),
        Sequential([Rescale(1)], input_shape=(6,)).predict_proba(scores),
    )


def predictions(layer, x):
    return Sequential([layer], input_shape=x.shape[1:], dtype="float64").predict(x)


def test_layers_that_are_special_cases_of_others(rng):
    x = 4 * rng.normal(size=(17, 3, 2))
    for layer, same in (
        (ReLU6(), Hardtanh(0, 6)),
        (ReLU(), Hardtanh(0, None)),
        (ReLU(), Threshold(0, 0)),
        (ELU(), CELU()),
        (HardSigmoid(0.5, 0.5), Hardtanh(0, 1)),
    ):
        given = 0.5 * x + 0.5 if same.config() == {"min_val": 0, "max_val": 1} else x
        np.testing.assert_array_equal(predictions(layer, x), predictions(same, given), str(layer))
    np.testing.assert_array_equal(predictions(Hardtanh(None, None), x), x)
    np.testing.assert_allclose(predictions(LogSoftmax(), x), np.log(predictions(Softmax(), x)), 1e-12)
    np.testing.assert_array_equal(predictions(Softmin(), x), predictions(Softmax(), -x))
    np.testing.assert_allclose(predictions(LogSigmoid(), x), -predictions(Softplus(), -x), 1e-15)


def test_a_missing_bound_is_none():
    x = np.array([[-1e300, -2, 0.5, 2, 1e300]])
    for layer, y, slope in (
        (Hardtanh(None, 1), [-1e300, -2, 0.5, 1, 1], [1, 1, 1, 0, 0]),
        (Hardtanh(-1, None), [-1, -1, 0.5, 2, 1e300], [0, 0, 1, 1, 1]),
        (Hardtanh(None, None), [-1e300, -2, 0.5, 2, 1e300], [1, 1, 1, 1, 1]),
    ):
        model = Sequential([layer], input_shape=(5,), dtype="float64")
        np.testing.assert_array_equal(model.forward(x, training=True), [y])
        np.testing.assert_array_equal(model.backward(np.ones_like(x)), [slope])


def test_selu_keeps_mean_and_variance(rng):
    y = predictions(SELU(), rng.normal(size=(1000, 1000)))
    assert abs(y.mean()) < 0.01 and abs(y.std() - 1) < 0.01


def test_a_slope_of_zero_is_a_relu(rng):
    x = rng.normal(size=(17, 3, 2))
    y = Sequential([LeakyReLU(0.0)], input_shape=(3, 2), dtype="float64").predict(x)
    np.testing.assert_array_equal(y, np.maximum(x, 0))


@pytest.mark.parametrize("layer", ALL)
def test_in_place_execution_changes_no_gradient(layer, rng):
    """A plan may overwrite what is not read again: the first layer's x, and the second's unless the first reads y."""
    x, dy = rng.normal(size=(33, 6)), rng.normal(size=(33, 6))
    layers = [Rescale(2.0, 0.5), layer(), layer(), Rescale(3.0)]
    model = Sequential(layers, input_shape=(6,), dtype="float64")
    y, dx = model.forward(x, training=True), model.backward(dy)
    singles = [Sequential([type(one)(**one.config())], input_shape=(6,), dtype="float64") for one in model.layers]
    for single in singles:
        x = single.forward(x, training=True)
    for single in reversed(singles):
        dy = single.backward(dy)
    assert y.tobytes() == x.tobytes() and dx.tobytes() == dy.tobytes()


@pytest.mark.parametrize("layer", LEARNING)
def test_a_net_learns_with_it(layer, rng):
    """Which of two rings a point is on: not linearly separable."""
    angle, y = rng.uniform(0, 2 * np.pi, 400), rng.integers(0, 2, 400)
    X = (y + 1)[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    layers = [Dense(32), layer(), Dense(32), layer(), Dense(2)]
    trainer = Trainer(Sequential(layers, seed=1), "softmax_cross_entropy", SGD(0.2, momentum=0.9), ["accuracy"])
    trainer.fit(X, y, epochs=150, batch_size=40, verbose=0)
    assert trainer.evaluate(X, y)["accuracy"] > 0.98


@pytest.mark.parametrize("layer", [Softmax, LogSoftmax, Softmin])
@pytest.mark.parametrize(
    ("axis", "error", "message"),
    [
        (3, ValueError, "axis: expected at most 2, got 3"),
        ((0, 2), ValueError, r"axis: expected one axis, or neighbours, got \(0, 2\)"),
        ((1, 1), ValueError, "axis: expected some of 0 to 2, each once"),
        ("channels", TypeError, "axis: expected an integer, got 'channels'"),
    ],
)
def test_invalid_axes_of_a_softmax(layer, axis, error, message):
    with pytest.raises(error, match=rf"{layer.__name__}.*{message}"):
        Sequential([layer(axis)], input_shape=(2, 3, 4))


def test_a_softmax_over_other_axes_is_none_of_the_classes():
    model = Sequential([Softmax(-1)], input_shape=(3, 4))
    np.testing.assert_allclose(model.predict(np.eye(3, 4)[None]).sum(2), 1, 1e-6)
    with pytest.raises(ValueError, match="Softmax"):
        model.predict_proba(np.eye(3, 4)[None])
