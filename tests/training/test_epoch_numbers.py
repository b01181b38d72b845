"""Numbers that callbacks add to the record of an epoch: who sees them, what is refused, and ranks."""

import csv
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from interrupted_fits import FIT, X, Y, interrupt_and_complete, native_trainer
from threaded_ranks import run_ranks

from minidl import Trainer
from minidl.callbacks import Checkpoint, CSVLogger, EarlyStopping, JSONLLogger, ReduceLROnPlateau
from minidl.optimizers import SGD


class Adds:
    """Adds numbers, and remembers what it was given."""

    def __init__(self, **numbers):
        self.numbers, self.seen = numbers, []

    def on_epoch_end(self, trainer, epoch, logs):
        self.seen.append((dict(logs), {name: values[-1] for name, values in trainer.history.items()}))
        logs.update({name: value(epoch) if callable(value) else value for name, value in self.numbers.items()})


def fit(*callbacks, trainer=None, **options):
    trainer = native_trainer() if trainer is None else trainer
    trainer.fit(X, Y, **FIT | options, callbacks=callbacks)
    return trainer


def test_a_number_counts_from_the_next_callback_on(tmp_path, capsys):
    adds, sees = Adds(gap=lambda epoch: epoch / 8), Adds()
    logs = [CSVLogger(tmp_path / "log.csv"), JSONLLogger(tmp_path / "log.jsonl")]
    trainer = fit(sees_none := Adds(), adds, sees, *logs, verbose=1)
    assert trainer.history["gap"] == [0.0, 0.125, 0.25, 0.375]
    for epoch in range(4):
        assert sees.seen[epoch][0]["gap"] == sees.seen[epoch][1]["gap"] == epoch / 8
        for early in (adds, sees_none):
            assert "gap" not in early.seen[epoch][0] and math.isnan(early.seen[epoch][1].get("gap", math.nan))
    assert [
        float(row["gap"]) for row in csv.DictReader((tmp_path / "log.csv").read_text().splitlines())
    ] == trainer.history["gap"]
    assert [json.loads(line)["gap"] for line in (tmp_path / "log.jsonl").read_text().splitlines()] == trainer.history[
        "gap"
    ]
    assert [line.split("  ")[-1] for line in capsys.readouterr().out.splitlines()] == [
        f"gap {value:.4f}" for value in trainer.history["gap"]
    ]


@pytest.mark.parametrize("logger", [CSVLogger, JSONLLogger])
def test_a_logger_before_the_callback_has_the_numbers_at_the_end(logger, tmp_path):
    trainer = fit(logger(tmp_path / "one"), Adds(gap=lambda epoch: epoch / 8))
    fit(logger(tmp_path / "other"), trainer=trainer, epochs=0)
    assert (tmp_path / "one").read_text() == (tmp_path / "other").read_text()
    assert "0.375" in (tmp_path / "one").read_text()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *((7, 7.0), (True, 1.0), (np.float32(0.1), float(np.float32(0.1))), (np.int8(-3), -3.0), (np.True_, 1.0)),
        *((np.array(2.5), 2.5), (Fraction(1, 4), 0.25), (math.inf, math.inf), (math.nan, math.nan)),
    ],
    ids=str,
)
def test_real_numbers_become_floats(value, expected):
    trainer = fit(Adds(x=value), sees := Adds(), epochs=1)
    found = trainer.history["x"][0]
    assert type(found) is type(sees.seen[0][0]["x"]) is float
    np.testing.assert_equal(found, expected)


class Changes:
    def __init__(self, change):
        self.change = change

    def on_epoch_end(self, trainer, epoch, logs):
        self.change(logs)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda logs: logs.update(x="a"), TypeError, r"logs\['x'\]: expected a number from Changes, got 'a'"),
        (lambda logs: logs.update(x=None), TypeError, "expected a number from Changes, got None"),
        (lambda logs: logs.update(x=np.zeros(1)), TypeError, r"expected a number from Changes, got array\(\[0"),
        (lambda logs: logs.update(x=np.ma.masked), TypeError, "expected a number from Changes, got masked"),
        (lambda logs: logs.update(x=1j), TypeError, "expected a number from Changes, got 1j"),
        (lambda logs: logs.update(x=10**400), TypeError, "expected a number from Changes, got 1000"),
        (lambda logs: logs.update({3: 1.0}), TypeError, "logs: expected names of what Changes adds, got 3"),
        (lambda logs: logs.update({"a\n": 1.0}), ValueError, "logs: expected names of printable characters"),
        (lambda logs: logs.update({"": 1.0}), ValueError, "logs: expected names of printable characters"),
        (lambda logs: logs.update(loss=0.0), ValueError, r"logs\['loss'\]: expected Changes to keep .*, got 0\.0"),
        (lambda logs: logs.update(val_loss="a"), ValueError, r"logs\['val_loss'\]: expected Changes to keep"),
        (lambda logs: logs.update(epoch=np.zeros(3)), ValueError, r"logs\['epoch'\]: expected Changes to keep 0"),
        (lambda logs: logs.pop("lr"), ValueError, r"logs\['lr'\]: expected Changes to keep 0\.1,.* it is gone"),
        (lambda logs: logs.clear(), ValueError, r"logs\['epoch'\]: expected Changes to keep 0"),
        (lambda logs: logs.update(mine=2), ValueError, r"logs\['mine'\]: expected Changes to keep 1\.0"),
    ],
)
def test_anything_else_is_refused(change, error, message):
    trainer = native_trainer()
    with pytest.raises(error, match=message):
        fit(Adds(mine=1), Changes(change), trainer=trainer, validation_split=0.2)
    assert trainer.epoch == 1
    assert set(map(len, trainer.history.values())) == {1} and set(map(type, trainer.history)) == {str}


def test_the_same_numbers_may_be_set_again():
    trainer = fit(Adds(nan=math.nan), Changes(lambda logs: logs.update({k: np.float64(v) for k, v in logs.items()})))
    assert trainer.history["epoch"] == [0, 1, 2, 3] and len(trainer.history["nan"]) == 4


def test_names_that_come_and_go_are_nan_in_between(tmp_path):
    class Sometimes:
        def on_epoch_end(self, trainer, epoch, logs):
            if epoch in (1, 3):
                logs["x"] = epoch

    trainer = fit(Sometimes(), CSVLogger(tmp_path / "log.csv"))
    np.testing.assert_equal(trainer.history["x"], [math.nan, 1.0, math.nan, 3.0])
    assert [row["x"] for row in csv.DictReader((tmp_path / "log.csv").read_text().splitlines())] == [
        "nan",
        "1.0",
        "nan",
        "3.0",
    ]
    trainer.save_checkpoint(tmp_path / "c")
    np.testing.assert_equal(Trainer.resume(tmp_path / "c").history, trainer.history)


# ---- monitors


def test_monitors_of_added_numbers(tmp_path):
    score = Adds(score=lambda epoch: [3, 5, 4, 2, 1, 0][epoch])
    stop = EarlyStopping("score", patience=2, lower_is_better=False)
    best = Checkpoint(tmp_path / "{epoch}", monitor="score", lower_is_better=False)
    reduce = ReduceLROnPlateau("score", factor=0.5, patience=0, lower_is_better=False)
    trainer = fit(score, stop, best, reduce, trainer=Trainer(native_trainer().model, "softmax_cross_entropy", SGD(1.0)))
    assert (stop.best, stop.best_epoch, stop.stopped_epoch, trainer.epoch) == (5.0, 1, 3, 4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]
    assert trainer.history["lr"] == [1.0, 1.0, 1.0, 0.5] and trainer.optimizer.lr == 0.25


def test_an_epoch_without_the_number_is_no_improvement():
    class Once:
        def on_epoch_end(self, trainer, epoch, logs):
            if epoch == 0:
                logs["score"] = 1.0

    stop = EarlyStopping("score", patience=3, lower_is_better=False)
    fit(Once(), stop)
    assert (stop.best_epoch, stop.stopped_epoch) == (0, 3)


@pytest.mark.parametrize(
    "make", [EarlyStopping, ReduceLROnPlateau, lambda name, **way: Checkpoint("c", None, None, name, **way)]
)
def test_monitors_of_numbers_that_nothing_adds(make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"monitor: expected one of \['loss', 'accuracy'\], got 'score'$"):
        fit(make("score", lower_is_better=True), CSVLogger("log.csv"))  # no callback that may add it
    trainer = Trainer(native_trainer().model, "softmax_cross_entropy", SGD(1.0))
    with pytest.raises(ValueError, match="got 'score'; a callback that adds it has to come before the one that moni"):
        fit(make("score", lower_is_better=True), Adds(score=1), trainer=trainer)
    assert trainer.epoch == 1
    for name, way, message in (
        ("val_loss", {"lower_is_better": True}, "got 'val_loss'; it needs validation_data"),
        ("recall", {}, r"expected one of \['loss', 'accuracy'\], got 'recall'"),
        ("my_f1", {}, r"got 'my_f1'"),
    ):
        with pytest.raises(ValueError, match=message):
            fit(Adds(my_f1=1), make(name, **way), trainer=(untouched := native_trainer()))
        assert untouched.step == 0


@pytest.mark.parametrize(
    "make", [EarlyStopping, ReduceLROnPlateau, lambda *name, **way: Checkpoint("c", None, None, *name, **way)]
)
def test_a_monitor_before_the_callback_that_adds_the_number_is_refused_in_each_fit(make, tmp_path, monkeypatch):
    """Also if the name is in the history of earlier fits, so that the monitor would see NaN."""
    monkeypatch.chdir(tmp_path)
    trainer = Trainer(native_trainer().model, "softmax_cross_entropy", SGD(1.0))
    fit(Adds(score=1), trainer=trainer)
    with pytest.raises(ValueError, match=r"monitor: expected Adds, which adds 'score', before its monitor, got \w+\("):
        fit(make("score", lower_is_better=True), Adds(score=1), trainer=trainer)
    assert trainer.epoch == 5 and math.isnan(trainer.history["score"][-1])
    fit(Adds(score=2), make("score", lower_is_better=True), trainer=trainer, epochs=1)
    assert trainer.history["score"][-1] == 2


def test_a_resumed_fit_monitors_them(tmp_path):
    def callbacks():
        return [Adds(score=lambda epoch: [1, 3, 2, 2][epoch]), EarlyStopping("score", 2, lower_is_better=False)]

    _, (_, stop) = interrupt_and_complete(native_trainer, 30, callbacks, tmp_path / "c")
    assert (stop.best, stop.best_epoch, stop.stopped_epoch) == (3.0, 1, 3)


# ---- ranks


def test_numbers_of_rank_zero_hold_on_all_ranks():
    def process(comm):
        def whose(kind):
            return lambda epoch: 10 * comm.rank + kind + epoch / 3

        class Watcher(Adds):
            rank_zero_only = True

        trainer = native_trainer()
        trainer.comm = comm
        stop = EarlyStopping("watched", patience=1, lower_is_better=True)
        more = {f"of rank {comm.rank}": 1.0}
        callbacks = [Watcher(watched=whose(1)), first := Adds(own=whose(2), **more), Watcher(after=math.nan), stop]
        fit(*callbacks, last := Adds(), trainer=trainer)
        seen = [{name: repr(value) for name, value in logs.items() if "images" not in name} for logs, _ in last.seen]
        history = {name: list(map(repr, values)) for name, values in trainer.history.items() if "images" not in name}
        return seen, history, stop.stopped_epoch, [logs["watched"] for logs, _ in first.seen]

    results, _ = run_ranks(3, process)
    assert results[0] == results[1] == results[2]
    seen, history, stopped, watched = results[0]
    assert stopped == 1 and watched == [1.0, 1 + 1 / 3]
    assert list(history)[-4:] == ["watched", "own", "of rank 0", "after"] == list(seen[-1])[-4:]
    assert history["own"] == ["2.0", repr(2 + 1 / 3)]


def test_an_addition_that_is_refused_on_one_rank_ends_the_job_on_all():
    def process(comm):
        trainer = native_trainer()
        trainer.comm = comm
        fit(Adds(x="a" if comm.rank else 1.0), trainer=trainer)

    with pytest.raises(TypeError, match="expected a number from Adds, got 'a'"):
        run_ranks(2, process)


def test_the_line_of_an_epoch_is_printed_before_the_error_of_a_callback(capsys):
    with pytest.raises(TypeError, match="expected a number from Adds"):
        fit(Adds(gap=0.5), Adds(x="a"), verbose=1)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("epoch 1/4  loss ") and line.endswith("gap 0.5000")
