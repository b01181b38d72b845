"""Odd values assigned to mutable attributes: refused at once, or saved and resumed."""

from contextlib import suppress

import numpy as np
import pytest
from interrupted_fits import X, Y, full_state

from minidl import Sequential, Trainer
from minidl.layers import Dense, Flatten
from minidl.optimizers import SGD, Adam
from minidl.schedules import Cosine, Exponential, MultiStep, OneCycle, Polynomial, Step


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.safetensors"


NUMBERS = [-1, 0, 1, 3, 7.0, 60, 1e-30, -0.5, 0.3, 1e300, float("nan"), float("inf")]
ODD = [None, True, *NUMBERS, "x", [30, 60], (9, 5), [], {}]
SCHEDULED = [
    lambda: Step(0.1, 5),
    lambda: MultiStep(0.1, (10, 20)),
    lambda: Exponential(0.1, 0.9),
    lambda: Polynomial(0.1, 50),
    lambda: Cosine(0.01, 50, warmup_steps=5),
    lambda: OneCycle(0.1, 50),
]


@pytest.mark.parametrize("made", SCHEDULED)
def test_a_schedule_refuses_an_odd_value_or_trains_on_with_it(path, made):
    names = list(vars(made()))
    refused = 0
    for name in names:
        for value in ODD:
            schedule = made()
            before = dict(vars(schedule))
            try:
                setattr(schedule, name, value)
            except (TypeError, ValueError) as error:
                refused += 1
                assert str(error).startswith((f"{name}:", "lr:", "warmup_steps:")), error
                assert vars(schedule) == before
                continue
            trainer = Trainer(Sequential([Flatten(), Dense(2)], (1, 6, 6)), "softmax_cross_entropy", SGD(schedule))
            for step in (0, 3, 59, 1000):
                with suppress(ValueError):  # a rate too large for a float, which training reports
                    assert schedule(step) >= 0
            trainer.save_checkpoint(path)
            assert vars(Trainer.resume(path).optimizer.lr) == vars(schedule), (name, value)
    assert refused > len(ODD)


class Odd:
    """A value that is valid nowhere in a trainer."""


PARTS = [*ODD, object(), Odd(), Odd, SGD, np.zeros(3), "huber", ["accuracy"], {"a": 3}, [Odd()], np.int64(3)]


@pytest.mark.parametrize(
    "attribute",
    [
        "model",
        "loss",
        "metrics",
        "optimizer",
        "num_threads",
        "should_stop",
        "history",
        "epoch",
        "seed",
        "step",
        "model.dtype",
    ],
)
def test_every_trainer_attribute_refuses_an_odd_value_or_trains_on_with_it(path, attribute):
    """A value that is accepted but cannot be saved, such as a class, makes the save fail."""
    refused = 0
    for value in PARTS:
        model = Sequential([Flatten(), Dense(2)], (1, 6, 6))
        trainer = Trainer(model, "softmax_cross_entropy", Adam(0.1), ["accuracy"])
        trainer.train_batch(X, Y % 2)
        owner, name = (trainer.model, "dtype") if attribute == "model.dtype" else (trainer, attribute)
        before = getattr(owner, name)
        try:
            setattr(owner, name, value)
        except (TypeError, ValueError) as error:
            refused += 1
            assert str(error).startswith(f"{name}:"), error
            assert getattr(owner, name) is before or getattr(owner, name) == before
        path.unlink(missing_ok=True)
        try:
            trainer.save_checkpoint(path)
        except TypeError as error:  # such as a class instead of an object
            assert f"{attribute}: cannot be saved" in str(error) and not path.exists()
            continue
        assert full_state(Trainer.resume(path)) == full_state(trainer), (attribute, value)
    assert refused >= len(PARTS) // 2


def test_metrics_are_set_as_the_constructor_takes_them():
    trainer = Trainer(Sequential([Flatten(), Dense(2)], (1, 6, 6)), "softmax_cross_entropy", Adam(0.1))
    trainer.metrics = ["accuracy"]
    assert set(trainer.evaluate(X, Y % 2)) == {"loss", "accuracy"}
    trainer.metrics = trainer.metrics
    assert set(trainer.evaluate(X, Y % 2)) == {"loss", "accuracy"}
    trainer.loss = "mean_squared_error"
    assert callable(trainer.loss)


@pytest.mark.parametrize(
    "attribute",
    ["epoch", "step", "seed", "clip_norm", "clip_value", "per_example_clip_norm", "optimizer.lr", "model.seed"],
)
def test_a_trainer_refuses_an_odd_value_or_trains_on_with_it(path, attribute):
    for value in ODD:
        trainer = Trainer(Sequential([Flatten(), Dense(2)], (1, 6, 6)), "softmax_cross_entropy", Adam(0.1))
        trainer.train_batch(X, Y % 2)
        owner = trainer
        *owners, name = attribute.split(".")
        for one in owners:
            owner = getattr(owner, one)
        before = getattr(owner, name)
        try:
            setattr(owner, name, value)
        except (TypeError, ValueError) as error:
            assert str(error).startswith(f"{name}:"), error
            assert getattr(owner, name) == before
        trainer.save_checkpoint(path)
        again = Trainer.resume(path)
        assert full_state(again) == full_state(trainer)


def test_a_loss_or_optimizer_that_cannot_be_recreated_refuses_the_save(path):
    class Picky:
        def __init__(self, lr):
            if lr > 0.5:
                raise ValueError(f"lr: expected at most 0.5, got {lr}")
            self.lr = lr

        def step(self, params, lr):
            pass

    trainer = Trainer(Sequential([Flatten(), Dense(2)], (1, 6, 6)), "softmax_cross_entropy", Picky(0.1))
    trainer.optimizer.lr = 0.7
    with pytest.raises(TypeError, match=r"a resume would refuse it: lr: expected at most 0\.5, got 0\.7"):
        trainer.save_checkpoint(path)
    assert not path.exists()


@pytest.mark.parametrize("name", ["step", "epoch"])
def test_counters_stay_below_the_largest_integer(name):
    trainer = Trainer(Sequential([Dense(2)], (3,)), "mean_squared_error", SGD(0.1))
    setattr(trainer, name, 2**62 - 1)
    with pytest.raises(ValueError, match=f"{name}: expected at most {2**62 - 1}, got {2**62}"):
        setattr(trainer, name, 2**62)
    assert getattr(trainer, name) == 2**62 - 1
