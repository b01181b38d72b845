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

    Parameters and buffers are saved after the epoch with the best value of all (the first of equal ones), and restored
    at the end of the fit, whether it was stopped or ran to its last epoch. NaN is never better; if all values are NaN,
    the last weights stay.

    Parameters
    ----------
    monitor : str, default "val_loss"
        A name in the history.
    patience : int, default 0
        Number of consecutive epochs without improvement after which the fit ends (0 is the same as 1).
    min_delta : float, default 0.0
        An epoch is an improvement if its value is better by more than this than at the last improvement.
    lower_is_better : bool or None, default None
        Direction of `monitor`. Known for losses and minidl's metrics, required for others.

    Attributes
    ----------
    best : float or None
        Best value so far.
    best_epoch : int or None
        Its epoch, counted from 0 over the trainer's life.
    stopped_epoch : int or None
        Epoch at which patience ran out.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid. `fit` raises before its first step if the history has no `monitor`.

    Notes
    -----
    A later callback in the list may still overwrite the restored weights. If an exception interrupts the fit, the
    newest weights stay, because the fit may be completed. The optimizer's state, such as momentum, remains that of the
    last step.

    An estimator with `early_stopping=True` and an EarlyStopping in its `callbacks` leaves the choice to the latter.

    The attributes are None until they have a value, and are reset at the start of each fit. All of this state,
    including the saved weights, is in a checkpoint.

    "loss" and other values without `val_` are means over the steps of an epoch, each before its update: no weights
    have exactly that value. What is restored are the weights at the end of the epoch, whose own loss can be higher, as
    `evaluate` shows; `fit` prints which. Monitor a `val_` name to choose weights by their own value.

    Examples
    --------
    The rate is too large, so each epoch is worse than the one before:

    >>> from minidl import Sequential, Trainer
    >>> from minidl.callbacks import EarlyStopping
    >>> from minidl.layers import Dense
    >>> from minidl.optimizers import SGD
    >>> data, stopping = ([[1.0], [2.0]], [1.0, 2.0]), EarlyStopping(patience=3)
    >>> trainer = Trainer(Sequential([Dense(1)]), "mean_squared_error", SGD(0.5))
    >>> history = trainer.fit(*data, epochs=100, validation_data=data, callbacks=[stopping], verbose=0)
    >>> stopping.best_epoch, stopping.stopped_epoch, len(history["loss"])
    (0, 3, 4)
    >>> trainer.evaluate(*data)["loss"] == stopping.best == history["val_loss"][0]
    True
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
        self._like = arrays_like({})
        self.best: float | None = None
        self.best_epoch: int | None = None
        self.stopped_epoch: int | None = None
        self._weights: dict[str, Array] | None = None  # of the best epoch
        self._counted: float | None = None  # the value of the last epoch that improved by more than min_delta
        self._wait = 0  # epochs since then

    def on_fit_begin(self, trainer: Any) -> None:
        """Checks the monitor.

        Parameters
        ----------
        trainer : Trainer
            The trainer that calls it.

        Raises
        ------
        ValueError
            If the history has no `monitor`.
        """
        self._monitor.check(trainer)
        self._like = arrays_like(trainer.model.state_dict())

    def on_epoch_end(self, trainer: Any, epoch: int, logs: dict[str, float]) -> None:
        """Saves the weights if they are the best so far; stops the fit when patience runs out.

        Parameters
        ----------
        trainer : Trainer
            The trainer that calls it.
        epoch : int
            Number of the epoch, from 0.
        logs : dict of str to float
            The record of the epoch.
        """
        monitor = self._monitor
        value = monitor.value(trainer, logs)
        if monitor.is_better(value, self.best):
            self.best, self.best_epoch, self._weights = value, epoch, trainer.model.state_dict()
        than = None if self._counted is None else monitor.beyond(self._counted, self.min_delta)
        if monitor.is_better(value, than):
            self._counted, self._wait = value, 0
            return
        self._wait += 1
        if self._wait >= self.patience:
            self.stopped_epoch, trainer.should_stop = epoch, True

    def on_fit_end(self, trainer: Any) -> None:
        """Restores the best weights.

        Parameters
        ----------
        trainer : Trainer
            The trainer that calls it.
        """
        if self._weights is not None:
            trainer.model.load_state_dict(self._weights)

    @property
    def closing_note(self) -> str | None:
        """The line that `fit` prints at its end; None if the last epoch was the best."""
        if not self._wait or self.best is None:
            return None
        stopped = "" if self.stopped_epoch is None else f"stopped after {self._wait} epochs without improvement; "
        weights = "the weights" if self._monitor.is_held_out else "the weights after the epoch"
        whose = "" if self._monitor.is_held_out else ", a mean over its steps before their updates"
        return f"EarlyStopping: {stopped}restored {weights} with {self.monitor} {self.best:.4f}{whose}"

    @property
    def state_key(self) -> str:
        """The key by which a resume finds this callback's state."""
        return f"EarlyStopping {self.monitor!r}"

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of this fit, including the best weights.

        Returns
        -------
        dict
            The state.
        """
        return {
            "best": self.best,
            "best_epoch": self.best_epoch,
            "stopped_epoch": self.stopped_epoch,
            "weights": self._weights,
            "counted": self._counted,
            "wait": self._wait,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores a state.

        Parameters
        ----------
        state : dict
            What `state_dict` returned.

        Raises
        ------
        TypeError, ValueError
            If the state is invalid.
        """
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
