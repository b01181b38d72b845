"""TimeLimit: ends a fit when its time is over."""

from __future__ import annotations

import time
from typing import Any

from minidl.utils.validation import check_positive

LOOK_SECONDS = 0.05  # how often it looks at the clock: as often as fit looks at signals


class TimeLimit:
    """Ends a fit behind the step that passes a limit of time, or behind the epoch whose validation does.

    seconds: for one call of fit, from its beginning. One that completes a fit that was broken off has them all again.

    The epoch it ends in is validated, and in the history, as after every `trainer.should_stop`. The fit has come to its
    end then: there is nothing left to do for a resume, and another fit trains on.

    Steps stay as fast as they are. The clock is looked at each 0.05 s, more often where the limit is near, so the fit
    is late by a step or two, and by a few more on a machine that has just become slower.

    Raises TypeError or ValueError for seconds that are no number above 0.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = check_positive("seconds", seconds)
        self.every_n_steps = 1  # the number of the next step to see: until then no step is a multiple of it

    def on_fit_begin(self, trainer: Any) -> None:
        """Starts the clock."""
        self._began = self._looked = time.perf_counter()
        self._step, self.every_n_steps = trainer.step, trainer.step + 1

    def on_step_end(self, trainer: Any, step: int, loss: float) -> None:
        """Looks at the clock, and decides when to do so again."""
        now, steps = time.perf_counter(), trainer.step - self._step
        left = self._began + self.seconds - now
        if left <= 0:
            trainer.should_stop = True
        in_time = int(min(left, LOOK_SECONDS) * steps / max(now - self._looked, 1e-9))
        self.every_n_steps = trainer.step + max(1, min(in_time, 2 * steps))  # a small last batch tells little of others
        self._looked, self._step = now, trainer.step

    def on_epoch_end(self, trainer: Any, epoch: int, logs: dict[str, float]) -> None:
        """Looks at the clock: validation takes time too."""
        if time.perf_counter() - self._began >= self.seconds:
            trainer.should_stop = True

    def __repr__(self) -> str:
        return f"TimeLimit({self.seconds})"
