"""Numbers that float32 rounds: X warns, targets are exact in what is reported, estimators compute in float64."""

import warnings

import numpy as np
import pytest
from sklearn.metrics import mean_absolute_error, mean_squared_error, r2_score

from minidl import Sequential, Trainer
from minidl.estimators import SequentialClassifier, SequentialRegressor
from minidl.layers import Dense, Normalize
from minidl.optimizers import SGD

DAY = 86_400


def seconds(span, rng, n=5000):
    """Unix seconds (n, 1) of some time from 2023 on."""
    return 1_700_000_000 + rng.integers(0, span, (n, 1))


def linear(dtype="float32"):
    return Sequential([Dense(1)], input_shape=(1,), dtype=dtype)


def fit(model, X):
    Trainer(model, "mean_squared_error", SGD(0)).fit(X, np.zeros(len(X)), verbose=0)


@pytest.mark.parametrize("dtype", ["float64", "int64", "uint32", ">i4", "longdouble"])
@pytest.mark.parametrize("order", ["random", "sorted"])
def test_close_numbers_that_float32_does_not_distinguish(dtype, order, rng):
    X = seconds(3600, rng).astype(dtype)
    X = np.sort(X, axis=0) if order == "sorted" else X
    message = f"X: float32 has steps of 128 where element 0 of the examples is, from {int(X.min())} to {int(X.max())}:"
    layers = [Normalize.from_data(X), Dense(1)]
    with pytest.warns(UserWarning, match=message) as caught:
        fit(Sequential(layers, input_shape=(1,)), X)
    assert caught[0].filename == __file__


def test_rows_of_weight_zero_are_not_looked_at(rng):
    X = np.concatenate([seconds(3600, rng) - 1_700_000_000, [[np.inf], [np.nan], [1e300]], seconds(3600, rng)])
    weights = np.arange(len(X)) < 5000
    Trainer(linear(), "mean_squared_error", SGD(0)).fit(X, 0 * weights, sample_weight=weights, verbose=0)


def test_numbers_that_float32_distinguishes_well_enough(rng, tmp_path):
    np.save(tmp_path / "x.npy", seconds(3600, rng).astype(float))
    quiet = [
        np.sort(seconds(400 * DAY, rng), axis=0),  # each part of it spans a short time
        seconds(28, rng) // 128 * 128,
        np.full((5, 1), 1_700_000_001),
        seconds(3600, rng) - 1_700_000_000,
        seconds(3600, rng).astype("float32"),
        np.full((5, 1), -(2**24)),
        np.load(tmp_path / "x.npy", mmap_mode="r"),  # not read as a whole
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for X in quiet:
            fit(linear(), X)
        fit(linear("float64"), seconds(3600, rng))
        fit(linear(), np.array([[np.iinfo("int64").min], [0]]))


@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_reported_numbers_are_of_the_targets_as_given(dtype, rng):
    X, y = np.zeros((200, 1)), seconds(3600, rng, 200)[:, 0].astype(dtype)
    trainer = Trainer(linear(), "mean_squared_error", SGD(1e-30), metrics=["mae", "mse", "r2"])
    trainer.model.load_state_dict({"0.weight": [[0]], "0.bias": [1_700_000_000]})
    expected = trainer.model.predict(X).astype(float)
    mse = mean_squared_error(y, expected)
    right = {"loss": mse, "mae": mean_absolute_error(y, expected), "mse": mse, "r2": r2_score(y, expected)}
    assert trainer.evaluate(X, y) == pytest.approx(right, rel=1e-12)
    trainer.fit(X, y, batch_size=200, validation_data=(X, y), verbose=0)
    trainer.fit([(X[:90], y[:90]), (X[90:], y[90:])], verbose=0)
    for name in ("mae", "mse", "r2"):
        assert trainer.history[name] == pytest.approx([right[name]] * 2, rel=1e-12)
    assert trainer.history["val_mae"][0] == pytest.approx(right["mae"], rel=1e-12)
    assert trainer.history["val_loss"][0] == pytest.approx(mse, rel=1e-12)


@pytest.mark.parametrize("estimator", [SequentialClassifier, SequentialRegressor])
def test_estimators_compute_large_integers_in_float64(estimator, rng):
    X = seconds(3600, rng, 300)
    y = (X[:, 0] % 2).astype(int)
    layers = [Normalize.from_data(X), Dense(2 if estimator is SequentialClassifier else 1)]
    for rows, dtype in ((X, "float64"), (-X, "float64"), (X - X.min(), "float32"), (X.astype("float32"), "float32")):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fitted = estimator(Sequential(layers[1:]), epochs=1, verbose=0).fit(rows, y)
        assert fitted.model_.dtype == dtype
    fitted = estimator(Sequential(layers), epochs=1, verbose=0).fit(X, y)
    assert len(np.unique(fitted.trainer_.predict(X)[:, 0])) == len(np.unique(X))
