"""Callbacks of an estimator: a fit trains with copies, and partial_fit goes on with their states."""

import os
import pickle
import threading

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.model_selection import cross_validate
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline

from minidl.callbacks import (
    Checkpoint,
    CSVLogger,
    EarlyStopping,
    ExponentialMovingAverage,
    ReduceLROnPlateau,
    TimeLimit,
)
from minidl.estimators import SequentialClassifier
from minidl.layers import Dense
from minidl.optimizers import SGD

X, Y = load_iris(return_X_y=True)
X = ((X - X.mean(axis=0)) / X.std(axis=0)).astype("float32")
OPTIONS = {"model": [Dense(3)], "epochs": 6, "tol": None, "random_state": 0}


class Counter:
    """A user's callback, with a state."""

    def __init__(self):
        self.epochs = []

    def on_epoch_end(self, trainer, epoch, logs):
        self.epochs.append(logs["loss"])

    def state_dict(self):
        return {"epochs": self.epochs}

    def load_state_dict(self, state):
        self.epochs = list(state["epochs"])


CALLBACKS = {
    "Checkpoint": lambda: Checkpoint("run-{epoch}", max_to_keep=1),
    "CSVLogger": lambda: CSVLogger("log.csv", overwrite=True),
    "EarlyStopping": lambda: EarlyStopping("val_loss", patience=2),
    "ExponentialMovingAverage": lambda: ExponentialMovingAverage(0.9),
    "ReduceLROnPlateau": lambda: ReduceLROnPlateau("loss", patience=0, threshold=0.5),
    "TimeLimit": lambda: TimeLimit(60),
    "a user's": Counter,
}


def bits(fitted):
    return {name: value.tobytes() for name, value in fitted.model_.state_dict().items()}


@pytest.mark.parametrize("kind", CALLBACKS)
def test_a_fit_changes_no_parameter(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    callback = CALLBACKS[kind]()
    estimator = SequentialClassifier(**OPTIONS, optimizer=SGD(0.5), early_stopping=True, callbacks=[callback])
    before = joblib.hash(estimator.get_params())
    first = bits(estimator.fit(X, Y))
    assert joblib.hash(estimator.get_params()) == before == joblib.hash(clone(estimator).get_params())
    assert bits(clone(estimator).fit(X[::2], Y[::2])) != first
    assert bits(clone(estimator).fit(X, Y)) == bits(estimator.fit(X, Y)) == first
    assert estimator.callbacks == [callback]
    (used,) = estimator.callbacks_
    assert type(used) is type(callback) and used is not callback
    assert not hasattr(clone(estimator), "callbacks_")


def test_what_a_fit_remembers_is_in_its_copies():
    class Reader:
        """Reads another callback of the same fit."""

        def __init__(self, other):
            self.other, self.seen = other, []

        def on_epoch_end(self, trainer, epoch, logs):
            self.seen.append(self.other.best_epoch)

    early = EarlyStopping("loss", patience=2)
    fitted = SequentialClassifier(**OPTIONS, callbacks=(early, Reader(early))).fit(X, Y)
    used, reader = fitted.callbacks_
    assert early.best is None and used.best == min(fitted.loss_curve_)
    assert reader.other is used and reader.seen == [0, 1, 2, 3, 4, 5]
    with pytest.raises(ValueError, match="NaN"):
        fitted.fit(np.full_like(X, np.nan), Y)
    assert fitted.callbacks_ == [used, reader]


def test_folds_do_not_share_a_memory():
    """One object for all folds: each model is that of an estimator fitted alone."""
    callback = EarlyStopping("val_loss", patience=3)
    estimator = SequentialClassifier(**OPTIONS, lr=0.05, early_stopping=True, callbacks=[callback])
    found = cross_validate(estimator, X, Y, cv=4, return_estimator=True, return_indices=True)
    for rows, fold in zip(found["indices"]["train"], found["estimator"], strict=True):
        own = clone(estimator).set_params(callbacks=[EarlyStopping("val_loss", patience=3)])
        assert bits(fold) == bits(own.fit(X[rows], Y[rows]))


class FitCounter:
    def __init__(self, path):
        self.path = path

    def on_fit_begin(self, trainer):
        self.path.write_text(self.path.read_text() + "x")


@pytest.mark.filterwarnings("ignore:Persisting input arguments took")  # on a busy machine
def test_a_cached_pipeline_fits_once(tmp_path):
    """It clones a fitted step, whose parameters must be those from before the fit."""
    (tmp_path / "fits").write_text("")
    callbacks = [EarlyStopping("loss", patience=2), FitCounter(tmp_path / "fits")]
    estimator = SequentialClassifier([Dense(4), Dense(3)], epochs=3, random_state=0, callbacks=callbacks)
    pipeline = make_pipeline(estimator, GaussianNB(), memory=str(tmp_path / "cache"))
    for _ in range(2):
        pipeline.fit(X, Y)
    assert (tmp_path / "fits").read_text() == "x"


def test_estimators_with_the_same_object_fit_in_parallel_threads():
    callback = ReduceLROnPlateau("loss", patience=0, threshold=0.9)
    both = [SequentialClassifier(**OPTIONS, optimizer=SGD(lr), callbacks=[callback]) for lr in (0.5, 0.01)]
    alone = [bits(clone(one).fit(X, Y)) for one in both]
    threads = [threading.Thread(target=one.fit, args=(X, Y)) for one in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [bits(one) for one in both] == alone


class Locked(Counter):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


class Shared(Locked):
    def __deepcopy__(self, memo):
        return self


def test_a_callback_that_cannot_be_copied_is_refused_unless_it_is_to_be_shared():
    estimator = SequentialClassifier(**OPTIONS, callbacks=[Locked()])
    for call in (estimator.fit, lambda X, y: estimator.partial_fit(X, y, classes=[0, 1, 2])):
        with pytest.raises(
            TypeError, match=r"callbacks: expected objects that can be copied, got .*Locked.*__deepcopy__"
        ):
            call(X, Y)
    shared = Shared()
    fitted = estimator.set_params(callbacks=[shared]).fit(X, Y)
    assert fitted.callbacks_ == [shared] and len(shared.epochs) == 6


# ---- partial_fit
def test_a_plateau_is_counted_over_calls_of_partial_fit():
    """By hand: the rate falls after each call without an improvement by half."""
    plateau = ReduceLROnPlateau("loss", patience=0, threshold=0.5, factor=0.5)
    stream = SequentialClassifier(**OPTIONS, optimizer=SGD(0.1), callbacks=[plateau, Counter()])
    rate, best, rates = 0.1, np.inf, []
    for call in range(8):
        stream = pickle.loads(pickle.dumps(stream)) if call == 4 else stream
        stream.partial_fit(X, Y, classes=[0, 1, 2])
        loss = stream.loss_curve_[-1]
        rate, best = (rate, loss) if loss < 0.5 * best else (rate * 0.5, best)
        rates.append(rate)
        assert stream.trainer_.optimizer.lr == rate
        assert stream.callbacks_[1].epochs == stream.loss_curve_
    assert rates[-1] < 0.01
    at_once = SequentialClassifier(**{**OPTIONS, "epochs": 8}, optimizer=SGD(0.1), callbacks=[plateau]).fit(X, Y)
    assert bits(at_once) == bits(stream)
    assert len(stream.fit(X, Y).callbacks_[1].epochs) == 6  # a fit begins from scratch
    assert len(stream.partial_fit(X, Y).callbacks_[1].epochs) == 7  # and partial_fit goes on from it


def test_averages_and_best_values_go_on_over_calls_of_partial_fit(tmp_path):
    def callbacks():
        best = Checkpoint(tmp_path / "best-{epoch}", monitor="loss", max_to_keep=2)
        return [ExponentialMovingAverage(0.9, apply=False), best]

    stream = SequentialClassifier(**OPTIONS, optimizer=SGD(2.0), callbacks=callbacks())
    for call in range(6):
        stream = pickle.loads(pickle.dumps(stream)) if call == 3 else stream
        stream.partial_fit(X, Y, classes=[0, 1, 2])
    losses = np.array(stream.loss_curve_)
    records = [epoch + 1 for epoch in range(6) if losses[epoch] == losses[: epoch + 1].min()]
    assert sorted(os.listdir(tmp_path)) == [f"best-{epoch}" for epoch in records[-2:]]
    at_once = SequentialClassifier(**OPTIONS, optimizer=SGD(2.0), callbacks=callbacks()).fit(X, Y)
    for name, value in stream.callbacks_[0].averages.items():
        assert np.array_equal(value, at_once.callbacks_[0].averages[name])


@pytest.mark.parametrize("callback", [EarlyStopping("loss"), ExponentialMovingAverage()], ids=repr)
def test_callbacks_that_replace_the_weights_at_the_end_are_refused_by_partial_fit(callback):
    estimator = SequentialClassifier(**OPTIONS, callbacks=[callback]).fit(X, Y)
    before = bits(estimator)
    with pytest.raises(ValueError, match=r"callbacks: expected none that replaces the weights .*, got E\w+\("):
        estimator.partial_fit(X, Y)
    assert bits(estimator) == before
