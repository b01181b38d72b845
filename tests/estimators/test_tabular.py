"""TabularClassifier and TabularRegressor: folds, weights, bits, files."""

import copy
import pickle

import numpy as np
import pytest
from c_export.compiled import Compiled, same_bits
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import minidl
from minidl.c_export import HAS_FMA
from minidl.estimators import TabularClassifier, TabularRegressor

pd = pytest.importorskip("pandas")

RNG = np.random.default_rng(0)
N = 300
X = pd.DataFrame(
    {
        "a": RNG.normal(size=N),
        "b": np.where(RNG.random(N) < 0.2, np.nan, RNG.exponential(size=N)),
        "kind": RNG.choice(["x", "y", "z", None], N),
        "zero": np.where(RNG.random(N) < 0.9, 0, RNG.normal(size=N)),
    }
)
SIGNAL = X["a"].to_numpy() + 2 * (X["kind"] == "x").to_numpy() + X["b"].isna().to_numpy()
CLASSES = np.array(["low", "middle", "high"])[np.digitize(SIGNAL, [0, 1.5])]
NUMBERS = 1000 + 50 * SIGNAL


def few(cls=TabularClassifier, **options):
    return cls(**{"epochs": 4, "n_folds": 3, "hidden_layer_sizes": (16, 8), "random_state": 0, **options})


def outputs(fitted, table=X):
    return fitted.predict_proba(table) if hasattr(fitted, "predict_proba") else fitted.predict(table)


BOTH = [(TabularClassifier, CLASSES), (TabularRegressor, NUMBERS)]


# ---- learning


@pytest.mark.parametrize(("share", "monitor"), [(0.05, "val_loss"), (0.2, "val_accuracy")])
def test_a_rare_class_is_learned_by_the_loss(share, monitor):
    """The accuracy of a constant answer is 0.95, and the best one of an epoch that has learned nothing."""
    y = SIGNAL + RNG.normal(size=N) > np.quantile(SIGNAL, 1 - share)
    fitted = few().fit(X, y, sample_weight=np.where(np.arange(N) < 5, 0.0, 1.0))
    assert {net.callbacks_[1].monitor for net in fitted.estimators_} == {monitor}


@pytest.mark.parametrize(("cls", "y"), BOTH)
def test_it_learns_and_says_how_well(cls, y):
    fitted = cls(random_state=0, epochs=20).fit(X[:200], y[:200])
    assert fitted.score(X[200:], y[200:]) > 0.8
    assert abs(fitted.oof_score_ - fitted.score(X[200:], y[200:])) < 0.15
    assert len(fitted.estimators_) == 4 and not hasattr(fitted, "partial_fit")


@pytest.mark.parametrize(("cls", "y"), BOTH)
def test_out_of_fold_predictions_are_those_of_nets_that_have_not_seen_the_rows(cls, y):
    """Each row is held out once: what is learned by heart of its noise is not predicted."""
    noisy = np.where(RNG.random(N) < 0.3, RNG.permutation(y), y)
    fitted = few(cls, epochs=60, hidden_layer_sizes=(64, 64)).fit(X, noisy)
    assert fitted.score(X, noisy) > fitted.oof_score_ + 0.05
    assert fitted.oof_prediction_.shape == outputs(fitted).shape and np.isfinite(fitted.oof_prediction_).all()


def test_a_fold_has_at_least_two_rows():
    assert len(few(n_folds=40).fit(X[:6], [0, 1] * 3).estimators_) == 3
    fitted = few().fit(X[:3], [0, 1, 0])
    assert len(fitted.estimators_) == 1 and fitted.oof_score_ is None and fitted.oof_prediction_ is None
    with pytest.raises(ValueError, match="X: expected a fit of at least four rows"):
        fitted.permutation_importances(X[:3], [0, 1, 0])


def test_the_only_row_of_a_class_is_trained_on_in_each_fold():
    y = np.array([*CLASSES[:-1], "unique"])
    fitted = few().fit(X, y)
    assert fitted.predict_proba(X).shape == (N, 4)
    np.testing.assert_array_equal(fitted.predict_log_proba(X), np.log(fitted.predict_proba(X)))
    assert np.isnan(fitted.oof_prediction_[-1]).all() and np.isfinite(fitted.oof_prediction_[:-1]).all()


def test_labels_with_a_row_each_have_one_net():
    """No row may be held out."""
    fitted = few().fit(X[:20], np.arange(20))
    assert len(fitted.estimators_) == 1 and fitted.predict(X[:20]).shape == (20,)
    assert len(few(n_folds=4).fit(X[:6], [0, 0, 1, 2, 3, 4]).estimators_) == 1


def test_labels_that_no_file_can_hold():
    fitted = few().fit(X, np.where(SIGNAL > 0, "a\0c", "b"))
    assert list(fitted.classes_) == ["a\0c", "b"] and not fitted.model_.classes


@pytest.mark.parametrize(("cls", "y"), BOTH)
def test_predictions_are_the_mean_over_folds(cls, y):
    fitted = few(cls).fit(X, y)
    inputs = fitted.encode(X)
    nets = [net.trainer_.predict_proba(inputs) if cls is TabularClassifier else net.model_.predict(inputs)[:, 0]
            for net in fitted.estimators_]  # fmt: skip
    limits = (y.min(), y.max()) if cls is TabularRegressor else (0, 1)
    np.testing.assert_allclose(outputs(fitted), np.clip(np.mean(nets, axis=0), *limits), rtol=1e-5, atol=1e-6)


def test_regressions_stay_in_the_range_of_each_target():
    y = np.column_stack([NUMBERS, -SIGNAL, np.full(N, 7.0)])
    fitted = few(TabularRegressor).fit(X, y)
    wild = X.assign(a=1e9 * X["a"], zero=-1e9)
    for table in (X, wild):
        predicted = fitted.predict(table)
        assert predicted.shape == (N, 3)
        assert (predicted >= y.min(axis=0).astype("f4")).all() and (predicted <= y.max(axis=0).astype("f4")).all()
    assert (fitted.predict(X)[:, 2] == 7).all()


@pytest.mark.parametrize("offset", [0.0, 1.7e9, 1e12])
@pytest.mark.parametrize("scale", [1e-50, 1.0, 1e100])
def test_targets_of_any_size(offset, scale):
    """float32 could not tell them from each other, or hold them."""
    y = (offset + SIGNAL) * scale
    fitted = few(TabularRegressor, epochs=30, hidden_layer_sizes=(32,)).fit(X, y)
    assert fitted.score(X, y) > 0.7 and (fitted.predict(X) >= y.min() - abs(1e-6 * y.min())).all()


def test_boolean_targets_of_a_regressor():
    assert few(TabularRegressor).fit(X, SIGNAL > 0).predict(X).dtype == np.float64


def test_several_labels():
    y = np.column_stack([SIGNAL > 0, SIGNAL > 1, X["zero"] != 0]).astype(int)
    fitted = few(epochs=30).fit(X, y)
    assert fitted.predict(X).shape == (N, 3) and fitted.score(X, y) > 0.6
    np.testing.assert_array_equal(fitted.predict(X), fitted.predict_proba(X) > 0.5)


@pytest.mark.parametrize(("cls", "y"), BOTH)
def test_columns_that_matter_have_importance(cls, y):
    table = X.assign(same=1.0)
    fitted = few(cls, epochs=30).fit(table, y)
    importances = dict(zip(table.columns, fitted.permutation_importances(table, y, n_repeats=3), strict=True))
    assert min(importances["a"], importances["kind"]) > 0.1 > 0.05 > abs(importances["zero"])
    assert importances["same"] == 0
    for wrong in ((X[:-1], y), (X, y[:-1])):
        with pytest.raises(minidl.InputError):
            fitted.permutation_importances(*wrong)
    with pytest.raises(ValueError, match="X, y: expected the 300 rows of the fit, got 299 and y"):
        fitted.permutation_importances(table[:-1], y[:-1])


def test_class_weights_move_the_decision():
    rare = np.where(SIGNAL > 2, "rare", "common")
    balanced, plain = (few(class_weight=weight, epochs=10).fit(X, rare) for weight in ("balanced", None))
    assert (balanced.predict(X) == "rare").sum() > (plain.predict(X) == "rare").sum()


# ---- rows and weights


@pytest.mark.parametrize(("cls", "y"), BOTH)
def test_rows_of_weight_0_are_absent(cls, y):
    weights = np.r_[np.ones(200), np.zeros(100)]
    other = X.copy()
    other.loc[200:, "kind"], other.loc[200:, "a"] = "unseen", 1e6
    dirty = np.r_[y[:200], np.full(100, y[0])]
    a, b, c = (few(cls).fit(table, t, w) for table, t, w in [
        (X, y, weights), (other, dirty, weights), (X[:200], y[:200], np.ones(200))])  # fmt: skip
    np.testing.assert_array_equal(outputs(a), outputs(b))
    np.testing.assert_allclose(outputs(a), outputs(c), rtol=1e-5)
    assert np.isnan(a.oof_prediction_[200:]).all() and a.oof_score_ == pytest.approx(c.oof_score_)


@pytest.mark.parametrize(("cls", "y"), BOTH)
def test_weights_count(cls, y):
    weighted = few(cls).fit(X, y, RNG.exponential(size=N))
    assert not np.array_equal(outputs(weighted), outputs(few(cls).fit(X, y)))


def test_a_refused_fit_changes_nothing():
    fitted = few().fit(X, CLASSES)
    before = dict(vars(fitted))
    for table, y in [(X.assign(a=np.inf), CLASSES), (X, CLASSES[:-1]), (X, np.full(N, "same"))]:
        with pytest.raises(minidl.InputError):
            fitted.fit(table, y)
        assert vars(fitted) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_folds": 1}, "n_folds"),
        ({"n_folds": 257}, "n_folds"),
        ({"epochs": 0}, "epochs"),
        ({"time_limit": 0}, "time_limit"),
        ({"hidden_layer_sizes": ()}, "hidden_layer_sizes"),
        ({"hidden_layer_sizes": (0,)}, "hidden_layer_sizes"),
        ({"hidden_layer_sizes": 7}, "hidden_layer_sizes"),
        ({"dropout": 1.5}, "dropout"),
        ({"lr": -1}, "lr"),
        ({"n_jobs": 0}, "n_jobs"),
        ({"class_weight": "heavy"}, "class_weight"),
    ],
)
def test_invalid_arguments_are_named(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        few(**options).fit(X, CLASSES)


def test_partial_fit_is_refused_by_name():
    with pytest.raises(AttributeError, match=r"has no 'partial_fit'; use SequentialClassifier"):
        few().partial_fit(X, CLASSES)


# ---- bits


@pytest.mark.parametrize(("cls", "y"), BOTH)
def test_bits_are_those_of_any_number_of_jobs_copies_and_pickles(cls, y):
    fitted = few(cls, n_jobs=1).fit(X, y)
    expected = outputs(fitted)
    for jobs in (2, 3):
        other = few(cls, n_jobs=jobs).fit(X, y)
        np.testing.assert_array_equal(outputs(other), expected)
        np.testing.assert_array_equal(other.oof_prediction_, fitted.oof_prediction_)
    for copied in (copy.deepcopy(fitted), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(outputs(copied), expected)
        np.testing.assert_array_equal(outputs(clone(copied).fit(X, y)), expected)


def test_a_time_limit_ends_with_the_best_epoch_so_far():
    fitted = few(epochs=10**6, time_limit=0.01, n_jobs=1).fit(X, CLASSES)
    assert all(1 <= net.n_iter_ < 10**6 for net in fitted.estimators_)
    best = [max(net.trainer_.history["val_accuracy"]) for net in fitted.estimators_]
    assert fitted.oof_score_ == pytest.approx(np.mean(best), abs=1e-6)  # folds of 100 rows each


# ---- with scikit-learn


def test_pipelines_and_searches():
    pipeline = make_pipeline(FunctionTransformer(lambda frame: frame.drop(columns="zero")), few())
    assert cross_val_score(pipeline, X, CLASSES, cv=2).shape == (2,)
    search = GridSearchCV(few(), {"dropout": [0.0, 0.2]}, cv=2).fit(X, CLASSES)
    assert search.best_params_["dropout"] in (0.0, 0.2)
    assert list(search.best_estimator_.feature_names_in_) == list(X.columns)


# ---- files


LATER = X.assign(kind=["x", "unseen", None] * 100, a=np.where(RNG.random(N) < 0.1, np.nan, 5 * X["a"]))


@pytest.mark.skipif(not HAS_FMA, reason="the bits of predict differ without fused multiply-add")
@pytest.mark.parametrize(("cls", "y"), BOTH)
def test_a_c_file_has_the_bits(cls, y, tmp_path):
    """Also of missing values and of those that the fit has not seen; its comment says what the inputs are."""
    fitted = few(cls).fit(X, y)
    compiled = Compiled(fitted.model_, tmp_path)
    for table in (X, LATER):
        scores = compiled.predict(fitted.encode(table))
        assert same_bits(scores if cls is TabularClassifier else scores[:, 0], outputs(fitted, table).astype("f4"))
    minidl.export_c(fitted, tmp_path / "own.c")
    source = (tmp_path / "own.c").read_text("utf-8")
    assert '"kind"' in source and '"codes"' in source


@pytest.mark.oracle("onnx")
def test_probabilities_in_onnx_files_are_those_of_predict_proba(tmp_path):
    """With softmax=True, too: they have been through one."""
    fitted = few(epochs=10).fit(X, CLASSES)
    for options in ({}, {"softmax": True}):
        minidl.onnx.export(fitted, tmp_path / "m.onnx", **options)
        imported = minidl.onnx.import_model(tmp_path / "m.onnx").predict(fitted.encode(X))
        np.testing.assert_allclose(imported, fitted.predict_proba(X), rtol=1e-6)


def test_softmax_of_files(tmp_path):
    fitted = few(epochs=10).fit(X, CLASSES)
    for name, options in (("scores", {}), ("softmax", {"softmax": True})):
        minidl.export_c(fitted, tmp_path / f"{name}.c", "m", **options)
    calls = [(tmp_path / f"{name}.c").read_text("utf-8").count("  softmax(") for name in ("scores", "softmax")]
    assert calls[0] == calls[1] == 3  # one for each fold
    regressor = few(TabularRegressor).fit(X, np.column_stack([NUMBERS, SIGNAL]))
    with pytest.raises(ValueError, match="softmax: expected a classifier, got TabularRegressor"):
        minidl.export_c(regressor, tmp_path / "m.c", softmax=True)


@pytest.mark.parametrize(("cls", "y"), BOTH)
def test_model_files_have_the_bits(cls, y, tmp_path):
    fitted = few(cls).fit(X, y)
    fitted.model_.save(tmp_path / "m.safetensors")
    loaded = minidl.Sequential.load(tmp_path / "m.safetensors")
    assert same_bits(loaded.predict(fitted.encode(LATER)), fitted.model_.predict(fitted.encode(LATER)))
    assert loaded.metadata["inputs"][-1]["codes"] == ["x", "y", "z"]
    assert list(loaded.classes or ()) == (list(fitted.classes_) if cls is TabularClassifier else [])


@pytest.mark.oracle
@pytest.mark.parametrize(("cls", "y"), BOTH)
def test_an_onnx_file_has_the_values(cls, y, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    fitted = few(cls).fit(X, y)
    minidl.onnx.export(fitted, tmp_path / "m.onnx")
    session = runtime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    for table in (X, LATER):
        inputs = fitted.encode(table)
        (scores,) = session.run(None, {session.get_inputs()[0].name: inputs})
        np.testing.assert_allclose(scores, fitted.model_.predict(inputs), rtol=1e-5, atol=1e-6)
    restored = minidl.onnx.import_model(tmp_path / "m.onnx")
    assert same_bits(restored.predict(inputs), fitted.model_.predict(inputs))
