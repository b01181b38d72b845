"""Searches and cross-validation in several processes: the same results, and no more threads than cores."""

import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.model_selection import GridSearchCV, cross_val_score

import minidl
from minidl import datasets
from minidl.estimators import SequentialClassifier
from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, ReLU

DIGITS = datasets.load_digits()
X, Y = DIGITS.X_train.reshape(-1, 64).astype(np.float32) / 16, DIGITS.y_train
SMALL = [Conv2D(8, 3), ReLU(), MaxPool2D(2), Flatten(), Dense(10)]
WIDE = [Conv2D(32, 3, padding=1), ReLU(), Conv2D(32, 3, padding=1), ReLU(), MaxPool2D(2), Flatten(), Dense(10)]
CORES = len(os.sched_getaffinity(0))

several_cores = pytest.mark.skipif(CORES < 2, reason="a single core")


def make_classifier(**options):
    return SequentialClassifier(input_shape=(1, 8, 8), epochs=3, lr=0.01, tol=None, random_state=0, **options)


def search(jobs):
    grid = {"model": [SMALL, WIDE], "lr": [0.01, 0.001]}
    with parallel_config("loky"):
        return GridSearchCV(make_classifier(), grid, cv=2, n_jobs=jobs).fit(X, Y)


def test_two_processes_find_what_one_finds():
    one, two = search(1), search(2)
    for name in ("mean_test_score", "std_test_score", "split0_test_score", "split1_test_score", "rank_test_score"):
        assert np.array_equal(one.cv_results_[name], two.cv_results_[name]), name
    assert np.array_equal(one.predict_proba(X), two.predict_proba(X))
    assert len(np.unique(one.cv_results_["mean_test_score"])) > 2


def thread_ticks():
    """Returns the processor time used by each thread of this process, in hundredths of a second."""
    result = {}
    for thread in os.listdir("/proc/self/task"):
        fields = Path(f"/proc/self/task/{thread}/stat").read_text().rpartition(")")[2].split()
        result[thread] = int(fields[11]) + int(fields[12])
    return result


class BusyThreadCounter:
    """Counts the threads of this process that used at least a twentieth of a second of processor time in a fit."""

    def __init__(self, path):
        self.path = path

    def on_fit_begin(self, trainer):
        self.before = thread_ticks()

    def on_fit_end(self, trainer):
        busy = sum(after - self.before.get(thread, 0) >= 5 for thread, after in thread_ticks().items())
        with open(self.path, "a") as file:
            file.write(f"{os.getpid()} {minidl.get_num_threads()} {busy}\n")


def count_busy_threads(jobs, path):
    """Returns for each fit: its process, minidl's number of threads there, and the number of busy threads."""
    estimator = make_classifier(model=WIDE, callbacks=[BusyThreadCounter(path)]).set_params(epochs=30)
    with parallel_config("loky"):
        cross_val_score(estimator, X, Y, cv=2, n_jobs=jobs)
    return [tuple(int(number) for number in line.split()) for line in path.read_text().splitlines()]


@several_cores
def test_the_processes_of_a_search_share_the_cores(tmp_path):
    """Two processes get half of the cores each: all threads together do not exceed the cores."""
    fits = count_busy_threads(2, tmp_path / "two")
    assert len({process for process, _, _ in fits} - {os.getpid()}) == 2
    assert {threads for _, threads, _ in fits} == {CORES // 2}
    assert all(1 <= busy <= CORES // 2 for _, _, busy in fits)


@several_cores
def test_one_process_uses_all_cores(tmp_path):
    """The measurement does see more threads when there are more."""
    fits = count_busy_threads(1, tmp_path / "one")
    assert [process for process, _, _ in fits] == [os.getpid()] * 2
    assert all(busy > 1 for _, _, busy in fits)


def _scores_of(weights):
    return make_classifier(model=SMALL).fit(X[:200], Y[:200]).predict_proba(X[:20]) + weights


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of Python 3.12: forking is what is tested
def test_a_forked_pool_can_train_after_its_parent():
    expected = _scores_of(0)  # opens a parallel region: libgomp would hang in a child that opened another
    with multiprocessing.get_context("fork").Pool(2) as pool:
        result = pool.map_async(_scores_of, [0, 0]).get(timeout=300)
    assert all(np.array_equal(scores, expected) for scores in result)
