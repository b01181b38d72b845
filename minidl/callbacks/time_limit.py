"""TimeLimit: ends a fit after a time budget."""

from __future__ import annotations

import time
from typing import Any

from minidl.utils.hints import answers
from minidl.utils.validation import check_positive

CLOCK_CHECK_SECONDS = 0.05  # the interval at which the clock is read, as that of fit for signals


@answers({})
class TimeLimit:
    """Ends a fit after the step that exceeds a time limit, or after the epoch whose validation exceeds it.

    The last epoch is validated and recorded in the history, as after every `trainer.should_stop`. The fit then counts
    as complete: a resume has nothing left to do, and another fit continues training.

    Parameters
    ----------
    seconds : float
        Budget of one call of `fit`. A call that completes an interrupted fit gets the full budget again.

    Raises
    ------
    TypeError, ValueError
        If `seconds` is not a number above 0.

    Notes
    -----
    Steps are not slowed down. The clock is read every 0.05 s, and more often close to the limit. The fit therefore ends
    a step or two late, or a few more on a machine that has just become slower.

    Examples
    --------
    >>> from minidl import Sequential, Trainer
    >>> from minidl.callbacks import TimeLimit
    >>> from minidl.layers import Dense
    >>> from minidl.optimizers import SGD
    >>> trainer = Trainer(Sequential([Dense(1)]), "mean_squared_error", SGD(0.1))
    >>> history = trainer.fit([[1.0]], [1.0], epochs=10**6, callbacks=[TimeLimit(0.01)], verbose=0)
    >>> 0 < trainer.epoch < 10**6
    True
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = check_positive("seconds", seconds)
        self.every_n_steps = 1  # the step of the next clock check: no earlier step is a multiple of it

    def on_fit_begin(self, trainer: Any) -> None:
        """Starts the clock.

        Parameters
        ----------
        trainer : Trainer
            The trainer that calls it.
        """
        self._began = self._last_check = time.perf_counter()
        self._step, self.every_n_steps = trainer.step, trainer.step + 1

    def on_step_end(self, trainer: Any, step: int, loss: float) -> None:
        """Reads the clock, and schedules the next check.

        Parameters
        ----------
        trainer : Trainer
            The trainer that calls it.
        step : int
            Number of the step, from 0.
        loss : float
            Loss of the step.
        """
        now, steps = time.perf_counter(), trainer.step - self._step
        left = self._began + self.seconds - now
        if left <= 0:
            trainer.should_stop = True
        in_time = int(min(left, CLOCK_CHECK_SECONDS) * steps / max(now - self._last_check, 1e-9))
        # At most twice the steps of the last interval: a small last batch may have been faster than the others.
        self.every_n_steps = trainer.step + max(1, min(in_time, 2 * steps))
        self._last_check, self._step = now, trainer.step

    def on_epoch_end(self, trainer: Any, epoch: int, logs: dict[str, float]) -> None:
        """Reads the clock, because validation takes time too.

        Parameters
        ----------
        trainer : Trainer
            The trainer that calls it.
        epoch : int
            Number of the epoch, from 0.
        logs : dict of str to float
            The record of the epoch.
        """
        if time.perf_counter() - self._began >= self.seconds:
            trainer.should_stop = True

    def __repr__(self) -> str:
        return f"TimeLimit({self.seconds})"
