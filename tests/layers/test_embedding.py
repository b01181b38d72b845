"""Embedding: values by NumPy, training on columns of categories, errors. Gradients are in test_contract.py."""

import numpy as np
import pytest

from minidl import Sequential, Trainer
from minidl.layers import Columns, Dense, Embedding, Flatten, Parallel, PReLU, ReLU, Rescale
from minidl.optimizers import SGD

RNG = np.random.default_rng(0)
CODES, NUMBERS = RNG.integers(0, 5, (60, 1)), RNG.standard_normal((60, 2))
TABLE, LABELS = np.hstack([CODES, NUMBERS]), RNG.integers(0, 2, 60)


def table_net(dtype="float32"):
    branches = [Columns(0, 1), Embedding(5, 3), Flatten()], [Columns(1)]
    return Sequential([Parallel(*branches), Dense(8), ReLU(), Dense(2)], input_shape=(3,), seed=0, dtype=dtype)


@pytest.mark.parametrize("kind", ["uint8", "int64", "float32", "float64"])
def test_vectors_are_channels_first(kind):
    model = Sequential([Embedding(9, 4)], input_shape=(6,), seed=0)
    x, weight = RNG.integers(0, 9, (40, 6)), model.params["0.weight"].value
    assert model.output_shape == (4, 6) and weight.shape == (9, 4)
    for n in (1, 3, 40):
        np.testing.assert_array_equal(model.predict(x[:n].astype(kind)), weight[x[:n]].transpose(0, 2, 1))


def test_initial_values_are_small():
    weight = Sequential([Embedding(2000, 50)], input_shape=(1,), seed=0).params["0.weight"].value
    assert 0.0499 < np.abs(weight).max() <= 0.05 and abs(weight.std() - 0.05 / 3**0.5) < 1e-3
    ones = Sequential([Embedding(3, 2, initializer=lambda rng, shape: np.ones(shape))], input_shape=(1,))
    assert (ones.params["0.weight"].value == 1).all()


def test_a_table_is_learned():
    """Labels depend on the category and a number together: neither suffices alone."""
    y = ((CODES[:, 0] % 2 == 0) == (NUMBERS[:, 0] > 0)).astype(int)
    trainer = Trainer(table_net(), "softmax_cross_entropy", SGD(0.1, momentum=0.9), ["accuracy"])
    trainer.fit(TABLE, y, epochs=60, batch_size=16, verbose=0)
    assert trainer.evaluate(TABLE, y)["accuracy"] == 1


def test_categories_without_examples_have_no_gradient():
    model = table_net("float64")
    model.forward(TABLE[CODES[:, 0] < 3], training=True)
    model.backward(np.ones(((CODES[:, 0] < 3).sum(), 2)))
    grad = model.params["0.branches.0.1.weight"].grad
    assert grad[:3].all() and not grad[3:].any()


@pytest.mark.parametrize("n", [1, 15, 17])
def test_layers_before_it_get_a_gradient_of_zero(n):
    model = Sequential([Dense(4), Embedding(7, 19), Flatten(), Dense(3)], input_shape=(4,), seed=0)
    model.params["0.weight"].value = np.eye(4)
    for _ in range(3):
        model.forward(RNG.integers(0, 7, (n, 4)), training=True)
        dx = model.backward(np.ones((n, 3)))
        assert not dx.any() and not model.params["0.weight"].grad.any() and model.params["1.weight"].grad.any()


def test_lanes_without_an_example_stay_finite():
    """A layer before it makes -1, which is no category, of their zeros; PReLU multiplies them by gradients of zero."""
    model = Sequential([Rescale(1.0, -1.0), Embedding(7, 3), PReLU()], input_shape=(2,), seed=0)
    model.forward(RNG.integers(1, 8, (17, 2)), training=True)
    model.backward(np.ones((17, 3, 2)))
    assert all(np.isfinite(param.grad).all() for param in model.params.values())


@pytest.mark.parametrize("bad", [-1.0, 5.0, 0.5])
def test_other_numbers_stop_training_before_an_update(bad):
    table = TABLE.copy()
    table[17, 0] = bad
    model = table_net()
    before = {name: np.array(param.value) for name, param in model.params.items()}
    with pytest.raises(FloatingPointError, match=r"output is NaN for example 17 of X.*an Embedding has NaN for what"):
        Trainer(model, "softmax_cross_entropy", SGD(0.1)).fit(table, LABELS, epochs=1, batch_size=60, verbose=0)
    assert all((param.value == before[name]).all() for name, param in model.params.items())
    wrong = np.isnan(model.predict(table)).any(axis=1)
    assert wrong[17] and wrong.sum() == 1


@pytest.mark.parametrize(
    ("layer", "shape", "message"),
    [
        (Embedding(0, 3), (2,), "categories: expected at least 1, got 0"),
        (Embedding(4, 0), (2,), "dim: expected at least 1, got 0"),
        (Embedding(4.0, 3), (2,), "categories: expected an integer, got 4.0"),
        (Embedding(2**24 + 1, 1), (2,), "categories: expected at most 16777216, up to which float32 has all"),
        (Embedding(4, 3), (2, 5), r"expected \(length,\), the indices of categories, got \(2, 5\): put a Flatten"),
        (Embedding(4, 3, initializer="normal"), (2,), "initializer: expected a function"),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused(layer, shape, message):
    with pytest.raises((TypeError, ValueError), match=rf"layer 0, Embedding, input .*: {message}"):
        Sequential([layer], input_shape=shape)
