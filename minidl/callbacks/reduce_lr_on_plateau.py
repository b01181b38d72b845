"""ReduceLROnPlateau: lowers the learning rate when a fit gets no better."""

from __future__ import annotations

import math
import numbers
from typing import Any

from minidl.callbacks.monitor import Monitor
from minidl.callbacks.state_checks import check_state, real
from minidl.utils.validation import check_count, check_fraction, check_int, check_non_negative

LEAST = 1e-8  # a change that is no larger is not made, as in PyTorch


class ReduceLROnPlateau:
    """Multiplies the optimizer's learning rate by `factor` when epochs were no better, more than `patience` in a row.

    With the numbers of torch.optim.lr_scheduler.ReduceLROnPlateau (threshold_mode="rel"):

    monitor: the name of something in the history, such as "val_loss". NaN is never better.
    factor: in (0, 1). patience: how many epochs in a row may be no better.
    threshold: better is below best * (1 - threshold), or above best * (1 + threshold) where more is better.
    cooldown: so many epochs behind a reduction do not count. min_lr: the rate never goes below it.
    lower_is_better: of what is monitored; known for losses and accuracies, to be said for all else.

    `best` is the best value so far, infinite before the first. Each fit begins anew, with the rate that it finds. Rate,
    best value and counters are in a checkpoint.

    Raises TypeError or ValueError for arguments that make no sense; fit raises before its first step if it measures
    nothing that is called `monitor`, or if the optimizer's rate is a function of the step and no number.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        cooldown: int = 0,
        min_lr: float = 0.0,
        lower_is_better: bool | None = None,
    ) -> None:
        self._monitor = Monitor(monitor, lower_is_better)
        self.monitor, self.lower_is_better = monitor, self._monitor.lower_is_better
        if check_fraction("factor", factor) == 0:
            raise ValueError("factor: expected a number in (0, 1), got 0")
        self.factor, self.patience = float(factor), check_int("patience", patience, least=0)
        self.threshold, self.cooldown = (
            check_non_negative("threshold", threshold),
            check_int("cooldown", cooldown, least=0),
        )
        self.min_lr = check_non_negative("min_lr", min_lr)
        self._forget()

    def _forget(self) -> None:
        self.best = -self._monitor.sign * math.inf
        self._wait = 0  # epochs since, but those of a cooldown
        self._cooling = 0  # epochs of a cooldown that are left

    def on_fit_begin(self, trainer: Any) -> None:
        """Begins anew; raises ValueError for a rate that is no number, or if nothing of that name is measured."""
        self._monitor.check(trainer)
        lr = getattr(trainer.optimizer, "lr", None)
        if not isinstance(lr, numbers.Real):
            raise ValueError(f"optimizer: expected an lr that is a number, which ReduceLROnPlateau lowers, got {lr!r}")
        self._forget()

    def on_epoch_end(self, trainer: Any, epoch: int, logs: dict[str, float]) -> None:
        """Lowers the rate when patience is at its end."""
        value = logs[self.monitor]
        if self._monitor.is_better(value, self.best * (1 + self._monitor.sign * self.threshold)):
            self.best, self._wait = value, 0
        else:
            self._wait += 1
        if self._cooling:
            self._cooling, self._wait = self._cooling - 1, 0
        if self._wait > self.patience:
            self._cooling, self._wait = self.cooldown, 0
            lowered = max(trainer.optimizer.lr * self.factor, self.min_lr)
            if trainer.optimizer.lr - lowered > LEAST:
                trainer.optimizer.lr = lowered

    @property
    def state_key(self) -> str:
        """A resume finds by this what was remembered."""
        return f"ReduceLROnPlateau {self.monitor!r}"

    def state_dict(self) -> dict[str, Any]:
        """The best value and the counters; the rate is the optimizer's."""
        return {"best": self.best, "wait": self._wait, "cooling": self._cooling}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where the interrupted fit was; raises TypeError or ValueError for other states."""
        check_state(state, {"best": real, "wait": check_count, "cooling": check_count})
        self.best, self._wait, self._cooling = state["best"], state["wait"], state["cooling"]

    def __repr__(self) -> str:
        return f"ReduceLROnPlateau({self.monitor!r}, factor={self.factor}, patience={self.patience})"
