"""Ctrl-C and SIGTERM during a fit: they act between two steps, when all callbacks have seen the last one."""

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
    """A context in which Ctrl-C and SIGTERM wait for the next `check`; the same signal once more acts at once.

    A handler that was there before gets the signal then: Python's own raises KeyboardInterrupt. SIGTERM without any
    handler raises SystemExit(143), so that `finally` clauses run. Signals that are ignored stay so. Only the main
    thread may have handlers; elsewhere nothing is done. In a child that is forked meanwhile they act as before.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._pending: list[int] = []
        self._process = os.getpid()

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number in reversed(SIGNALS):  # Ctrl-C first: from here on it cannot break off what is done here
                before = signal.getsignal(number)
                if before is not None and before != signal.SIG_IGN:  # None: not set from Python, so not ours to replace
                    self._before[number] = before
                    signal.signal(number, self._note)
        return self

    def __exit__(self, *error: object) -> None:
        for number, before in reversed(self._before.items()):  # and here last
            if signal.getsignal(number) == self._note:  # or else somebody has set another one since
                signal.signal(number, before)
        for number in list(self._pending):
            self._act(number, None)  # it came behind the last check

    def check(self, terminating: Callable[[], None], comm: Communicator = SINGLE_PROCESS) -> None:
        """Acts on what has come to one of the processes; before a SIGTERM, calls `terminating`: between two steps."""
        came = comm.allreduce_max([number in self._pending for number in SIGNALS])
        for number in [number for number, flag in zip(SIGNALS, came, strict=True) if flag]:
            if number == signal.SIGTERM:
                terminating()
            with comm.raise_together():  # also where it is ignored
                if number in self._before:
                    self._pending += [number] if number not in self._pending else []
                    self._act(number, None)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a forked child: no check may ever come
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
