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

    The rates are those of torch.optim.lr_scheduler.ReduceLROnPlateau with `threshold_mode="rel"`, as long as `monitor`
    has no negative value: of such, PyTorch counts a slightly worse one as an improvement.

    Parameters
    ----------
    monitor : str, default "val_loss"
        A name in the history. NaN is never better.
    factor : float, default 0.1
        In (0, 1).
    patience : int, default 10
        Number of consecutive epochs without improvement that are tolerated.
    threshold : float, default 1e-4
        An improvement is better than `best` by more than `threshold * abs(best)`.
    cooldown : int, default 0
        Number of epochs after a reduction that do not count.
    min_lr : float, default 0.0
        Lower limit of the learning rate.
    lower_is_better : bool or None, default None
        Direction of `monitor`. Known for losses and minidl's metrics, required for others.

    Attributes
    ----------
    best : float
        Best value so far, infinite before the first.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid. `fit` raises before its first step if the history has no `monitor`, or if the
        optimizer's `lr` is a function of the step instead of a number.

    Notes
    -----
    Each fit begins with a new `best` and the optimizer's current learning rate. Learning rate, best value and counters
    are in a checkpoint.

    Examples
    --------
    The first weights are already the best ones, so the loss never improves:

    >>> from minidl import Sequential, Trainer
    >>> from minidl.callbacks import ReduceLROnPlateau
    >>> from minidl.layers import Dense
    >>> from minidl.optimizers import SGD
    >>> model = Sequential([Dense(1)], input_shape=(1,))
    >>> model.load_state_dict({"0.weight": [[0]], "0.bias": [0]})
    >>> trainer = Trainer(model, "mean_squared_error", SGD(0.1))
    >>> reduce = ReduceLROnPlateau("loss", factor=0.5, patience=2)
    >>> history = trainer.fit([[0.0], [0.0]], [1.0, -1.0], epochs=8, callbacks=[reduce], verbose=0)
    >>> history["lr"]
    [0.1, 0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.025]
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
        self.best = self._monitor.beyond(0.0, -math.inf)
        self._wait = 0  # epochs since the best value, without those of a cooldown
        self._cooling = 0  # remaining epochs of a cooldown

    def on_fit_begin(self, trainer: Any) -> None:
        """Checks optimizer and monitor.

        Parameters
        ----------
        trainer : Trainer
            The trainer that calls it.

        Raises
        ------
        ValueError
            If `lr` is not a number, or if the history has no `monitor`.
        """
        self._monitor.check(trainer)
        lr = getattr(trainer.optimizer, "lr", None)
        if not isinstance(lr, numbers.Real):
            raise ValueError(f"optimizer: expected a number as lr, for ReduceLROnPlateau to lower, got {lr!r}")

    def on_epoch_end(self, trainer: Any, epoch: int, logs: dict[str, float]) -> None:
        """Lowers the learning rate when patience runs out.

        Parameters
        ----------
        trainer : Trainer
            The trainer that calls it.
        epoch : int
            Number of the epoch, from 0.
        logs : dict of str to float
            The record of the epoch.
        """
        value = self._monitor.value(trainer, logs)
        margin = self.threshold * abs(self.best) if math.isfinite(self.best) else 0.0
        if self._monitor.is_better(value, self._monitor.beyond(self.best, margin)):
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
        """Returns the best value and the counters; the optimizer saves the learning rate.

        Returns
        -------
        dict
            The state.
        """
        return {"best": self.best, "wait": self._wait, "cooling": self._cooling}

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
        check_state(state, {"best": check_number, "wait": check_count, "cooling": check_count})
        self.best, self._wait, self._cooling = state["best"], state["wait"], state["cooling"]

    def __repr__(self) -> str:
        return f"ReduceLROnPlateau({self.monitor!r}, factor={self.factor}, patience={self.patience})"
