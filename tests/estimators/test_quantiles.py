"""Quantiles: SequentialRegressor with a Pinball loss, TabularRegressor with `quantiles`."""

import copy
import pickle
import warnings

import numpy as np
import pytest
from c_export.compiled import Compiled, same_bits
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import d2_pinball_score
from sklearn.utils.estimator_checks import check_estimator

import minidl
from minidl.c_export import HAS_FMA
from minidl.estimators import SequentialRegressor, TabularRegressor
from minidl.estimators.stopping import D2OfQuantiles
from minidl.layers import Dense
from minidl.losses import Pinball

RNG = np.random.default_rng(0)
QUANTILES = [0.1, 0.5, 0.9]
N = 1200
X = RNG.uniform(-2, 2, (N, 2))
Y = 1000 + 50 * (X[:, 0] + (0.2 + np.abs(X[:, 0])) * RNG.standard_normal(N))  # its spread depends on X
MANY = np.linspace(0.02, 0.98, 33).tolist()  # of nets that are hardly trained: they cross


def few(quantiles=QUANTILES, **options):
    return TabularRegressor(quantiles=quantiles, **{"epochs": 2, "n_folds": 2, "hidden_layer_sizes": (16,),
                            "random_state": 0, **options})  # fmt: skip


def net(quantiles=QUANTILES, **options):
    return SequentialRegressor(loss=Pinball(quantiles), **{"epochs": 20, "lr": 0.02, "random_state": 0, **options})


def d2(y, predicted, quantiles, weights=None):
    columns = zip(predicted.T, quantiles, strict=True)
    return np.mean([d2_pinball_score(y, column, alpha=q, sample_weight=weights) for column, q in columns])


# ---- what is predicted
@pytest.mark.parametrize("estimator", [net(epochs=60), few(epochs=30, hidden_layer_sizes=(64, 64))])
def test_quantiles_cover_their_share_of_other_rows(estimator):
    """About 80 %, everywhere: where the targets spread more, the range is wider."""
    low, middle, high = estimator.fit(X[:800], Y[:800]).predict(X[800:]).T
    held, narrow = Y[800:], np.abs(X[800:, 0]) < 0.5
    inside = (low <= held) & (held <= high)
    assert 0.75 < inside.mean() < 0.88
    for rows in (narrow, ~narrow):
        assert 0.7 < inside[rows].mean() < 0.95
        assert 0.4 < (held < middle)[rows].mean() < 0.6
    assert (high - low)[~narrow].mean() > 2 * (high - low)[narrow].mean()


@pytest.mark.parametrize("make", [net, few])
@pytest.mark.parametrize("given, shape", [(0.9, ()), ([0.9], (1,)), (np.array([0.1, 0.9]), (2,)), (MANY, (33,))])
def test_predictions_have_a_column_for_each_quantile(make, given, shape):
    fitted = make(given).fit(X[:99], Y[:99])
    predicted = fitted.predict(X[99:150])
    assert predicted.shape == (51, *shape)
    weights, levels = RNG.random(51), np.atleast_1d(given)
    for own in (None, weights):
        expected = d2(Y[99:150], predicted.reshape(51, -1), levels, own)
        assert fitted.score(X[99:150], Y[99:150], own) == pytest.approx(expected)
    if make is few:
        assert fitted.oof_prediction_.shape == (99, *shape)
        assert fitted.oof_score_ == pytest.approx(d2(Y[:99], fitted.oof_prediction_.reshape(99, -1), levels))


def test_quantiles_of_a_table_do_not_cross_and_stay_in_the_range_of_targets():
    y = (Y > 1000).astype(float)  # of a range that nets which are hardly trained leave
    fitted = few(MANY).fit(X, y)
    inputs = fitted.encode(X)
    assert (np.diff(fitted.estimators_[0].model_.predict(inputs)) < 0).any()
    wild = np.concatenate([X, 1e6 * X])
    for predicted in (fitted.predict(wild), fitted.oof_prediction_):
        assert (np.diff(predicted) >= 0).all() and np.ptp(predicted) > 0
    assert fitted.predict(X).min() == 0 and fitted.predict(X).max() == 1 < fitted.oof_prediction_.max()
    assert (few().fit(X[:20], np.full(20, 7.0)).predict(X) == 7).all()


def test_one_quantile_as_a_number_is_a_net_of_one_output():
    assert few(0.9).fit(X, Y).model_.output_shape == few(None).fit(X, Y).model_.output_shape == (1,)
    assert (
        few(None).fit(X, Y).predict(X).tobytes() == few(None).set_params(quantiles=None).fit(X, Y).predict(X).tobytes()
    )


def test_rows_of_weight_0_are_absent():
    weights = np.r_[np.ones(800), np.zeros(400)]
    a, b = few().fit(X, Y, weights), few().fit(X, np.r_[Y[:800], np.full(400, -1e9)], weights)
    assert a.predict(X).tobytes() == b.predict(X).tobytes() and np.isnan(a.oof_prediction_[800:]).all()


def test_importances_time_limits_copies_and_clones():
    fitted = few(time_limit=100).fit(X, Y)
    importances = fitted.permutation_importances(X, Y)
    assert importances[0] > 0.2 > abs(importances[1])
    expected = fitted.predict(X)
    for same in (copy.deepcopy(fitted), pickle.loads(pickle.dumps(fitted)), clone(fitted).fit(X, Y)):
        assert same.predict(X).tobytes() == expected.tobytes() and same.score(X, Y) == fitted.score(X, Y)
    assert fitted.set_params(quantiles=None).score(X, Y) == same.score(X, Y)  # until the next fit


OF_ONE_COLUMN = {  # these expect predictions (n,)
    "check_regressors_train": "several quantiles",
    "check_estimator_sparse_array": "several quantiles",
    "check_estimator_sparse_matrix": "several quantiles",
}
OF_FOLDS = {"check_sample_weight_equivalence_on_dense_data": "a repeated row is in one fold, its copy in another one"}
TABLE = {"epochs": 100, "dropout": 0.0, "hidden_layer_sizes": (32,)}


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        (net(0.5), {}),
        (net(), OF_ONE_COLUMN),
        pytest.param(few(0.5, **TABLE), OF_FOLDS, marks=pytest.mark.slow),
        pytest.param(few(**TABLE), OF_FOLDS | OF_ONE_COLUMN, marks=pytest.mark.slow),
    ],
)
def test_scikit_learns_checks_pass(estimator, expected):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of column targets and of constant features: intended
        results = check_estimator(estimator, on_fail=None, expected_failed_checks=expected)
    assert {result["check_name"] for result in results if result["status"] == "failed"} == set()


# ---- epochs that are measured
def test_each_epoch_has_the_score():
    fitted = net(epochs=3).fit(X[:800], Y[:800], X_val=X[800:], y_val=Y[800:])
    assert fitted.validation_scores_[-1] == pytest.approx(fitted.score(X[800:], Y[800:]), abs=1e-6)
    assert "val_d2_pinball" in fitted.trainer_.history and "val_r2" not in fitted.trainer_.history
    best = net(epochs=30, early_stopping=True, n_iter_no_change=3).fit(X, Y)
    assert best.best_validation_score_ == max(best.validation_scores_) > 0.2


def test_the_score_of_an_epoch_is_that_of_scikit_learn():
    y = Y[:50]
    for t, scores in [(y, 1000 + 30 * RNG.standard_normal((50, 3))), (np.ones(50), np.ones((50, 3))),
                      (np.ones(50), np.column_stack([np.ones(50), y, y]))]:  # fmt: skip
        ours = D2OfQuantiles(QUANTILES)(np.repeat(t[:, np.newaxis], 3, axis=1), scores)
        assert ours == pytest.approx(d2(t, scores, QUANTILES))
    assert np.isnan(D2OfQuantiles(0.5)(y[:1, np.newaxis], np.ones((1, 1))))
    assert np.isnan(D2OfQuantiles(0.5)(y[:2, np.newaxis], np.array([[np.nan], [1]])))


# ---- what is refused
@pytest.mark.parametrize("make", [net, few])
def test_several_targets_are_refused_by_name(make):
    for quantiles in (QUANTILES, 0.5):
        with pytest.raises(
            minidl.InputError, match=r"^y: expected one number for each row with Pinball.*shape \(1200, 2\)"
        ):
            make(quantiles).fit(X, np.column_stack([Y, Y]))


@pytest.mark.parametrize("quantiles", [[], 1.0, [0.9, 0.1], "0.5", [0.1, None]])
def test_invalid_quantiles_change_nothing(quantiles):
    fitted = few().fit(X, Y)
    before = dict(vars(fitted.set_params(quantiles=quantiles)))
    with pytest.raises((TypeError, ValueError), match=r"^quantiles: expected"):
        fitted.fit(X, Y)
    assert vars(fitted) == before
    with pytest.raises(NotFittedError):
        few(quantiles).predict(X)


def test_a_model_with_other_outputs_is_refused():
    with pytest.raises(
        ValueError, match=r"model: expected outputs of shape \(3,\), one for each quantile of y, got \(2,"
    ):
        net(model=[Dense(2)]).fit(X, Y)


def test_a_warm_start_keeps_the_number_of_quantiles():
    fitted = net(warm_start=True, epochs=1).fit(X, Y)
    assert fitted.set_params(loss=Pinball([0.2, 0.5, 0.8])).fit(X, Y).predict(X).shape == (N, 3)
    for loss in ("auto", Pinball(0.5), Pinball([0.1, 0.9])):
        with pytest.raises(ValueError, match=r"loss: expected one for outputs of shape \(3,\), one for each quantile"):
            fitted.set_params(loss=loss).fit(X, Y)
    assert net(epochs=1).partial_fit(X, Y).partial_fit(X, Y).predict(X).shape == (N, 3)


# ---- files
@pytest.mark.skipif(not HAS_FMA, reason="the bits of predict differ without fused multiply-add")
@pytest.mark.parametrize("quantiles", [MANY, 0.9])
def test_a_c_file_has_the_bits(quantiles, tmp_path):
    fitted = few(quantiles).fit(X, Y)
    scores = Compiled(fitted.model_, tmp_path).predict(fitted.encode(X)).astype("f8")
    assert same_bits(scores.reshape(N, -1), fitted.predict(X).reshape(N, -1))
    assert fitted.model_.metadata["quantiles"] == np.atleast_1d(quantiles).tolist()
    assert "quantiles" not in few(None).fit(X, Y).model_.metadata


@pytest.mark.oracle("onnx")
def test_an_onnx_file_has_the_bits(tmp_path):
    fitted = few(MANY).fit(X, Y)
    minidl.onnx.export(fitted, tmp_path / "m.onnx")
    imported = minidl.onnx.import_model(tmp_path / "m.onnx").predict(fitted.encode(X))
    assert same_bits(imported.astype("f8"), fitted.predict(X))
