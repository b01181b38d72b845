"""Signals: Ctrl-C and SIGTERM during a fit act between two steps, after all callbacks have seen the last one."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from minidl.distributed.communicator import SINGLE_PROCESS, Communicator

SIGNALS = (signal.SIGTERM, signal.SIGINT)  # a SIGTERM first: it saves


class Signals:
    """A context in which Ctrl-C and SIGTERM wait for the next `check`; the same signal again acts at once.

    The previous handler gets the signal then: Python's own raises KeyboardInterrupt. SIGTERM without a handler raises
    SystemExit(143), so that `finally` clauses run. Ignored signals stay ignored. Only the main thread may have
    handlers; in other threads the context does nothing. In a forked child the signals act as before.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._pending: list[int] = []
        self._process = os.getpid()

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number in reversed(SIGNALS):  # Ctrl-C first: after that it cannot interrupt this loop
                before = signal.getsignal(number)
                if before is not None and before != signal.SIG_IGN:  # None: not set from Python, so it stays
                    self._before[number] = before
                    signal.signal(number, self._note)
        return self

    def __exit__(self, *error: object) -> None:
        for number, before in reversed(self._before.items()):  # Ctrl-C last
            if signal.getsignal(number) == self._note:  # unless another handler was set since
                signal.signal(number, before)
        for number in list(self._pending):
            self._act(number, None)  # it came after the last check

    def check(self, terminating: Callable[[], None], comm: Communicator = SINGLE_PROCESS) -> None:
        """Acts on signals that any of the processes received; calls `terminating` before a SIGTERM acts."""
        received = comm.allreduce_max([number in self._pending for number in SIGNALS])
        for number in [number for number, flag in zip(SIGNALS, received, strict=True) if flag]:
            if number == signal.SIGTERM:
                terminating()
            with comm.raise_together():  # also in processes that ignore it
                if number in self._before:
                    self._pending += [number] if number not in self._pending else []
                    self._act(number, None)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a forked child, in which no check may come
            signal.signal(number, self._before[number])
            signal.raise_signal(number)
        elif number in self._pending:
            self._act(number, frame)
        else:
            self._pending.append(number)

    def _act(self, number: int, frame: FrameType | None) -> None:
        self._pending.remove(number)
        before = self._before[number]
        if callable(before):
            before(number, frame)
        elif number == signal.SIGTERM:
            raise SystemExit(128 + number)
        else:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
