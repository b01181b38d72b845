"""EarlyStopping: ends a fit that gets no better, with the best weights it had."""

from __future__ import annotations

from typing import Any

from minidl.callbacks.monitor import Monitor
from minidl.callbacks.state_checks import arrays_like, check_state, optional, real
from minidl.utils.arrays import Array
from minidl.utils.validation import check_count, check_int, check_non_negative


class EarlyStopping:
    """Stops a fit when epochs in a row were no better, and leaves the best epoch's weights in the model.

    monitor: the name of something in the history, such as "val_loss".
    patience: how many epochs in a row may be no better; the last of them is the last of the fit (0 is as 1).
    min_delta: an epoch counts as better if it is so by more than this, beside the last one that counted.
    lower_is_better: of what is monitored; known for losses and accuracies, to be said for all else.

    Parameters and buffers are noted behind the epoch with the best value of all (of equal ones the first), and put back
    at the end of the fit, whether it was stopped or ran to its last epoch. A callback behind this one in the list that
    writes into the model at that moment has the last word. A fit that an exception breaks off keeps its newest weights,
    for it may be completed. What the optimizer remembers, such as momentum, stays that of the last step. NaN is never
    better; if there was nothing else, the last weights stay.

    `best` is the best value so far and `best_epoch` its epoch, counted from 0 over the trainer's life; `stopped_epoch`
    is the one that had no patience left. They are None where there is none, and each fit begins anew. All of this,
    the noted weights too, is in a checkpoint.

    Raises TypeError or ValueError for arguments that make no sense; fit raises before its first step if it measures
    nothing that is called `monitor`.
    """

    def __init__(
        self, monitor: str = "val_loss", patience: int = 0, min_delta: float = 0.0, lower_is_better: bool | None = None
    ) -> None:
        self._monitor = Monitor(monitor, lower_is_better)
        self.monitor, self.lower_is_better = monitor, self._monitor.lower_is_better
        self.patience, self.min_delta = (
            check_int("patience", patience, least=0),
            check_non_negative("min_delta", min_delta),
        )
        self._forget()

    def _forget(self) -> None:
        self.best: float | None = None
        self.best_epoch: int | None = None
        self.stopped_epoch: int | None = None
        self._weights: dict[str, Array] | None = None  # of the best epoch
        self._counted: float | None = None  # the value of the last epoch that was better by more than min_delta
        self._wait = 0  # epochs since

    def on_fit_begin(self, trainer: Any) -> None:
        """Begins anew; raises ValueError if nothing of that name is measured."""
        self._monitor.check(trainer)
        self._like = arrays_like(trainer.model.state_dict())
        self._forget()

    def on_epoch_end(self, trainer: Any, epoch: int, logs: dict[str, float]) -> None:
        """Notes the weights if they are the best so far; stops when patience is at its end."""
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
        """Puts the best weights back."""
        if self._weights is not None:
            trainer.model.load_state_dict(self._weights)

    @property
    def state_key(self) -> str:
        """A resume finds by this what was remembered."""
        return f"EarlyStopping {self.monitor!r}"

    def state_dict(self) -> dict[str, Any]:
        """All that it knows of this fit."""
        return {
            "best": self.best,
            "best_epoch": self.best_epoch,
            "stopped_epoch": self.stopped_epoch,
            "weights": self._weights,
            "counted": self._counted,
            "wait": self._wait,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where the interrupted fit was; comes after on_fit_begin. Raises TypeError, ValueError for others."""
        numbers = {
            "best": real,
            "counted": real,
            "best_epoch": check_count,
            "stopped_epoch": check_count,
            "weights": self._like,
        }
        check_state(state, {"wait": check_count} | {name: optional(check) for name, check in numbers.items()})
        self.best, self.best_epoch, self.stopped_epoch = state["best"], state["best_epoch"], state["stopped_epoch"]
        self._weights, self._counted, self._wait = state["weights"], state["counted"], state["wait"]

    def __repr__(self) -> str:
        return f"EarlyStopping({self.monitor!r}, patience={self.patience})"
