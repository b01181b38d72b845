"""Waiting: how a rank waits for others, without load and for a limited time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

SPIN_SECONDS = 0.002  # polls without a pause for this long: steps of small nets are exchanged in less
PAUSE_SHARE = 0.02  # then pauses for this share of what it has waited, so that no answer is noticed much later
MAX_PAUSE = 0.005  # seconds: some 200 polls a second are 1 to 2 % of a core
MAX_TICK = 1.0  # seconds between two polls that count at most: a suspended process does not wait
LOOK_SECONDS = 0.25  # looks this often at what has become of the others
WARNING_SECONDS = 60.0
_yield = getattr(os, "sched_yield", lambda: None)  # another rank may need this processor


class Waiting:
    """A wait: polls with pauses, says once that it takes long, and raises TimeoutError after `timeout` seconds.

    timeout: None waits forever. seconds: those in which this process waited, without those in which it was suspended.
    """

    def __init__(self, timeout: float | None) -> None:
        self.timeout, self.seconds = timeout, 0.0

    def until(self, done: Callable[[], bool], look: Callable[[], None], say: Callable[[bool], None]) -> None:
        """Returns once `done()` is true.

        look: called some times a second; may raise. say: called with False after WARNING_SECONDS, and with True if the
        wait ends later.
        """
        looked, said, last = 0.0, False, time.perf_counter()
        while not done():
            now = time.perf_counter()
            self.seconds, last = self.seconds + min(now - last, MAX_TICK), now
            if self.seconds < SPIN_SECONDS:
                _yield()
                continue
            if self.seconds - looked > LOOK_SECONDS:
                looked = self.seconds
                look()
                if self.timeout is not None and self.seconds > self.timeout:
                    raise TimeoutError
                if self.seconds > WARNING_SECONDS and not said:
                    said = True
                    say(False)
            time.sleep(min(PAUSE_SHARE * self.seconds, MAX_PAUSE))
        if said:
            say(True)
