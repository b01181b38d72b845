"""What a callback remembers belongs to one fit: if it is used again, copied, elsewhere or in parallel."""

import copy
import os
import pickle
import threading

import numpy as np
import pytest
from interrupted_fits import FIT, InterruptAfter, StepCounter, X, Y, batchnorm_trainer, comparable, full_state

from minidl import Sequential, Trainer
from minidl.callbacks import Checkpoint, EarlyStopping, ExponentialMovingAverage, ReduceLROnPlateau, TimeLimit
from minidl.layers import Dense, Flatten
from minidl.optimizers import SGD


class Collector:
    """Its state is the very list that it appends to."""

    def __init__(self):
        self.losses = []

    def on_epoch_end(self, trainer, epoch, logs):
        self.losses.append(logs["loss"])

    def state_dict(self):
        return {"losses": self.losses}

    def load_state_dict(self, state):
        self.losses = state["losses"]


class Overwriter(Collector):
    """Writes into its list when it gets a state."""

    def load_state_dict(self, state):
        self.losses[:] = state["losses"]


LONG = FIT | {"epochs": 3, "validation_split": 0.3}
KINDS = {
    "EarlyStopping": lambda folder: EarlyStopping(patience=9),
    "ReduceLROnPlateau": lambda folder: ReduceLROnPlateau(patience=0, threshold=0.5),
    "ExponentialMovingAverage": lambda folder: ExponentialMovingAverage(0.9),
    "Checkpoint": lambda folder: Checkpoint(folder / "best-{epoch}", monitor="val_loss"),
    "a user's": lambda folder: StepCounter(),
    "a user's that gives away its list": lambda folder: Collector(),
    "a user's that overwrites its list": lambda folder: Overwriter(),
}
WAYS = {
    "the object": lambda used: used,
    "a copy": copy.deepcopy,
    "a pickle": lambda used: pickle.loads(pickle.dumps(used)),
}


def other_trainer():
    """One that is much worse, so that its best values are not those of `batchnorm_trainer`."""
    trainer = batchnorm_trainer()
    trainer.model.params["4.weight"].value[:] *= 30
    trainer.optimizer.lr = 0.0
    return trainer


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_a_used_callback_is_as_good_as_a_new_one(tmp_path, kind, way):
    new, used, expected, trainer = KINDS[kind](tmp_path), KINDS[kind](tmp_path), other_trainer(), other_trainer()
    batchnorm_trainer().fit(X, Y, **LONG, callbacks=[used])
    again = WAYS[way](used)
    expected.fit(X, Y, **LONG, callbacks=[new])
    trainer.fit(X, Y, **LONG, callbacks=[again])
    assert full_state(trainer) == full_state(expected)
    assert comparable(again.state_dict()) == comparable(new.state_dict())


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_fit_keeps_its_state_while_the_callback_serves_another(tmp_path, kind):
    uninterrupted, new = batchnorm_trainer(), KINDS[kind](tmp_path)
    uninterrupted.fit(X, Y, **LONG, callbacks=[new])
    trainer, callback = batchnorm_trainer(), KINDS[kind](tmp_path)
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(X, Y, **LONG, callbacks=[callback, InterruptAfter(14)])
    other_trainer().fit(X, Y, **LONG, callbacks=[callback])
    trainer.save_checkpoint(tmp_path / "interrupted")
    trainer.fit(X, Y, **LONG, callbacks=[callback])
    resumed, of_file = Trainer.resume(tmp_path / "interrupted"), KINDS[kind](tmp_path)
    resumed.fit(X, Y, **LONG, callbacks=[of_file])
    for one, state in ((trainer, callback), (resumed, of_file)):
        assert full_state(one) == full_state(uninterrupted)
        assert comparable(state.state_dict()) == comparable(new.state_dict())


@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_fit_leaves_the_memory_of_the_last_one(tmp_path, kind):
    callback, trainer = KINDS[kind](tmp_path), batchnorm_trainer()
    trainer.fit(X, Y, **LONG, callbacks=[callback])
    before = comparable(callback.state_dict())
    with pytest.raises(ValueError, match="val_recall"):
        trainer.fit(X, Y, **LONG, callbacks=[callback, EarlyStopping("val_recall")])
    assert comparable(callback.state_dict()) == before


class Refuses:
    def on_fit_begin(self, trainer):
        raise ValueError("not today")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("last", [False, True])
def test_a_fit_of_another_model_that_is_refused_leaves_it_as_well(tmp_path, kind, last):
    callback = KINDS[kind](tmp_path)
    batchnorm_trainer().fit(X, Y, **LONG, callbacks=[callback])
    for again in (callback, copy.deepcopy(callback)):
        before = comparable(again.state_dict())
        other = Trainer(Sequential([Flatten(), Dense(int(Y.max()) + 1)]), "softmax_cross_entropy", SGD(0.1))
        with pytest.raises(ValueError, match="not today"):
            other.fit(X, Y, **LONG, callbacks=[again, Refuses()] if last else [Refuses(), again])
        assert comparable(again.state_dict()) == before


def test_a_callback_may_keep_what_it_is_given():
    callback = Collector()
    for _ in range(3):
        batchnorm_trainer().fit(X, Y, **LONG, callbacks=[callback])
        assert len(callback.losses) == LONG["epochs"]


def test_arguments_that_are_changed_between_fits_stay_changed():
    early = EarlyStopping("loss", patience=1, min_delta=100)
    batchnorm_trainer().fit(X, Y, **FIT, callbacks=[early])
    assert early.stopped_epoch == 1
    early.patience = 2
    batchnorm_trainer().fit(X, Y, **FIT, callbacks=[early])
    assert early.patience == 2 and early.stopped_epoch == 2


class LateState:
    """Its state exists from the beginning of its first fit on."""

    __slots__ = ("first", "steps")

    def on_fit_begin(self, trainer):
        self.first, self.steps = trainer.step, 0

    def on_step_end(self, trainer, step, loss):
        self.steps += 1

    def state_dict(self):
        return {"first": self.first, "steps": self.steps}

    def load_state_dict(self, state):
        self.first, self.steps = state["first"], state["steps"]


def test_a_callback_may_make_its_state_when_the_fit_begins():
    trainer, late = batchnorm_trainer(), LateState()
    for fit in range(2):
        trainer.fit(X, Y, **FIT | {"epochs": 1}, callbacks=[late])
        assert late.state_dict() == {"first": 13 * fit, "steps": 13}


@pytest.mark.parametrize(
    "make", [lambda: EarlyStopping("loss"), lambda: TimeLimit(60), StepCounter], ids=["early", "time", "user"]
)
def test_a_callback_of_a_running_fit_is_refused_by_another(make):
    shared, errors, inside, done = make(), [], threading.Event(), threading.Event()

    class Holder:
        def on_epoch_begin(self, trainer, epoch):
            inside.set()
            assert done.wait(60)

    first = batchnorm_trainer()
    thread = threading.Thread(target=lambda: first.fit(X, Y, **FIT, callbacks=[shared, Holder()]))
    thread.start()
    assert inside.wait(60)
    try:
        second = batchnorm_trainer()
        with pytest.raises(
            RuntimeError, match="callbacks: expected an object of its own for each fit that runs at"
        ) as error:
            second.fit(X, Y, **FIT, callbacks=[shared])
        errors.append(str(error.value))
        second.fit(X, Y, **FIT, callbacks=[make()])
    finally:
        done.set()
        thread.join()
    alone = batchnorm_trainer()
    alone.fit(X, Y, **FIT, callbacks=[make()])
    assert errors[0].endswith(f"got {shared!r}, which another fit is using")
    assert full_state(first) == full_state(second) == full_state(alone)
    batchnorm_trainer().fit(X, Y, **FIT, callbacks=[shared])  # it is free again


def test_a_callback_without_memory_serves_fits_at_the_same_time():
    class Watch:
        def on_epoch_end(self, trainer, epoch, logs):
            if trainer is first:
                batchnorm_trainer().fit(X, Y, **FIT | {"epochs": 1}, callbacks=[self])

    first = batchnorm_trainer()
    first.fit(X, Y, **FIT | {"epochs": 2}, callbacks=[Watch()])
    assert first.epoch == 2


# ---- files of Checkpoint
def test_each_fold_of_a_cross_validation_ends_with_its_own_best_model(tmp_path):
    checkpoint, folds = Checkpoint(tmp_path / "best", monitor="val_loss"), np.arange(90) % 4
    for fold in range(4):
        trainer, train = batchnorm_trainer(), folds != fold
        trainer.seed = fold
        held = X[~train], Y[~train]
        trainer.fit(X[train], Y[train], **FIT, validation_data=held, callbacks=[checkpoint])
        assert Trainer.resume(tmp_path / "best").evaluate(*held)["loss"] == min(trainer.history["val_loss"])


def test_files_of_other_fits_are_never_deleted(tmp_path):
    checkpoint, path = Checkpoint(tmp_path / "{step}", max_to_keep=1), tmp_path / "{step}"
    trainer = batchnorm_trainer()
    trainer.fit(X, Y, **FIT | {"epochs": 2}, callbacks=[checkpoint])
    assert os.listdir(tmp_path) == ["26"]
    batchnorm_trainer().fit(X, Y, **FIT | {"batch_size": 45}, callbacks=[checkpoint])
    assert sorted(os.listdir(tmp_path)) == ["26", "8"]
    trainer.fit(X, Y, **FIT | {"epochs": 1}, callbacks=[checkpoint])  # of the same trainer, but another fit
    assert sorted(os.listdir(tmp_path)) == ["26", "39", "8"]

    class Replacer:
        def on_epoch_begin(self, trainer, epoch):
            if epoch == 1:  # another run writes where this one did
                batchnorm_trainer().fit(X, Y, **FIT | {"epochs": 1, "batch_size": 30}, callbacks=[Checkpoint(path)])

    batchnorm_trainer().fit(
        X, Y, **FIT | {"epochs": 3, "batch_size": 30}, callbacks=[Checkpoint(path, max_to_keep=1), Replacer()]
    )
    assert sorted(os.listdir(tmp_path)) == ["26", "3", "39", "8", "9"]
    assert Trainer.resume(tmp_path / "3").epoch == 1


def test_a_resumed_fit_deletes_its_own_files_only_wherever_they_are(tmp_path):
    """The names in its state may be those of another run's files in the folder that it writes to now."""
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
        with pytest.raises(KeyboardInterrupt):
            saves = Checkpoint(folder / "{step}", every_n_steps=2, max_to_keep=2)
            batchnorm_trainer().fit(X, Y, **FIT, callbacks=[saves, InterruptAfter(20)])
        assert sorted(os.listdir(folder)) == ["18", "20"]
    saves = Checkpoint(there / "{step}", every_n_steps=2, max_to_keep=2)
    Trainer.resume(here / "18").fit(X, Y, **FIT, callbacks=[saves])
    assert sorted(os.listdir(there)) == ["18", "50", "52"]  # 20 was written again
    saves = Checkpoint(here / "{step}", every_n_steps=2, max_to_keep=2)
    Trainer.resume(here / "20").fit(X, Y, **FIT, callbacks=[saves])
    assert sorted(os.listdir(here)) == ["50", "52"]


def test_a_state_of_an_earlier_version_without_a_run_is_accepted(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        saves = Checkpoint(tmp_path / "{step}", every_n_steps=2, max_to_keep=2)
        batchnorm_trainer().fit(X, Y, **FIT, callbacks=[saves, InterruptAfter(20)])
    resumed = Trainer.resume(tmp_path / "20")
    ((_, state, _),) = resumed.interrupted.callbacks
    assert len(state.pop("run")) == 32
    resumed.fit(X, Y, **FIT, callbacks=[Checkpoint(tmp_path / "{step}", every_n_steps=2, max_to_keep=2)])
    assert sorted(os.listdir(tmp_path)) == ["18", "20", "50", "52"]  # what is not known to be its own stays


# ---- values that are always NaN
def undefined(y, scores):
    return float("nan")


def test_a_metric_that_is_always_nan_is_named():
    trainer = batchnorm_trainer()
    trainer.metrics = ["accuracy", undefined]
    early = EarlyStopping("val_undefined", patience=3, lower_is_better=False)
    with pytest.warns(
        UserWarning, match="^undefined, val_undefined: expected numbers, got NaN in each of the 3 epochs"
    ) as seen:
        trainer.fit(X, Y, **FIT | {"epochs": 50, "validation_split": 0.3}, callbacks=[early])
    assert len(seen) == 1 and seen[0].filename == __file__
    trainer.metrics = ["accuracy"]
    trainer.fit(X, Y, **FIT)  # the history has NaN for the metric of before
