"""Signals: Ctrl-C and SIGTERM during a fit act between two steps, after all callbacks have seen the last one.

Only the main thread of a process receives signals. SignalRelay brings them to fits in other threads.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

from minidl.distributed.communicator import SINGLE_PROCESS, Communicator

SIGNALS = (signal.SIGTERM, signal.SIGINT)  # a SIGTERM first: it saves
_of_thread = threading.local()  # of a thread of fits: its SignalRelay, `relay`, and its outermost Signals, `fit`


class Signals:
    """A context in which Ctrl-C and SIGTERM wait for the next `check`; the same signal again acts at once.

    The previous handler gets the signal then: Python's own raises KeyboardInterrupt. SIGTERM without a handler raises
    SystemExit(143), so that `finally` clauses run. Ignored signals stay ignored. Only the main thread may have
    handlers; in other threads the context does nothing by itself, and `check` asks their SignalRelay, if they have one.
    In a forked child the signals act as before.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._pending: list[int] = []
        self._process = os.getpid()

    def __enter__(self) -> Signals:
        if current_relay() is not None and _of_thread.fit is None:
            _of_thread.fit = self
        if threading.current_thread() is threading.main_thread():
            for number in reversed(SIGNALS):  # Ctrl-C first: after that it cannot interrupt this loop
                before = signal.getsignal(number)
                if before is not None and before != signal.SIG_IGN:  # None: not set from Python, so it stays
                    self._before[number] = before
                    signal.signal(number, self._note)
        return self

    def __exit__(self, *error: object) -> None:
        if current_relay() is not None and _of_thread.fit is self:
            _of_thread.fit = None
        for number, before in reversed(self._before.items()):  # Ctrl-C last
            if signal.getsignal(number) == self._note:  # unless another handler was set since
                signal.signal(number, before)
        for number in list(self._pending):
            self._act(number, None)  # it came after the last check

    def check(self, terminating: Callable[[], None], comm: Communicator = SINGLE_PROCESS) -> None:
        """Acts on signals that any of the processes received; calls `terminating` before a SIGTERM acts."""
        if (relay := current_relay()) is not None and _of_thread.fit in (None, self):  # a fit in a callback goes on
            relay.check(terminating)
        received = comm.allreduce_max([number in self._pending for number in SIGNALS])
        for number in [number for number, flag in zip(SIGNALS, received, strict=True) if flag]:
            if number == signal.SIGTERM:
                terminating()
            with comm.raise_together():  # also in processes that ignore it
                if number in self._before:
                    self._pending += [number] if number not in self._pending else []
                    self._act(number, None)

    @property
    def pending(self) -> list[int]:
        """The signals that wait, in the order in which they act."""
        return [number for number in SIGNALS if number in self._pending]

    def act(self, numbers: list[int]) -> None:
        """Acts on those of these signals that still wait."""
        for number in numbers:
            if number in self._pending:
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


def current_relay() -> SignalRelay | None:
    """Returns the relay of a thread of fits; None in other threads."""
    return getattr(_of_thread, "relay", None)


class SignalRelay:
    """Brings the signals of one thread, usually the main thread, to fits in other threads: `SignalRelay().run(...)`.

    A signal acts in the thread that receives it, while all fits wait between two steps. If its handler raises, which is
    the usual case, the fits stop there.
    """

    def __init__(self) -> None:
        self._signals, self._changed = Signals(), threading.Condition()
        self._threads = self._waiting = 0  # numbers of threads that run, and of those that wait
        self._acting: list[int] = []  # the signals for which they wait
        self._error: BaseException | None = None  # what stops all fits

    def run(self, work: Callable[[], None], number: int) -> None:
        """Calls `work` in each of `number` threads, and returns at their end.

        Raises what stopped them: the error of a signal's handler, such as KeyboardInterrupt, or that of a `work`.
        """
        threads = [threading.Thread(target=self._run, args=(work,)) for _ in range(number)]
        self._threads = number
        try:
            with self._signals:
                try:
                    for thread in threads:
                        thread.start()
                    self._wait()
                except BaseException as error:  # also that of a second Ctrl-C, which acts at once
                    self._stop(error)
                    raise
        finally:
            self._wait_for_end(sum(thread.ident is None for thread in threads))
        if self._error is not None:
            raise self._error

    def check(self, terminating: Callable[[], None]) -> None:
        """Waits while a signal acts; calls `terminating` before a SIGTERM. Raises KeyboardInterrupt to stop the fit."""
        while self._error is None and (self._signals.pending or self._acting):
            with self._changed:
                acting = self._acting = self._acting or self._signals.pending
            if signal.SIGTERM in acting:
                terminating()
            with self._changed:
                self._waiting += 1
                self._changed.notify_all()
                while acting and self._acting is acting and self._error is None:
                    self._changed.wait()
                self._waiting -= 1
        if self._error is not None:
            raise KeyboardInterrupt

    def _run(self, work: Callable[[], None]) -> None:
        """Is one of the threads."""
        _of_thread.relay, _of_thread.fit = self, None
        try:
            work()
        except BaseException as error:
            self._stop(error)
        with self._changed:
            self._threads -= 1
            self._changed.notify_all()

    def _wait(self) -> None:
        """Returns when all threads have ended; lets signals act when all of them wait."""
        with self._changed:
            while self._threads:
                if self._acting and self._waiting == self._threads:
                    self._signals.act(self._acting)
                    self._acting = []
                    self._changed.notify_all()
                self._changed.wait(0.1)  # a signal that another thread got in C, or on Windows, does not end a wait

    def _wait_for_end(self, unstarted: int) -> None:
        """Returns when the threads that were started have ended, which a further Ctrl-C does not change.

        Python 3.11 takes a thread for ended after a Ctrl-C in `Thread.join`.
        """
        ended = False
        while not ended:
            with suppress(KeyboardInterrupt), self._changed:
                self._changed.wait_for(lambda: self._threads == unstarted)
                ended = True

    def _stop(self, error: BaseException) -> None:
        """Stops all fits at their next `check`."""
        with self._changed:
            self._error = error if self._error is None else self._error
            self._changed.notify_all()
