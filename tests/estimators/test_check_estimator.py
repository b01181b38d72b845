"""scikit-learn's own checks of an estimator, with default arguments: no failure, none expected."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from sklearn.utils.estimator_checks import check_estimator

from minidl import estimators, get_num_threads


class Wrong(estimators.SequentialClassifier):
    """Its probabilities are not those of its predictions."""

    def predict_proba(self, X):
        return super().predict_proba(X)[:, ::-1]


def results(estimator):
    """How many checks an estimator passes, and those that it does not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of targets that are a column, of features that are constant: on purpose
        found = check_estimator(estimator, on_fail=None)
    passed = sum(result["status"] == "passed" for result in found)
    return passed, [f"{r['check_name']}: {r['exception']!r}" for r in found if r["status"] not in ("passed", "skipped")]


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["SequentialClassifier", "SequentialRegressor"])
def test_checks_of_scikit_learn(name, threads):
    """In a process whose OpenMP has so many threads for all work, however little, and does not spin in between."""
    root = str(Path(estimators.__file__).parents[2])
    options = {"PYTHONPATH": root, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"}
    command = [sys.executable, __file__, name]
    done = subprocess.run(command, env={**os.environ, **options}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    used, passed, *failed = done.stdout.splitlines()
    assert failed == []
    assert int(used) == threads and int(passed) >= 55


@pytest.mark.slow
def test_a_wrong_estimator_fails_them():
    assert "check_classifiers_train" in " ".join(results(Wrong())[1])


if __name__ == "__main__":
    passed, failed = results(getattr(estimators, sys.argv[1])())
    print(get_num_threads(), passed, *failed, sep="\n")
