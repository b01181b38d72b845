"""The estimators in scikit-learn: pipelines, ensembles, meta-estimators, inspection, metadata, display."""

import numpy as np
import pytest
import sklearn
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.datasets import load_iris, make_friedman1, make_multilabel_classification
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    BaggingClassifier,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.feature_selection import RFE, SequentialFeatureSelector
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import ConfusionMatrixDisplay, RocCurveDisplay, accuracy_score
from sklearn.model_selection import (
    HalvingGridSearchCV,
    StratifiedKFold,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    learning_curve,
    validation_curve,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier, MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier

from minidl.estimators import SequentialClassifier, SequentialRegressor
from minidl.layers import Dense, ReLU

RAW, Y = load_iris(return_X_y=True)
X = StandardScaler().fit_transform(RAW)
NAMES = np.array(["setosa", "versicolor", "virginica"])[Y]
RX, RY = make_friedman1(150, 6, random_state=0)
RX, RY = StandardScaler().fit_transform(RX), (RY - RY.mean()) / RY.std()


def make_classifier(**options):
    return flexible(model=[Dense(10), ReLU(), Dense(3)], **options)


def flexible(model=None, **options):
    """Returns a model for any number of classes."""
    return SequentialClassifier(model or hidden, **{"epochs": 60, "lr": 0.05, "random_state": 0, **options})


def make_regressor(**options):
    return SequentialRegressor(hidden, **{"epochs": 60, "lr": 0.02, "random_state": 0, **options})


def hidden(outputs):
    return [Dense(10), ReLU(), Dense(outputs)]


# ---- as estimators
def test_estimator_types_and_tags():
    assert is_classifier(make_classifier()) and not is_regressor(make_classifier())
    assert is_regressor(make_regressor()) and not is_classifier(make_regressor())
    tags = make_classifier().__sklearn_tags__()
    assert tags.input_tags.sparse and tags.target_tags.required and tags.classifier_tags.multi_label
    assert tags.classifier_tags.multi_class and not tags.input_tags.allow_nan
    assert make_regressor().__sklearn_tags__().target_tags.multi_output


def test_parameters():
    params = make_classifier(epochs=7).get_params()
    assert params["epochs"] == 7 and params["lr"] == 0.05 and params["optimizer"] == "adam"
    assert set(params) - set(make_regressor().get_params()) == {"class_weight"}
    changed = make_classifier().set_params(epochs=3, optimizer="sgd")
    assert changed.get_params()["epochs"] == 3 and changed.fit(X, Y).n_iter_ == 3
    with pytest.raises(ValueError, match="momentum"):
        make_classifier().set_params(momentum=0.9)


def test_clones_are_independent():
    fitted = make_classifier().fit(X, Y)
    again = clone(fitted)
    assert not hasattr(again, "trainer_") and again.model[0] is not fitted.model[0]
    np.testing.assert_array_equal(again.fit(X, Y).predict_proba(X), fitted.predict_proba(X))


def test_repr_and_html():
    assert repr(SequentialClassifier([Dense(3)], epochs=5)) == "SequentialClassifier(epochs=5, model=[Dense(units=3)])"
    assert repr(SequentialRegressor()) == "SequentialRegressor()"
    for estimator in (
        make_classifier(),
        make_classifier().fit(X, Y),
        make_pipeline(StandardScaler(), make_classifier()),
    ):
        assert "SequentialClassifier" in estimator._repr_html_() and "Dense(units=10)" in estimator._repr_html_()
        assert "SequentialClassifier" in repr(estimator)


# ---- pipelines
def test_in_a_pipeline():
    pipeline = make_pipeline(MinMaxScaler(), PCA(3), make_classifier())
    assert pipeline.fit(RAW, NAMES).score(RAW, NAMES) > 0.9
    assert pipeline.classes_.tolist() == sorted(set(NAMES)) and pipeline.n_features_in_ == 4
    changed = clone(pipeline).set_params(sequentialclassifier__epochs=1)
    assert changed.fit(RAW, NAMES)[-1].n_iter_ == 1
    scaled = pipeline[:-1].transform(RAW)
    np.testing.assert_array_equal(pipeline.predict_log_proba(RAW), pipeline[-1].predict_log_proba(scaled))


def test_after_encoded_columns_and_sparse_text():
    words = ["spam", "ham", "eggs"]
    texts = [" ".join(np.random.default_rng(i).choice(words, 6)) for i in range(60)]
    y = [text.count("spam") > 2 for text in texts]
    pipeline = make_pipeline(CountVectorizer(), SequentialClassifier(hidden, epochs=100, lr=0.05, random_state=0))
    assert pipeline.fit(texts, y).score(texts, y) == 1
    table = np.stack([np.array(words)[Y], RAW[:, 2].astype(str)], axis=1).astype(object)
    table[:, 1] = RAW[:, 2]
    columns = ColumnTransformer([("words", OneHotEncoder(), [0]), ("numbers", StandardScaler(), [1])])
    assert make_pipeline(columns, make_classifier()).fit(table, Y).score(table, Y) == 1


# ---- model selection
def test_cross_validation():
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    scoring = ["accuracy", "neg_log_loss"]
    result = cross_validate(make_classifier(), X, NAMES, cv=folds, return_estimator=True, scoring=scoring)
    for fitted, (train, test), accuracy in zip(
        result["estimator"], folds.split(X, NAMES), result["test_accuracy"], strict=True
    ):
        alone = make_classifier().fit(X[train], NAMES[train])
        np.testing.assert_array_equal(fitted.predict_proba(X), alone.predict_proba(X))
        assert accuracy == accuracy_score(NAMES[test], alone.predict(X[test])) > 0.9
    assert cross_val_score(make_regressor(), RX, RY, cv=3).min() > 0.5
    p = cross_val_predict(make_classifier(), X, NAMES, cv=folds, method="predict_proba")
    assert accuracy_score(Y, p.argmax(axis=1)) > 0.9


@pytest.mark.parametrize("jobs", [1, 2])
def test_folds_in_other_processes_give_the_same_scores(jobs):
    result = cross_validate(make_classifier(), X, Y, cv=3, n_jobs=jobs, return_estimator=True)
    train, _ = next(StratifiedKFold(3).split(X, Y))
    expected = make_classifier().fit(X[train], Y[train])
    np.testing.assert_array_equal(result["estimator"][0].predict_proba(X), expected.predict_proba(X))


def test_curves():
    options = {"cv": 3, "train_sizes": [0.3, 1.0], "shuffle": True, "random_state": 0}
    sizes, train, test = learning_curve(make_classifier(), X, Y, **options)
    assert sizes.tolist() == [30, 100] and train.shape == test.shape == (2, 3) and test[1].min() > 0.85
    assert np.isfinite(learning_curve(make_classifier(), X, Y, **options, exploit_incremental_learning=True)[2]).all()
    _, scores = validation_curve(make_classifier(), X, Y, param_name="epochs", param_range=[1, 60], cv=3)
    assert scores[1].mean() > scores[0].mean()


def test_halving_search_with_epochs_as_the_resource():
    search = HalvingGridSearchCV(
        make_classifier(),
        {"lr": [1e-6, 0.05]},
        resource="epochs",
        max_resources=40,
        min_resources=10,
        cv=3,
        random_state=0,
    ).fit(X, Y)
    assert search.best_params_["lr"] == 0.05 and search.best_estimator_.n_iter_ <= 40


# ---- ensembles
def test_ensembles_of_classifiers():
    other = LogisticRegression()
    nets = [("net", make_classifier()), ("line", other)]
    voting = VotingClassifier(nets, voting="soft").fit(X, NAMES)
    expected = (make_classifier().fit(X, Y).predict_proba(X) + clone(other).fit(X, Y).predict_proba(X)) / 2
    np.testing.assert_allclose(voting.predict_proba(X), expected, 1e-12)
    for ensemble in (
        StackingClassifier(nets, cv=3),
        AdaBoostClassifier(make_classifier(), n_estimators=3, random_state=0),
        CalibratedClassifierCV(make_classifier(), cv=3),
        CalibratedClassifierCV(make_classifier(), cv=3, method="isotonic", ensemble=False),
        OneVsRestClassifier(flexible()),
    ):
        assert ensemble.fit(X, NAMES).score(X, NAMES) > 0.9, ensemble
        p = ensemble.predict_proba(X)
        assert p.shape == (150, 3) and np.allclose(p.sum(axis=1), 1, atol=1e-5)


def test_semi_supervised_labels():
    some = np.where(np.arange(150) % 3 == 0, Y, -1)
    assert SelfTrainingClassifier(make_classifier()).fit(X, some).score(X, Y) > 0.9


def test_bagging_in_two_processes_equals_one():
    one, two = (BaggingClassifier(make_classifier(), 4, random_state=0, n_jobs=n).fit(X, Y) for n in (1, 2))
    for first, second in zip(one.estimators_, two.estimators_, strict=True):
        np.testing.assert_array_equal(first.predict_proba(X), second.predict_proba(X))
    assert len({fitted.random_state for fitted in one.estimators_}) == 4  # scikit-learn gives each its own


def test_ensembles_of_regressors():
    nets = [("net", make_regressor()), ("line", Ridge())]
    for ensemble in (
        VotingRegressor(nets),
        StackingRegressor(nets, cv=3),
        AdaBoostRegressor(make_regressor(), n_estimators=3, random_state=0),
    ):
        assert ensemble.fit(RX, RY).score(RX, RY) > 0.5, ensemble


def test_targets_are_scaled_and_scaled_back():
    far = 1e4 + 1e3 * RY
    scaled = TransformedTargetRegressor(make_regressor(), transformer=StandardScaler()).fit(RX, far)
    assert scaled.score(RX, far) > 0.8
    direct = make_regressor().fit(RX, StandardScaler().fit_transform(far[:, np.newaxis])[:, 0])
    np.testing.assert_allclose(scaled.predict(RX), direct.predict(RX) * far.std() + far.mean(), 1e-12)


def test_many_outputs():
    both = np.stack([RY, -RY], axis=1)
    each = MultiOutputRegressor(make_regressor()).fit(RX, both)
    np.testing.assert_array_equal(each.predict(RX)[:, 1], make_regressor().fit(RX, -RY).predict(RX))
    inputs, labels = make_multilabel_classification(100, 6, n_classes=3, random_state=0)
    for many in (MultiOutputClassifier(flexible()), ClassifierChain(flexible(), random_state=0), flexible()):
        assert many.fit(inputs, labels).predict(inputs).shape == (100, 3)
    by_parts = MultiOutputClassifier(flexible()).partial_fit(inputs, labels, classes=[np.array([0, 1])] * 3)
    assert by_parts.predict(inputs).shape == (100, 3)


# ---- inspection, selection, display
def test_inspection():
    fitted = make_regressor().fit(RX, RY)
    importance = permutation_importance(fitted, RX, RY, n_repeats=3, random_state=0).importances_mean
    assert importance[:5].min() > importance[5]  # the last feature carries no information
    assert partial_dependence(fitted, RX, [3])["average"].shape[0] == 1
    slopes = np.diff(partial_dependence(fitted, RX, [3])["average"][0])
    assert (slopes > 0).mean() > 0.9  # Friedman's function increases with it


def test_feature_selection():
    with pytest.raises((ValueError, AttributeError), match=r"coef_|feature_importances_"):
        RFE(make_classifier(), n_features_to_select=2).fit(X, Y)
    by_permutation = RFE(
        make_regressor(epochs=20),
        n_features_to_select=5,
        importance_getter=lambda net: permutation_importance(net, RX[:, : net.n_features_in_], RY).importances_mean,
    )
    assert by_permutation.fit(RX, RY).n_features_ == 5
    chosen = SequentialFeatureSelector(make_classifier(epochs=20), n_features_to_select=1, cv=2).fit(X, Y).get_support()
    assert chosen.sum() == 1 and chosen[2:].any()  # of the petals


def test_displays():
    pytest.importorskip("matplotlib").use("agg")
    import matplotlib.pyplot as plt

    fitted = make_classifier().fit(X, NAMES)
    matrix = ConfusionMatrixDisplay.from_estimator(fitted, X, NAMES).confusion_matrix
    assert matrix.sum() == 150 and np.trace(matrix) == round(150 * fitted.score(X, NAMES))
    curve = RocCurveDisplay.from_estimator(flexible().fit(X, NAMES == "virginica"), X, NAMES == "virginica")
    assert curve.roc_auc > 0.95
    plt.close("all")


# ---- metadata
def test_metadata_is_routed_where_requested():
    weights = np.where(Y == 1, 0.0, 1.0)
    with sklearn.config_context(enable_metadata_routing=True):
        asking = flexible().set_fit_request(sample_weight=True).set_score_request(sample_weight=False)
        pipeline = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), asking)
        fitted = pipeline.fit(X, Y, sample_weight=weights)
        assert set(fitted.predict(X)) <= {0, 2} and fitted[-1].classes_.tolist() == [0, 2]
        result = cross_validate(asking, X, Y, params={"sample_weight": weights}, cv=3, return_estimator=True)
        assert all(one.classes_.tolist() == [0, 2] for one in result["estimator"])
        not_asking = flexible().set_fit_request(sample_weight=False)
        result = cross_validate(not_asking, X, Y, params={}, cv=3, return_estimator=True)
        assert all(one.classes_.tolist() == [0, 1, 2] for one in result["estimator"])
        flexible().set_partial_fit_request(classes=True, sample_weight=True)
        with pytest.raises(sklearn.exceptions.UnsetMetadataPassedError):
            cross_validate(flexible(), X, Y, params={"sample_weight": weights}, cv=3)


@pytest.mark.parametrize(
    "estimator", [make_classifier(epochs=1), make_regressor(epochs=1)], ids=["classifier", "regressor"]
)
def test_a_data_frame_works_everywhere(estimator):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcd"))
    pipeline = make_pipeline(StandardScaler(), estimator).set_output(transform="pandas")
    assert pipeline.fit(frame, pandas.Series(Y)).feature_names_in_.tolist() == list("abcd")
    assert pipeline[-1].feature_names_in_.tolist() == list("abcd")
    assert len(cross_val_score(pipeline, frame, pandas.Series(Y), cv=3)) == 3
    features = make_pipeline(StandardScaler(), clone(estimator)).set_output(transform="pandas").fit(frame, Y)
    assert features.transform(frame).columns[0].endswith("0") and features.transform(frame).shape == (150, 10)
