"""Ctrl-C and SIGTERM during a fit: they act between steps, never within one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """A context in which Ctrl-C waits for the end of what is `held`, and SIGTERM for the next `check`.

    A handler that was there before gets the signal then: Python's own raises KeyboardInterrupt. SIGTERM without any
    handler raises SystemExit(143), so that `finally` clauses run. The same signal once more acts at once. Signals that
    are ignored stay so. Only the main thread may have handlers; elsewhere nothing is done.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._pending: list[int] = []
        self._held = 0

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                before = signal.getsignal(number)
                if before is not None and before != signal.SIG_IGN:  # None: not set from Python, so not ours to replace
                    self._before[number] = before
                    signal.signal(number, self._note)
        return self

    def __exit__(self, *error: object) -> None:
        for number, before in self._before.items():
            if signal.getsignal(number) == self._note:  # or else somebody has set another one since
                signal.signal(number, before)
        pending, self._pending = self._pending, []
        for number in pending:
            signal.raise_signal(number)  # nobody has acted on it: as if it came now

    @contextmanager
    def held(self) -> Iterator[None]:
        """A context that no signal interrupts."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
        if signal.SIGINT in self._pending and not self._held:
            self._act(signal.SIGINT, None)

    def check(self, terminating: Callable[[], None]) -> None:
        """Acts on a SIGTERM that has come, after calling `terminating`: all is between two steps now."""
        if signal.SIGTERM in self._pending:
            terminating()
            self._act(signal.SIGTERM, None)

    def _note(self, number: int, frame: FrameType | None) -> None:
        again = number in self._pending
        if again or (number == signal.SIGINT and not self._held):
            self._act(number, frame)
        else:
            self._pending.append(number)

    def _act(self, number: int, frame: FrameType | None) -> None:
        if number in self._pending:
            self._pending.remove(number)
        before = self._before[number]
        if callable(before):
            before(number, frame)
        elif number == signal.SIGTERM:
            raise SystemExit(128 + number)
        else:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
