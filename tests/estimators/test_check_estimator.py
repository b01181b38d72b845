"""scikit-learn's own estimator checks with default arguments: all pass, except one that chance decides."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from sklearn.utils.estimator_checks import check_estimator

from minidl import estimators, get_num_threads
from minidl.estimators.tabular import TabularEstimator


class Wrong(estimators.SequentialClassifier):
    """Its probabilities contradict its predictions."""

    def predict_proba(self, X):
        return super().predict_proba(X)[:, ::-1]


FOLDS = {"check_sample_weight_equivalence_on_dense_data": "a repeated row is in one fold, its copy in another one"}


def results(estimator):
    """Returns how many checks an estimator passes, and the failed ones, except those that folds have to fail."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of column targets and of constant features: intended
        expected = FOLDS if isinstance(estimator, TabularEstimator) else None
        actual = check_estimator(estimator, on_fail=None, expected_failed_checks=expected)
    passed = sum(result["status"] == "passed" for result in actual)
    return passed, [
        f"{r['check_name']}: {r['exception']!r}" for r in actual if r["status"] not in ("passed", "skipped", "xfail")
    ]


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "name",
    [
        "SequentialClassifier",
        "SequentialRegressor",
        *(pytest.param(f"Tabular{kind}", marks=pytest.mark.slow) for kind in ("Classifier", "Regressor")),
    ],
)
def test_scikit_learns_checks_pass(name, threads):
    """In a process whose OpenMP uses this number of threads even for little work, without spinning in between."""
    root = str(Path(estimators.__file__).parents[2])
    options = {"PYTHONPATH": root, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"}
    command = [sys.executable, __file__, name]
    done = subprocess.run(command, env={**os.environ, **options}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    used, passed, *failed = done.stdout.splitlines()
    assert failed == []
    assert int(used) == threads and int(passed) >= 55


@pytest.mark.slow
def test_a_faulty_estimator_fails_them():
    assert "check_classifiers_train" in " ".join(results(Wrong())[1])


if __name__ == "__main__":
    passed, failed = results(getattr(estimators, sys.argv[1])())
    print(get_num_threads(), passed, *failed, sep="\n")
