"""Searches on a dask cluster: joblib's backend runs the fits, with the same results as one process."""

import os
from unittest import mock

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.model_selection import GridSearchCV, cross_val_score

import minidl
from minidl import datasets
from minidl.estimators import SequentialClassifier
from minidl.layers import BatchNorm2D, Conv2D, Dense, Dropout, Flatten, MaxPool2D, ReLU

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.slow  # starts a cluster

DIGITS = datasets.load_digits()
X, Y = DIGITS.X_train[:601].reshape(-1, 64).astype(np.float32) / 16, DIGITS.y_train[:601]
DROPPING = [Flatten(), Dense(32), ReLU(), Dropout(0.3), Dense(10)]
NORMED = [Conv2D(8, 3), BatchNorm2D(), ReLU(), MaxPool2D(2), Flatten(), Dense(10)]


@pytest.fixture(scope="module")
def client():
    """A cluster of two processes on this machine. What dask sets in os.environ is restored afterwards."""
    with mock.patch.dict(os.environ):
        os.environ.pop("OMP_NUM_THREADS", None)
        with distributed.Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
            yield client


def make_classifier(**options):
    return SequentialClassifier(input_shape=(1, 8, 8), **{"epochs": 3, "random_state": 0, **options})


def measured(fitted, X, y):
    return {"accuracy": fitted.score(X, y), "process": os.getpid(), "threads": minidl.get_num_threads()}


def search(jobs=None):
    grid = {"model": [DROPPING, NORMED], "lr": [0.001, 0.01], "batch_size": [37]}
    return GridSearchCV(make_classifier(), grid, scoring=measured, refit="accuracy", cv=3, n_jobs=jobs).fit(X, Y)


def columns_of(result, measure):
    """Returns the columns of a search's results for one measure by name; rows are candidates."""
    return {name: column for name, column in result.cv_results_.items() if name.endswith(f"_test_{measure}")}


def test_a_cluster_finds_what_one_process_finds(client):
    with parallel_config("dask", scatter=[X, Y]):
        remote = search()
    local = search(jobs=1)

    scores, expected = columns_of(remote, "accuracy"), columns_of(local, "accuracy")
    assert list(scores) == list(expected) and len(scores) == 6
    for name, column in expected.items():
        assert scores[name].tobytes() == column.tobytes(), name
    assert len(np.unique(expected["mean_test_accuracy"])) > 2

    assert remote.best_params_ == local.best_params_
    weights = remote.best_estimator_.model_.state_dict()
    for name, value in local.best_estimator_.model_.state_dict().items():
        assert weights[name].tobytes() == value.tobytes(), name

    processes = [columns_of(remote, "process")[f"split{i}_test_process"] for i in range(3)]
    assert {int(process) for process in np.ravel(processes)} == set(client.run(os.getpid).values()) - {os.getpid()}


def test_a_worker_uses_one_thread(client):
    """OMP_NUM_THREADS=1, as set by dask: two workers on two cores do not slow each other down."""
    with parallel_config("dask"):
        assert set(columns_of(search(), "threads")["mean_test_threads"]) == {1}


def test_errors_of_a_worker_are_reported_here(client):
    with parallel_config("dask"), pytest.raises(ValueError, match=r"^batch_size: .*got 0"):
        cross_val_score(make_classifier(model=DROPPING, batch_size=0), X, Y, cv=3, error_score="raise")
