"""EarlyStopping: stops a fit that no longer improves, and restores the best weights."""

from __future__ import annotations

from typing import Any

from minidl.callbacks.monitor import Monitor
from minidl.callbacks.state_checks import arrays_like, check_number, check_state, optional
from minidl.utils.arrays import Array
from minidl.utils.hints import answers
from minidl.utils.validation import check_count, check_int, check_non_negative


@answers({})
class EarlyStopping:
    """Stops a fit after epochs without improvement, and restores the weights of the best epoch.

    monitor: a name in the history, such as "val_loss".
    patience: the number of consecutive epochs without improvement after which the fit ends (0 is the same as 1).
    min_delta: an epoch is an improvement if its value is better by more than this than at the last improvement.
    lower_is_better: the direction of `monitor`. Known for losses and accuracies, required for everything else.

    Parameters and buffers are saved after the epoch with the best value of all (the first of equal ones), and restored
    at the end of the fit, whether it was stopped or ran to its last epoch. A later callback in the list may still
    overwrite them then. If an exception interrupts the fit, the newest weights stay, because the fit may be completed.
    The optimizer's state, such as momentum, remains that of the last step. NaN is never better; if all values are NaN,
    the last weights stay.

    `best` is the best value so far and `best_epoch` its epoch, counted from 0 over the trainer's life; `stopped_epoch`
    is the epoch at which patience ran out. Each is None until it exists, and is reset at the start of each fit. All of
    this state, including the saved weights, is in a checkpoint.

    Raises TypeError or ValueError for invalid arguments. fit raises before its first step if the history has no
    `monitor`.
    """

    def __init__(
        self, monitor: str = "val_loss", patience: int = 0, min_delta: float = 0.0, lower_is_better: bool | None = None
    ) -> None:
        self._monitor = Monitor(monitor, lower_is_better)
        self.monitor, self.lower_is_better = monitor, self._monitor.lower_is_better
        self.patience, self.min_delta = (
            check_int("patience", patience, minimum=0),
            check_non_negative("min_delta", min_delta),
        )
        self._reset()

    def _reset(self) -> None:
        self.best: float | None = None
        self.best_epoch: int | None = None
        self.stopped_epoch: int | None = None
        self._weights: dict[str, Array] | None = None  # of the best epoch
        self._counted: float | None = None  # the value of the last epoch that improved by more than min_delta
        self._wait = 0  # epochs since then

    def on_fit_begin(self, trainer: Any) -> None:
        """Resets the state; raises ValueError if the history has no `monitor`."""
        self._monitor.check(trainer)
        self._like = arrays_like(trainer.model.state_dict())
        self._reset()

    def on_epoch_end(self, trainer: Any, epoch: int, logs: dict[str, float]) -> None:
        """Saves the weights if they are the best so far; stops the fit when patience runs out."""
        value, monitor = logs[self.monitor], self._monitor
        if monitor.is_better(value, self.best):
            self.best, self.best_epoch, self._weights = value, epoch, trainer.model.state_dict()
        than = None if self._counted is None else self._counted + monitor.sign * self.min_delta
        if monitor.is_better(value, than):
            self._counted, self._wait = value, 0
            return
        self._wait += 1
        if self._wait >= self.patience:
            self.stopped_epoch, trainer.should_stop = epoch, True

    def on_fit_end(self, trainer: Any) -> None:
        """Restores the best weights."""
        if self._weights is not None:
            trainer.model.load_state_dict(self._weights)

    @property
    def state_key(self) -> str:
        """The key by which a resume finds this callback's state."""
        return f"EarlyStopping {self.monitor!r}"

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of this fit, including the best weights."""
        return {
            "best": self.best,
            "best_epoch": self.best_epoch,
            "stopped_epoch": self.stopped_epoch,
            "weights": self._weights,
            "counted": self._counted,
            "wait": self._wait,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores a state, after on_fit_begin; raises TypeError or ValueError for an invalid one."""
        checks = {
            "best": check_number,
            "counted": check_number,
            "best_epoch": check_count,
            "stopped_epoch": check_count,
            "weights": self._like,
        }
        check_state(state, {"wait": check_count} | {name: optional(check) for name, check in checks.items()})
        self.best, self.best_epoch, self.stopped_epoch = state["best"], state["best_epoch"], state["stopped_epoch"]
        self._weights, self._counted, self._wait = state["weights"], state["counted"], state["wait"]

    def __repr__(self) -> str:
        return f"EarlyStopping({self.monitor!r}, patience={self.patience})"
