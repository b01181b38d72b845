"""Trainer.summary: the time of an epoch, with a clock of the test's own, and a trainer that does not change."""

import copy
import threading
from dataclasses import replace

import numpy as np
import pytest
from interrupted_fits import FIT, MAKERS, InterruptAfter, X, Y, batchnorm_trainer, full_state, native_trainer
from scipy.sparse import csr_matrix

from minidl import Layer, Sequential, Trainer, get_num_threads
from minidl.layers import Conv2D, Dense, Flatten, GlobalAvgPool2D, Outputs
from minidl.optimizers import SGD
from minidl.training import pace


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Measures the first step alone."""
    monkeypatch.setattr(pace, "SECONDS", 0.0)


@pytest.fixture
def clock(monkeypatch):
    """A clock by which each step takes 0.25 s, the first one 100 s more; it has the copy of the trainer."""

    class Clock:
        step_seconds = 0.25

        def perf_counter(self):
            return self.step_seconds * self.trainer.step + (100 if self.trainer.step else 0)

    ours, copied = Clock(), pace._copy_of

    def watched(trainer):
        ours.trainer = copied(trainer)
        return ours.trainer

    monkeypatch.setattr(pace, "SECONDS", 1.0)
    monkeypatch.setattr(pace, "time", ours)
    monkeypatch.setattr(pace, "_copy_of", watched)
    return ours


# ---- the time


@pytest.mark.parametrize(
    ("batch_size", "examples", "seconds"), [(7, None, 90 / 7 / 4), (7, 700, 25), (90, None, 0.25), (100, 450, 1.25)]
)
def test_an_epoch_takes_its_steps(clock, batch_size, examples, seconds):
    """The first step does not count; the copy trains for a second after it, over several epochs if there are few."""
    summary = native_trainer().summary(X, Y, batch_size, examples)
    assert summary.epoch_seconds == pytest.approx(seconds, rel=1e-12)
    assert (summary.examples, summary.batch_size) == (examples or 90, batch_size)
    assert clock.trainer.step == 5


def test_a_single_step_counts_if_there_is_no_other():
    watch = pace.Stopwatch()
    watch.paces = [3.0]
    assert watch.pace == 3.0
    watch.paces = [3.0, 1.0, 1.5, 9.0]
    assert watch.pace == 1.5


@pytest.mark.parametrize("batch_size", [7, 90])
def test_quick_steps_are_measured_together(monkeypatch, clock, batch_size):
    """The clock is read after ever more steps, and the measurement ends in time, at the latest before an epoch."""
    clock.step_seconds = 0.001
    seen, count = [], pace.Stopwatch.on_step_end

    def on_step_end(self, trainer, step, loss):
        seen.append(step + 1)
        count(self, trainer, step, loss)

    monkeypatch.setattr(pace.Stopwatch, "on_step_end", on_step_end)
    assert native_trainer().summary(X, Y, batch_size, 90).epoch_seconds == pytest.approx(0.09 / batch_size, rel=1e-6)
    assert seen[:6] == [1, 2, 4, 8, 16, 32] and len(seen) < 60
    assert 1001 <= clock.trainer.step <= 1001 + 13


def test_the_table_says_it():
    trainer = native_trainer()
    summary = trainer.summary(X, Y, 16, 50_000)
    assert replace(summary, epoch_seconds=None, examples=None, num_threads=None) == trainer.model.summary(16)
    assert summary.num_threads == get_num_threads()
    lines = {
        (95.4, 2): ", about 95 s an epoch of 50,000 examples on 2 threads",
        (12345, 1): ", about 12000 s an epoch of 50,000 examples on 1 thread",
        (0.01234, 8): ", about 0.012 s an epoch of 50,000 examples on 8 threads",
    }
    for (seconds, threads), line in lines.items():
        shown = replace(summary, epoch_seconds=seconds, num_threads=threads)
        assert str(shown).endswith(line) and shown._repr_html_().endswith(f"{line}</p>")
        assert copy.deepcopy(shown) == shown
    trainer.num_threads = 3
    assert trainer.summary(X, Y).num_threads == 3


# ---- nothing changes


@pytest.mark.parametrize("make", [*MAKERS.values(), batchnorm_trainer], ids=lambda make: make.__name__)
def test_a_trainer_goes_on_with_the_same_bits(make):
    """Also in the middle of a fit, which its hook measures, and after an interrupted one."""

    class Measures:
        def on_epoch_begin(self, trainer, epoch):
            trainer.summary(X, Y)

    plain, trainer = make(), make()
    plain.fit(X, Y, **FIT)
    trainer.summary(X, Y)
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(X, Y, **FIT, callbacks=[Measures(), InterruptAfter(20)])
    state, where = full_state(trainer), trainer.interrupted
    gradients = [param.grad.copy() for param in trainer.model.params.values()]
    trainer.summary(X, Y, 7)
    assert full_state(trainer) == state and repr(trainer.interrupted) == repr(where)
    for param, before in zip(trainer.model.params.values(), gradients, strict=True):
        np.testing.assert_array_equal(param.grad, before)
    trainer.fit(X, Y, **FIT, callbacks=[Measures()])
    assert full_state(trainer) == full_state(plain)


def test_metrics_are_not_called_and_methods_are_shared():
    """A loss that is a method belongs to anything, which may have no copy."""

    class Everything:
        def __init__(self):
            self.lock = threading.Lock()

        def loss(self, scores, y):
            return scores[:, 0] ** 2, 2 * scores * [1, 0, 0]

        def metric(self, y, scores):
            raise AssertionError("called")

    everything = Everything()
    model = Sequential([Flatten(), Dense(3)])
    trainer = Trainer(model, everything.loss, SGD(0.1), [everything.metric])
    assert trainer.summary(X, Y).examples == 90
    assert model.network is None and trainer.step == 0


def test_kinds_of_models():
    heads = Outputs(label=Dense(3), size=Dense(1))
    of_two = Trainer(
        Sequential([Flatten(), heads]),
        {"label": "softmax_cross_entropy", "size": "mean_squared_error"},
        SGD(0.1),
        loss_weights={"size": 0.5},
    )
    assert of_two.summary(X, {"label": Y, "size": X.mean(axis=(1, 2, 3))}).parameters == 37 * 4
    of_any_size = Trainer(
        Sequential([Conv2D(3, 3), GlobalAvgPool2D()], (1, None, None)), "softmax_cross_entropy", SGD(0.1)
    )
    assert of_any_size.summary(X, Y).input == (1, 6, 6)
    clipped = Trainer(Sequential([Dense(3)]), "softmax_cross_entropy", SGD(0.1), per_example_clip_norm=1.0)
    assert clipped.summary(csr_matrix(X.reshape(90, 36)), Y).parameters == 37 * 3
    frozen = native_trainer()
    frozen.model.layers[0].trainable = False
    assert frozen.summary(X, Y).trainable == frozen.model.summary().trainable < frozen.model.summary().parameters


# ---- refused


class Locked:
    """An optimizer that cannot be copied."""

    def __init__(self):
        self.lr, self.lock = 0.1, threading.Lock()

    def step(self, params, lr):
        pass


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"y": None}, TypeError, "y: expected the targets of X, got None"),
        ({"y": Y[:5]}, ValueError, "y: expected 90"),
        ({"X": X[:, :, :3]}, ValueError, "X: expected shape"),
        ({"X": X[:0], "y": Y[:0]}, ValueError, "X: expected at least one example"),
        ({"X": iter([(X, Y)])}, TypeError, "X: expected an array of real numbers"),
        ({"batch_size": 0}, ValueError, "batch_size: expected at least 1"),
        ({"examples": 0}, ValueError, "examples: expected at least 1"),
        ({"examples": 1e3}, TypeError, "examples: expected an integer"),
    ],
)
def test_invalid_arguments(arguments, error, message):
    trainer = native_trainer()
    before = full_state(trainer)
    with pytest.raises(error, match=f"^{message}"):
        trainer.summary(**{"X": X, "y": Y} | arguments)
    assert full_state(trainer) == before


def test_what_cannot_be_copied_is_refused():
    trainer = Trainer(Sequential([Flatten(), Dense(3)]), "softmax_cross_entropy", Locked())
    with pytest.raises(TypeError, match=r"^summary: expected layers, loss and optimizer that can be copied: .*lock"):
        trainer.summary(X, Y)


def test_the_middle_of_a_step_and_the_training_of_another_thread_are_refused():
    seen = []

    class Asks(Layer):
        def forward(self, x, training):
            for ask in (lambda: trainer.summary(X, Y), lambda: other.summary(X, Y)):
                thread = threading.Thread(target=lambda ask=ask: seen.append(refusal(ask)))
                thread.start()
                thread.join()
            return x

        def backward(self, dy):
            return dy

    def refusal(ask):
        with pytest.raises(RuntimeError) as raised:
            ask()
        return str(raised.value)

    trainer = Trainer(Sequential([Asks(), Flatten(), Dense(3)], (1, 6, 6)), "softmax_cross_entropy", SGD(0.1))
    other = Trainer(trainer.model, "softmax_cross_entropy", SGD(0.1))
    trainer.train_batch(X, Y)
    assert seen[0].startswith("summary: a step is being done") and "another thread" in seen[1]


def test_steps_that_diverge(monkeypatch):
    """The first one raises; a later one ends the measurement."""
    monkeypatch.setattr(pace, "SECONDS", 60.0)

    def diverging(after):
        calls = []

        def loss(scores, y):
            calls.append(len(y))
            return np.full(len(y), np.nan if len(calls) > after else 1.0), np.zeros_like(scores)

        return Trainer(Sequential([Flatten(), Dense(3)]), loss, SGD(0.1))

    with pytest.raises(FloatingPointError):
        diverging(0).summary(X, Y, 30)
    assert diverging(2).summary(X, Y, 30).epoch_seconds > 0
