"""TimeLimit: when it ends a fit, with a simulated clock."""

from itertools import pairwise

import pytest
from interrupted_fits import FIT, X, Y, full_state, interrupt_fit, native_trainer

from minidl import Trainer
from minidl.callbacks import Checkpoint, TimeLimit
from minidl.callbacks import time_limit as module


class Clock:
    """A clock on which each step takes cost(step) seconds, and everything else what is added to `also`."""

    def __init__(self, monkeypatch, cost):
        self.cost, self.also, self.trainer = cost, 0.0, None
        monkeypatch.setattr(module.time, "perf_counter", self.now)

    def now(self):
        step = 0 if self.trainer is None else self.trainer.step
        return sum(map(self.cost, range(step))) + self.also


def fitted(monkeypatch, seconds, cost, epochs=100):
    """Fits with a limit, at 13 steps per epoch; returns the trainer and the steps at which the limit was checked."""
    limit, looks, trainer = TimeLimit(seconds), [], native_trainer()
    clock = Clock(monkeypatch, cost)
    clock.trainer = trainer
    look = limit.on_step_end
    limit.on_step_end = lambda trainer, step, loss: (looks.append(trainer.step), look(trainer, step, loss))
    trainer.fit(X, Y, epochs, batch_size=7, callbacks=[limit], verbose=0)
    return trainer, looks


@pytest.mark.parametrize(
    ("seconds", "cost", "steps"),
    [
        (0.5, 0.2, 3),  # each step is checked
        (0.1, 0.2, 1),
        (1.0, 0.011, 91),
        (1.0, 0.001, 1000),
        (1e-9, 1e-4, 1),
    ],
)
def test_after_which_step_it_stops(monkeypatch, seconds, cost, steps):
    trainer, looks = fitted(monkeypatch, seconds, lambda step: cost)
    assert steps <= trainer.step <= steps + 1  # sums of floats
    assert trainer.epoch == -(-trainer.step // 13)  # the partial epoch is in the history
    assert trainer.history["epoch"] == list(range(trainer.epoch))
    assert looks[-1] == trainer.step


def test_it_checks_rarely_and_more_often_near_the_limit(monkeypatch):
    _, looks = fitted(monkeypatch, 1.0, lambda step: 0.001)
    intervals = [b - a for a, b in pairwise([0, *looks])]
    assert intervals[:6] == [1, 2, 4, 8, 16, 32]
    assert max(intervals) in (49, 50) and len(intervals) < 35
    assert intervals[-1] < 5


def test_a_machine_that_slows_down(monkeypatch):
    trainer, looks = fitted(monkeypatch, 30.0, lambda step: 0.001 if step < 500 else 0.1)
    assert trainer.step - (500 + 295) <= 1
    assert [b - a for a, b in pairwise(looks)][-50:] == [1] * 50


def test_a_small_last_batch_says_little_about_others(monkeypatch):
    """90 examples in batches of 7: the last one has 6 and costs next to nothing here."""
    trainer, _ = fitted(monkeypatch, 10.0, lambda step: 1e-6 if step % 13 == 12 else 0.02)
    assert abs(trainer.step - 10 / 0.02 * 13 / 12) < 4


def test_validation_time_counts(monkeypatch):
    clock = Clock(monkeypatch, lambda step: 0.0)
    evaluated = Trainer.evaluate_rows

    def slow(*args, **options):
        clock.also += 10.0
        return evaluated(*args, **options)

    monkeypatch.setattr(Trainer, "evaluate_rows", slow)
    trainer = native_trainer()
    trainer.fit(X, Y, 9, batch_size=7, validation_data=(X, Y), callbacks=[TimeLimit(15.0)], verbose=0)
    assert trainer.epoch == 2 and trainer.step == 26


def test_each_fit_has_its_own_budget(monkeypatch):
    clock, limit, trainer = Clock(monkeypatch, lambda step: 0.1), TimeLimit(0.25), native_trainer()
    clock.trainer = trainer
    for steps in (3, 6, 9):
        trainer.fit(X, Y, 9, batch_size=7, callbacks=[limit], verbose=0)
        assert trainer.step == steps


def test_a_resume_gets_the_full_budget(monkeypatch, tmp_path):
    path = tmp_path / "c"
    interrupt_fit(native_trainer(), 16, callbacks=[TimeLimit(1000), Checkpoint(path, every_n_steps=1)])
    clock = Clock(monkeypatch, lambda step: 0.1)
    clock.trainer = trainer = Trainer.resume(path)
    trainer.fit(X, Y, **FIT, callbacks=[TimeLimit(0.45), Checkpoint(path)])
    assert trainer.step == 17 + 5 and trainer.epoch == 2
    clock.trainer = done = Trainer.resume(path)
    done.fit(X, Y, **FIT, callbacks=[TimeLimit(0.45)])  # it has completed
    assert full_state(done) == full_state(trainer)
    done.fit(X, Y, **FIT)  # another fit
    assert done.epoch == 2 + 4


def test_a_limit_that_is_not_reached_changes_no_bit():
    uninterrupted, trainer = native_trainer(), native_trainer()
    uninterrupted.fit(X, Y, **FIT)
    trainer.fit(X, Y, **FIT, callbacks=[TimeLimit(1000)])
    assert full_state(trainer) == full_state(uninterrupted)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "3", None])
def test_invalid_arguments(seconds):
    with pytest.raises((TypeError, ValueError), match="seconds: expected a"):
        TimeLimit(seconds)


def test_repr():
    assert repr(TimeLimit(60)) == "TimeLimit(60.0)"
