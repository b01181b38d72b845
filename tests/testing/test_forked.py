"""Calls that are tried in a forked child: a fatal signal is reported, and nothing else of the child is seen."""

import os
import signal

import pytest

from minidl.testing.forked import death_of

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="os.fork is missing")


def raises():
    raise ValueError("of the call")


@pytest.mark.parametrize(
    ("call", "death"),
    [
        (lambda: None, None),
        (raises, None),
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "SIGSEGV"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "SIGKILL"),
        (lambda: os._exit(3), "exit code 3"),
    ],
    ids=["lives", "raises", "segv", "kill", "exit"],
)
def test_fatal_signals_are_reported_and_exceptions_are_not(call, death, capfd):
    assert death_of(call) == death
    assert capfd.readouterr() == ("", "")


def test_changes_stay_in_the_child():
    seen = []
    assert death_of(lambda: seen.append(1)) is None
    assert seen == []


def test_nothing_is_reported_if_the_child_was_already_reaped():
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system reaps children, so waitpid finds none
    try:
        assert death_of(lambda: os._exit(3)) is None
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_an_interrupt_leaves_no_child(monkeypatch):
    waited = os.waitpid
    children = []

    def interrupted(child, options):
        if not children:
            children.append(child)
            raise KeyboardInterrupt
        return waited(child, options)

    monkeypatch.setattr(os, "waitpid", interrupted)
    with pytest.raises(KeyboardInterrupt):
        death_of(signal.pause)
    with pytest.raises(ChildProcessError):
        waited(children[0], 0)


def test_without_fork_the_call_is_not_tried(monkeypatch):
    monkeypatch.delattr(os, "fork")
    assert death_of(lambda: os.kill(os.getpid(), signal.SIGKILL)) is None
