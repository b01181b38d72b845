"""SequentialRegressor: one or many targets, R², Poisson rates, and what is refused."""

import numpy as np
import pytest
from sklearn.datasets import make_friedman1, make_regression
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.linear_model import LinearRegression, PoissonRegressor
from sklearn.metrics import r2_score

from minidl.estimators import SequentialRegressor
from minidl.layers import Dense
from minidl.losses import Huber

X, Y = make_friedman1(200, 6, random_state=0)
X_MANY, Y_MANY = make_regression(150, 5, n_targets=3, random_state=0)
Y_MANY = Y_MANY / Y_MANY.std()


def make_regressor(model=None, **options):
    return SequentialRegressor(model, **{"epochs": 60, "lr": 0.02, "tol": None, "random_state": 0, **options})


def test_a_single_target_gives_one_axis():
    fitted = make_regressor(epochs=200).fit(X, Y)
    result = fitted.predict(X)
    assert result.shape == (200,) and result.dtype == "float64"
    assert fitted.score(X, Y) == r2_score(Y, result) > 0.8
    np.testing.assert_array_equal(result, fitted.model_.predict(X)[:, 0])


def test_a_line_matches_least_squares():
    fitted = make_regressor([Dense(3)], optimizer="sgd", lr=0.2, epochs=400, batch_size=150).fit(X_MANY, Y_MANY)
    expected = LinearRegression().fit(X_MANY, Y_MANY)
    np.testing.assert_allclose(fitted.predict(X_MANY), expected.predict(X_MANY), atol=1e-6)
    slopes = Y_MANY.std(axis=0)[:, np.newaxis] * fitted.model_.params["0.weight"].value
    np.testing.assert_allclose(slopes, expected.coef_, atol=1e-6)


def test_many_targets_are_predicted_together():
    fitted = make_regressor().fit(X_MANY, Y_MANY)
    assert fitted.predict(X_MANY).shape == (150, 3) and fitted.score(X_MANY, Y_MANY) > 0.95


def test_a_column_is_flattened_with_a_warning():
    with pytest.warns(DataConversionWarning, match="column-vector"):
        fitted = make_regressor().fit(X, Y[:, np.newaxis])
    np.testing.assert_array_equal(fitted.predict(X), make_regressor().fit(X, Y).predict(X))


@pytest.mark.parametrize("kind", [np.ndarray.tolist, lambda y: y.astype(object), lambda y: y.astype(">f8")])
def test_targets_of_other_dtypes_are_equivalent(kind):
    np.testing.assert_array_equal(make_regressor().fit(X, kind(Y)).predict(X), make_regressor().fit(X, Y).predict(X))


def test_integers_and_bools_are_numbers():
    counts = np.round(Y).astype(int)
    np.testing.assert_array_equal(
        make_regressor().fit(X, counts).predict(X), make_regressor().fit(X, counts.astype(float)).predict(X)
    )
    assert make_regressor().fit(X, Y > 14).score(X, (Y > 14).astype(float)) > 0.5


def test_one_example_is_enough():
    fitted = make_regressor(epochs=300).fit(X[:1], [3.0])
    np.testing.assert_allclose(fitted.predict(X[:1]), [3.0], atol=0.05)


def test_losses_by_name_and_object_are_those_of_a_trainer():
    by_name = make_regressor(loss="huber").fit(X, Y)
    assert isinstance(by_name.trainer_.loss, Huber)
    np.testing.assert_array_equal(make_regressor(loss=Huber(1.0)).fit(X, Y).predict(X), by_name.predict(X))
    assert not np.array_equal(make_regressor(loss="mean_absolute_error").fit(X, Y).predict(X), by_name.predict(X))


def test_poisson_rates_are_exponentials_and_match_poisson_regression():
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(400, 3))
    counts = rng.poisson(np.exp(inputs @ [0.5, -0.3, 0.2] + 0.1))
    ours = make_regressor([Dense(1)], loss="poisson", optimizer="sgd", lr=0.1, epochs=800, batch_size=400)
    ours.fit(inputs, counts)
    theirs = PoissonRegressor(alpha=0, tol=1e-10, max_iter=10_000).fit(inputs, counts)
    np.testing.assert_allclose(ours.predict(inputs), theirs.predict(inputs), 1e-5)
    np.testing.assert_array_equal(ours.predict(inputs), np.exp(ours.model_.predict(inputs)[:, 0]))
    assert ours.score(inputs, counts) == r2_score(counts, ours.predict(inputs))


REFUSED = {
    "no y": (None, "requires y to be passed"),
    "one extra row": (np.append(Y, 1.0), r"inconsistent numbers of samples: \[200, 201\]"),
    "NaN": (np.where(Y > 14, np.nan, Y), "y contains NaN"),
    "infinity": (np.where(Y > 14, np.inf, Y), "y contains infinity"),
    "words": (np.where(Y > 14, "much", "little"), "y: expected real numbers"),
    "strings as objects": (np.where(Y > 14, "much", "little").astype(object), "could not convert"),
    "complex": (Y * 1j, "[Cc]omplex"),
    "three axes": (np.zeros((200, 2, 2)), "dim 3"),
}


@pytest.mark.parametrize("y, message", REFUSED.values(), ids=REFUSED)
def test_invalid_targets_are_refused(y, message):
    fresh = make_regressor()
    with pytest.raises((TypeError, ValueError), match=message):
        fresh.fit(X, y)
    assert vars(fresh) == vars(make_regressor())


def test_a_changed_number_of_targets_is_refused():
    fitted = make_regressor(epochs=1).fit(X, Y)
    for y in (np.stack([Y, Y], axis=1), np.stack([Y, Y, Y], axis=1)):
        with pytest.raises(ValueError, match="y: expected 1 targets per row, as before, got shape"):
            fitted.partial_fit(X, y)


def test_a_model_with_the_wrong_outputs_is_refused():
    with pytest.raises(
        ValueError, match=r"model: expected outputs of shape \(3,\), one for each column of y, got \(1,"
    ):
        make_regressor([Dense(1)]).fit(X_MANY, Y_MANY)
    with pytest.raises(ValueError, match=r"model: expected outputs of shape \(1,\)"):
        make_regressor([Dense(2)]).fit(X, Y)


@pytest.mark.parametrize("loss", ["softmax_cross_entropy", "binary_cross_entropy"])
def test_classification_losses_are_refused(loss):
    with pytest.raises(ValueError, match="loss: expected one for numbers, got"):
        make_regressor(loss=loss).fit(X, Y > 14)


def test_negative_counts_are_refused_by_the_loss():
    with pytest.raises(ValueError, match="y: "):
        make_regressor(loss="poisson").fit(X, -Y)


def test_predict_before_fit_is_refused():
    with pytest.raises(NotFittedError):
        make_regressor().predict(X)
    with pytest.raises(AttributeError):
        _ = make_regressor().predict_proba
