"""Runs calls that may kill the process in a forked child."""

from __future__ import annotations

import faulthandler
import os
import signal
import warnings
from collections.abc import Callable


def death_of(call: Callable[[], object]) -> str | None:
    """Returns how a forked child that makes this call died: "SIGSEGV", or "exit code 1"; None if it did not.

    An exception of the call does not count. Changes made by the call have no effect in this process. Returns None
    without a try if the system has no fork, and also if the child's exit status was collected elsewhere.
    """
    if not hasattr(os, "fork"):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # on threads: the child starts no parallel region
        child = os.fork()
    if child == 0:
        try:
            faulthandler.disable()  # the parent reports the death
            call()
        finally:
            os._exit(0)  # also on an exception, which the caller will get in its own process
    try:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except ChildProcessError:  # this process ignores SIGCHLD, or another thread waits for all children
        return None
    except BaseException:  # an interrupt
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    return None if code == 0 else signal.Signals(-code).name if code < 0 else f"exit code {code}"
