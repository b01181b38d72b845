"""ReduceLROnPlateau: PyTorch's rates, and its state after a resume."""

import numpy as np
import pytest
from interrupted_fits import FIT, X, Y, batchnorm_trainer, full_state, interrupt_and_complete, interrupt_fit

from minidl import Sequential, Trainer
from minidl.callbacks import Checkpoint, ReduceLROnPlateau
from minidl.layers import Dense
from minidl.optimizers import SGD

NAN = float("nan")
LONG = {"epochs": 12, "validation_split": 0.3}
x, y = np.zeros((4, 3), "float32"), np.zeros(4, int)


def rates(monkeypatch, values, lr=1.0, **arguments):
    """Returns the rate of each epoch for these validation values."""
    left, trainer = iter(values), Trainer(Sequential([Dense(2)], (3,)), "softmax_cross_entropy", SGD(lr))
    monkeypatch.setattr(Trainer, "evaluate_rows", lambda *args, **options: {"loss": next(left)})
    trainer.fit(x, y, len(values), validation_data=(x, y), callbacks=[ReduceLROnPlateau(**arguments)], verbose=0)
    return [*trainer.history["lr"], trainer.optimizer.lr]


@pytest.mark.parametrize(
    ("values", "arguments", "expected"),
    [
        ([3, 2, 2, 2, 2], {"patience": 1}, [1, 1, 1, 1, 0.1, 0.1]),
        ([3, 2, 2, 2, 2], {"patience": 0, "factor": 0.5}, [1, 1, 1, 0.5, 0.25, 0.125]),
        ([3, 2, 2, 2, 2, 2], {"patience": 0, "factor": 0.5, "cooldown": 2}, [1, 1, 1, 0.5, 0.5, 0.5, 0.25]),
        ([3, 3, 3, 3], {"patience": 0, "factor": 0.5, "min_lr": 0.3}, [1, 1, 0.5, 0.3, 0.3]),
        ([3, NAN, 2, NAN, NAN], {"patience": 1}, [1, 1, 1, 1, 1, 0.1]),
        ([10, 9.5, 9.1, 8.9], {"patience": 1, "threshold": 0.1}, [1, 1, 1, 0.1, 0.1]),
        ([float("inf"), 2, 2], {"patience": 0}, [1, 0.1, 0.1, 0.1 * 0.1]),
        ([1, 2, 3, 3], {"patience": 0, "lower_is_better": False}, [1, 1, 1, 1, 0.1]),
        ([1, 1, 1], {"patience": 0, "min_lr": 5}, [1, 1, 1, 1]),  # it never rises
        ([-13, -13, -13], {"patience": 0, "threshold": 0}, [1, 1, 0.1, 0.1 * 0.1]),
        ([-13, -13, -13], {"patience": 0}, [1, 1, 0.1, 0.1 * 0.1]),
        ([-10, -10.5, -12], {"patience": 0, "threshold": 0.1}, [1, 1, 0.1, 0.1]),
        ([-9.8, -9.8005, -8], {"patience": 0, "lower_is_better": False}, [1, 1, 0.1, 0.1]),
        ([0, -1e-9, -1e-9], {"patience": 0}, [1, 1, 1, 0.1]),
    ],
)
def test_rates(monkeypatch, values, arguments, expected):
    assert rates(monkeypatch, values, **arguments) == expected


@pytest.mark.oracle
@pytest.mark.parametrize("seed", range(40))
def test_rates_match_torch(monkeypatch, seed):
    """For values of at least 0: PyTorch's threshold is on the wrong side of a negative one."""
    import torch

    rng = np.random.default_rng(seed)
    arguments = {
        "factor": float(rng.uniform(0.05, 0.95)),
        "patience": int(rng.integers(0, 5)),
        "threshold": float(rng.choice([0, 1e-4, 0.1])),
        "cooldown": int(rng.integers(0, 4)),
        "min_lr": float(rng.choice([0, 1e-3])),
    }
    lower = bool(rng.integers(2))
    values = rng.choice([NAN, np.inf, 0.0, *abs(rng.normal(size=4)), *rng.uniform(1, 1.2, 5)], 60).tolist()
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.3)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "min" if lower else "max", **arguments)
    expected = []
    for value in values:
        expected.append(optimizer.param_groups[0]["lr"])
        scheduler.step(value)
    result = rates(monkeypatch, values, 0.3, lower_is_better=lower, **arguments)
    assert result == [*expected, optimizer.param_groups[0]["lr"]]
    assert len(set(result)) > 1


def test_resuming_at_any_step_has_the_same_result(tmp_path):
    def callbacks():
        return [ReduceLROnPlateau(patience=0, factor=0.7, cooldown=1)]

    (uninterrupted, plateau) = batchnorm_trainer(), callbacks()[0]
    uninterrupted.fit(X, Y, **FIT | LONG, callbacks=[plateau])
    assert len(set(uninterrupted.history["lr"])) > 3
    for step in [0, 8, 9, 10, *range(11, uninterrupted.step - 1, 6)]:
        trainer, (again,) = interrupt_and_complete(batchnorm_trainer, step, callbacks, tmp_path / "c", **LONG)
        assert full_state(trainer) == full_state(uninterrupted), step
        assert trainer.optimizer.lr == uninterrupted.optimizer.lr
        assert again.state_dict() == plateau.state_dict()


def test_resuming_without_it_is_refused(tmp_path):
    interrupt_fit(
        batchnorm_trainer(), 3, **LONG, callbacks=[ReduceLROnPlateau(), Checkpoint(tmp_path / "c", every_n_steps=1)]
    )
    with pytest.raises(ValueError, match="expected ReduceLROnPlateau 'val_loss' as well"):
        Trainer.resume(tmp_path / "c").fit(X, Y, **FIT | LONG)


def test_a_second_fit_starts_over_with_the_current_rate():
    trainer, plateau = batchnorm_trainer(), ReduceLROnPlateau("loss", patience=0, threshold=0.9)
    trainer.fit(X, Y, **FIT | {"epochs": 2}, callbacks=[plateau])
    assert trainer.optimizer.lr == 0.2 * 0.1
    trainer.fit(X, Y, **FIT | {"epochs": 1}, callbacks=[plateau])
    assert plateau.best == trainer.history["loss"][-1] and trainer.optimizer.lr == 0.2 * 0.1


# ---- refused
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"monitor": "val_gini"}, ValueError, "monitor: expected one of .*, got 'val_gini'"),
        ({"factor": 0}, ValueError, r"factor: expected a number in \(0, 1\), got 0"),
        ({"factor": 1.0}, ValueError, r"factor: expected a number in \[0, 1\), got 1.0"),
        ({"factor": "x"}, TypeError, "factor: expected a number"),
        ({"patience": -1}, ValueError, "patience: expected at least 0"),
        ({"threshold": -1}, ValueError, "threshold: expected a number of at least 0"),
        ({"cooldown": 0.5}, TypeError, "cooldown: expected an integer"),
        ({"min_lr": -1}, ValueError, "min_lr: expected a number of at least 0"),
    ],
)
def test_invalid_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        ReduceLROnPlateau(**arguments)


def test_a_schedule_is_refused_before_the_first_step():
    trainer = batchnorm_trainer()
    trainer.optimizer = SGD(lambda step: 0.1)
    with pytest.raises(ValueError, match="optimizer: expected a number as lr, for ReduceLROnPlateau to lower"):
        trainer.fit(X, Y, **FIT, callbacks=[ReduceLROnPlateau("loss")])
    assert trainer.step == 0
    trainer.optimizer.lr = 0.1
    trainer.fit(X, Y, **FIT, callbacks=[ReduceLROnPlateau("loss")])


def test_repr():
    assert repr(ReduceLROnPlateau("loss")) == "ReduceLROnPlateau('loss', factor=0.1, patience=10)"
