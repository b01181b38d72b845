"""Repeated steps of train_batch: trainers with parts of their own, other threads, signals, and what is kept alive."""

import gc
import signal
import sys
import threading
import weakref
from contextlib import suppress

import numpy as np
import pytest

from minidl import Sequential, Trainer
from minidl.layers import Dense, ReLU
from minidl.losses import MeanSquaredError
from minidl.optimizers import SGD, Adam
from minidl.training import sample_buffer

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((64, 6)).astype("float32"), RNG.standard_normal((64, 3)).astype("float32")
N = 8


class Never:
    """In place of a trainer's RepeatedSteps."""

    def run(self, *_):
        return None

    remember = run


def make(cls=Trainer, rate=0.1, units=8):
    model = Sequential([Dense(units), ReLU(), Dense(3)], (6,), seed=3)
    return cls(model, MeanSquaredError(), SGD(rate))


def losses(trainer, steps=4):
    return [trainer.train_batch(X[:N], Y[:N]) for _ in range(steps)]


def stored(name):
    """Returns a subclass whose attribute of this name is a property, with the value that the trainer got."""

    def get(self):
        return vars(self).get(f"own {name}", 0.5 if name.startswith("clip") else None)

    return type("Own", (Trainer,), {name: property(get, lambda self, value: vars(self).update({f"own {name}": value}))})


class Halved(Trainer):
    """A trainer with rates of its own."""

    def rate_at(self, step):
        return super().rate_at(step) / 2


class Stepping(Trainer):
    """A trainer that counts its steps."""

    entered = 0

    def stepping(self):
        self.entered += 1
        return super().stepping()


@pytest.mark.parametrize(
    "cls", [Halved, *map(stored, ("model", "optimizer", "loss", "clip_norm", "clip_value", "seed", "num_threads"))]
)
def test_a_subclass_with_parts_of_its_own(cls):
    one, other = make(cls), make(cls)
    other._repeated = Never()
    assert losses(one) == losses(other)
    assert not one._repeated._known


def test_a_method_that_is_overridden_is_called_in_each_step():
    trainer = make(Stepping)
    losses(trainer)
    assert trainer.entered == 4


@pytest.mark.parametrize("name", ["run", "rate_at", "check_targets", "batches", "steps", "stepping"])
def test_a_method_that_is_replaced_in_a_trainer_is_called(name):
    trainer, calls = make(), []
    losses(trainer)
    own = getattr(trainer, name)

    def replaced(*arguments, **options):
        calls.append(name)
        return own(*arguments, **options)

    setattr(trainer, name, replaced)
    losses(trainer)
    assert len(calls) >= 4
    delattr(trainer, name)
    losses(trainer)
    calls.clear()
    losses(trainer)
    assert not calls


def test_another_class_and_another_counter_have_their_effect():
    results = []
    for repeated in (True, False):
        trainer = make()
        trainer.optimizer.lr = lambda step: 0.1 / (1 + step)
        if not repeated:
            trainer._repeated = Never()
        found = losses(trainer)
        trainer.step_counter = np.array([40])
        found += losses(trainer)
        trainer.__class__ = Halved
        results.append((found + losses(trainer), trainer.step))
    assert results[0] == results[1]
    assert results[0][1] == 48


class Plain:
    """An optimizer in NumPy."""

    lr = 0.1

    def step(self, params, lr):
        pass


EXCHANGED = {"model": lambda: make().model, "optimizer": lambda: Adam(0.1), "optimizer, in NumPy": Plain}


@pytest.mark.parametrize("exchanged", EXCHANGED)
@pytest.mark.parametrize("rows", [5, 9])  # of a form that it has seen, and has not
def test_an_exchanged_part_is_not_kept_alive(exchanged, rows):
    trainer, part = make(), exchanged.split(",")[0]
    losses(trainer)
    trainer.train_batch(X[:5], Y[:5])
    old = weakref.ref(getattr(trainer, part))
    setattr(trainer, part, EXCHANGED[exchanged]())
    trainer.train_batch(X[:rows], Y[:rows])
    gc.collect()
    assert old() is None


def test_a_signal_handler_that_trains_changes_no_loss_of_another_batch():
    """It is refused inside a step, and its own losses are in the same memory."""
    trainer, wrong, inner = make(rate=0.0), [], []
    of_first, of_other = trainer.train_batch(X[:N], Y[:N]), trainer.train_batch(X[N : 2 * N], Y[N : 2 * N])

    def handler(number, frame):
        with suppress(RuntimeError):
            inner.append(trainer.train_batch(X[N : 2 * N], Y[N : 2 * N]))

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
    try:
        for _ in range(20_000):
            if (loss := trainer.train_batch(X[:N], Y[:N])) != of_first:
                wrong.append(loss)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not wrong
    assert inner and set(inner) == {of_other}


def test_threads_that_take_turns_get_the_losses_of_their_batches():
    trainer, wrong = make(rate=0.0), []
    expected = [trainer.train_batch(X[k : k + N], Y[k : k + N]) for k in (0, N)]

    def work(k):
        done = 0
        while done < 3_000:
            try:
                loss = trainer.train_batch(X[k * N : k * N + N], Y[k * N : k * N + N])
            except RuntimeError:
                continue
            done += 1
            if loss != expected[k]:
                wrong.append(loss)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not wrong


def test_sampled_batches_ask_a_loss_for_its_targets_once(monkeypatch):
    class Counted(MeanSquaredError):
        calls = 0

        def targets(self, y, shape, dtype):
            Counted.calls += 1
            return super().targets(y, shape, dtype)

    monkeypatch.setattr(sample_buffer, "SAMPLED", 2**32)  # each batch
    trainer = Trainer(make().model, Counted(), SGD(0.1))
    losses(trainer)
    Counted.calls = 0
    losses(trainer)
    assert Counted.calls == 4


def test_a_step_that_is_not_finite_is_sampled_once():
    one, other = make(), make()
    other._repeated = Never()
    for trainer in (one, other):
        losses(trainer)
        trainer.model.params["0.weight"].value[...] = 3e38
        with pytest.raises(FloatingPointError):
            losses(trainer)
    found = [trainer.sample_buffer.sample(trainer.sample_key) for trainer in (one, other)]
    assert len(found[0].X) == len(found[1].X)
    assert one.sample_buffer._calls == other.sample_buffer._calls
