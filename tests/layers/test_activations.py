"""The activations as layers: arguments, reprs and training."""

import numpy as np
import pytest

from minidl import Sequential, Trainer
from minidl.layers import ELU, GELU, Dense, Hardswish, LeakyReLU, PReLU, Rescale, Sigmoid, SiLU, Softmax, Tanh
from minidl.optimizers import SGD

WITHOUT_ARGUMENTS = (SiLU, Sigmoid, Tanh, Hardswish, Softmax)
ALL = (LeakyReLU, ELU, GELU, PReLU, *WITHOUT_ARGUMENTS)


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


@pytest.mark.parametrize("layer", ALL)
def test_a_net_learns_with_it(layer, rng):
    """Which of two rings a point is on: not linearly separable."""
    angle, y = rng.uniform(0, 2 * np.pi, 400), rng.integers(0, 2, 400)
    X = (y + 1)[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    layers = [Dense(32), layer(), Dense(32), layer(), Dense(2)]
    trainer = Trainer(Sequential(layers, seed=1), "softmax_cross_entropy", SGD(0.2, momentum=0.9), ["accuracy"])
    trainer.fit(X, y, epochs=150, batch_size=40, verbose=0)
    assert trainer.evaluate(X, y)["accuracy"] > 0.98
