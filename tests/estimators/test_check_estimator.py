"""scikit-learn's own checks of an estimator, with default arguments: no failure, none expected."""

import warnings

import pytest
from sklearn.utils.estimator_checks import check_estimator

import minidl
from minidl.estimators import SequentialClassifier, SequentialRegressor


class Wrong(SequentialClassifier):
    """Its probabilities are not those of its predictions."""

    def predict_proba(self, X):
        return super().predict_proba(X)[:, ::-1]


@pytest.fixture(params=[1, 2])
def _threads(request):
    minidl.set_num_threads(request.param)
    yield
    minidl.set_num_threads(None)


def checked(estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of targets that are a column, of features that are constant: on purpose
        return check_estimator(estimator, on_fail=None)


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("made", [SequentialClassifier, SequentialRegressor])
def test_checks_of_scikit_learn(made):
    results = checked(made())
    assert [(r["check_name"], r["exception"]) for r in results if r["status"] not in ("passed", "skipped")] == []
    assert sum(r["status"] == "passed" for r in results) >= 55


def test_a_wrong_estimator_fails_them():
    assert "failed" in {r["status"] for r in checked(Wrong())}
