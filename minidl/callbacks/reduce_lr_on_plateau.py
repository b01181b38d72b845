"""ReduceLROnPlateau: lowers the learning rate when the fit stops improving."""

from __future__ import annotations

import math
import numbers
from typing import Any

from minidl.callbacks.monitor import Monitor
from minidl.callbacks.state_checks import check_number, check_state
from minidl.utils.hints import answers
from minidl.utils.validation import check_count, check_fraction, check_int, check_non_negative

MIN_LR_CHANGE = 1e-8  # smaller reductions are skipped, as in PyTorch


@answers({})
class ReduceLROnPlateau:
    """Multiplies the optimizer's learning rate by `factor` after more than `patience` epochs without improvement.

    Same rates as torch.optim.lr_scheduler.ReduceLROnPlateau (threshold_mode="rel"):

    monitor: a name in the history, such as "val_loss". NaN is never better.
    factor: in (0, 1). patience: the number of consecutive epochs without improvement that are tolerated.
    threshold: an improvement is below best * (1 - threshold), or above best * (1 + threshold) if higher is better.
    cooldown: the number of epochs after a reduction that do not count. min_lr: lower limit of the learning rate.
    lower_is_better: the direction of `monitor`. Known for losses and accuracies, required for everything else.

    `best` is the best value so far, infinite before the first. Each fit resets it and starts from the optimizer's
    current learning rate. Learning rate, best value and counters are in a checkpoint.

    Raises TypeError or ValueError for invalid arguments. fit raises before its first step if the history has no
    `monitor`, or if the optimizer's lr is a function of the step instead of a number.
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
        self.factor, self.patience = float(factor), check_int("patience", patience, minimum=0)
        self.threshold, self.cooldown = (
            check_non_negative("threshold", threshold),
            check_int("cooldown", cooldown, minimum=0),
        )
        self.min_lr = check_non_negative("min_lr", min_lr)
        self._reset()

    def _reset(self) -> None:
        self.best = -self._monitor.sign * math.inf
        self._wait = 0  # epochs since the best value, without those of a cooldown
        self._cooling = 0  # remaining epochs of a cooldown

    def on_fit_begin(self, trainer: Any) -> None:
        """Resets the state; raises ValueError if lr is not a number, or if the history has no `monitor`."""
        self._monitor.check(trainer)
        lr = getattr(trainer.optimizer, "lr", None)
        if not isinstance(lr, numbers.Real):
            raise ValueError(f"optimizer: expected a number as lr, for ReduceLROnPlateau to lower, got {lr!r}")
        self._reset()

    def on_epoch_end(self, trainer: Any, epoch: int, logs: dict[str, float]) -> None:
        """Lowers the learning rate when patience runs out."""
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
            if trainer.optimizer.lr - lowered > MIN_LR_CHANGE:
                trainer.optimizer.lr = lowered

    @property
    def state_key(self) -> str:
        """The key by which a resume finds this callback's state."""
        return f"ReduceLROnPlateau {self.monitor!r}"

    def state_dict(self) -> dict[str, Any]:
        """Returns the best value and the counters; the optimizer saves the learning rate."""
        return {"best": self.best, "wait": self._wait, "cooling": self._cooling}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores a state; raises TypeError or ValueError for an invalid one."""
        check_state(state, {"best": check_number, "wait": check_count, "cooling": check_count})
        self.best, self._wait, self._cooling = state["best"], state["wait"], state["cooling"]

    def __repr__(self) -> str:
        return f"ReduceLROnPlateau({self.monitor!r}, factor={self.factor}, patience={self.patience})"
