"""Ensembles over seeds: members are fits of their own, predictions are means, and scikit-learn's checks pass."""

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import check_estimator

from minidl.estimators import EnsembleClassifier, EnsembleRegressor, SequentialClassifier, SequentialRegressor
from minidl.layers import Dense, ReLU

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 4))
LABELS = np.array(["no", "yes", "some"])[(X[:, 0] > 0).astype(int) + (X[:, 1] > 1)]
NUMBERS = X[:, 0] ** 2 + X[:, 1]
NETS = {"epochs": 4, "batch_size": 16, "lr": 0.02}


def small_net(outputs):
    return [Dense(16), ReLU(), Dense(outputs)]


def classifier(**options):
    return EnsembleClassifier(SequentialClassifier(small_net, **NETS), **{"n_estimators": 3, **options})


def regressor(**options):
    return EnsembleRegressor(SequentialRegressor(small_net, **NETS), **{"n_estimators": 3, **options})


@pytest.mark.parametrize("make", [EnsembleClassifier, EnsembleRegressor])
def test_scikit_learns_checks_pass(make):
    net = SequentialClassifier if make is EnsembleClassifier else SequentialRegressor
    member = net(small_net, epochs=15, batch_size=32, lr=0.05)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of column targets and of constant features: intended
        results = check_estimator(make(member, n_estimators=2), on_fail=None)
    failed = [f"{r['check_name']}: {r['exception']!r}" for r in results if r["status"] not in ("passed", "skipped")]
    assert failed == [] and len(results) > 50  # their number grows with scikit-learn


@pytest.mark.parametrize("weights", [None, np.linspace(0, 2, 80)])
@pytest.mark.parametrize(
    ("make", "y", "method"), [(classifier, LABELS, "predict_proba"), (regressor, NUMBERS, "predict")]
)
def test_members_are_fits_of_their_own(make, y, method, weights):
    ensemble = make(random_state=3, n_jobs=2).fit(X, y, weights)
    seeds = [member.random_state for member in ensemble.estimators_]
    assert len(set(seeds)) == 3
    alone = [clone(ensemble.estimator).set_params(random_state=seed).fit(X, y, weights) for seed in seeds]
    of_members = np.array([getattr(member, method)(X) for member in alone])
    assert np.array_equal([getattr(member, method)(X) for member in ensemble.estimators_], of_members)
    mean, deviation = getattr(ensemble, method)(X, return_std=True)
    assert np.allclose(mean, sum(of_members) / 3) and np.array_equal(mean, getattr(ensemble, method)(X))
    assert np.allclose(deviation, np.sqrt(sum((one - mean) ** 2 for one in of_members) / 3))


def test_the_same_seed_gives_the_same_bits():
    first, again, other = (classifier(random_state=seed).fit(X, LABELS).predict_proba(X) for seed in (1, 1, 2))
    assert first.tobytes() == again.tobytes() != other.tobytes()


def test_labels_are_those_of_the_mean():
    ensemble = classifier(random_state=0).fit(X, LABELS)
    assert ensemble.classes_.tolist() == ["no", "some", "yes"]
    assert (ensemble.predict(X) == ensemble.classes_[ensemble.predict_proba(X).argmax(axis=1)]).all()
    assert ensemble.score(X, LABELS) == (ensemble.predict(X) == LABELS).mean()


def test_multilabel_targets():
    ensemble = classifier(random_state=0).fit(X, X[:, :2] > 0)
    labels = ensemble.predict(X)
    assert labels.shape == (80, 2) and np.array_equal(labels, ensemble.predict_proba(X) > 0.5)


def test_several_targets():
    mean, deviation = regressor(random_state=0).fit(X, X[:, :2]).predict(X, return_std=True)
    assert mean.shape == deviation.shape == (80, 2)


def test_pipelines_and_pickles():
    ensemble = EnsembleClassifier(make_pipeline(StandardScaler(), SequentialClassifier(**NETS)), random_state=0)
    ensemble.fit(100 * X, LABELS)
    seeds = {member[-1].random_state for member in ensemble.estimators_}
    assert len(seeds) == 5 and ensemble.n_features_in_ == 4
    again = pickle.loads(pickle.dumps(ensemble))
    assert again.predict_proba(100 * X).tobytes() == ensemble.predict_proba(100 * X).tobytes()


def test_errors_are_those_of_a_member():
    with pytest.raises(ValueError, match="NaN"):
        regressor().fit(np.full((5, 2), np.nan), np.zeros(5))
    with pytest.raises(ValueError, match="n_estimators: expected"):
        regressor(n_estimators=0).fit(X, NUMBERS)
    with pytest.raises(NotFittedError):
        classifier().predict(X)
    assert not hasattr(classifier(), "n_features_in_") and not hasattr(classifier(), "classes_")
    with pytest.raises(AttributeError, match=r"^EnsembleClassifier: classes_ is known after a fit$"):
        classifier().classes_  # noqa: B018


@pytest.mark.parametrize(
    ("make", "estimator", "expected"),
    [
        (EnsembleClassifier, SequentialRegressor(), "a classifier with predict_proba"),
        (EnsembleClassifier, SVC(random_state=0), "a classifier with predict_proba"),
        (EnsembleClassifier, GaussianNB(), "an estimator with a random_state, by which the members differ"),
        (EnsembleRegressor, SequentialClassifier(), "a regressor"),
        (EnsembleRegressor, LinearRegression(), "an estimator with a random_state, by which the members differ"),
    ],
)
def test_members_that_cannot_be_averaged_or_would_be_equal_are_refused(make, estimator, expected):
    with pytest.raises(TypeError, match=rf"^estimator: expected {expected}, got {type(estimator).__name__}\("):
        make(estimator).fit(X, LABELS if make is EnsembleClassifier else NUMBERS)
