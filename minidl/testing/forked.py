"""Calls that may kill the process, tried in a forked child."""

from __future__ import annotations

import faulthandler
import os
import signal
import warnings
from collections.abc import Callable


def death_of(call: Callable[[], object]) -> str | None:
    """What ended a forked child that made this call: "SIGSEGV", or "exit code 1"; None if it lived.

    An exception of the call is no death. Nothing that the call changes is changed here. Where there is no fork, nothing
    is tried, and the answer is None, as where something else has waited for the child.
    """
    if not hasattr(os, "fork"):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads: the child opens no region of several
        child = os.fork()
    if child == 0:
        try:
            faulthandler.disable()  # the parent tells of the death
            call()
        finally:
            os._exit(0)  # also on an exception: the caller meets it in its own process
    try:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except ChildProcessError:  # this process ignores SIGCHLD, or another thread waits for all children
        return None
    except BaseException:  # an interrupt
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    return None if code == 0 else signal.Signals(-code).name if code < 0 else f"exit code {code}"
