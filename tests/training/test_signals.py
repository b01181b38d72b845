"""Ctrl-C and SIGTERM: handled once, between steps; handlers are installed and restored."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from minidl import Sequential, Trainer
from minidl.callbacks import Checkpoint
from minidl.layers import Dense
from minidl.optimizers import SGD
from minidl.training.signals import SIGNALS, Signals

ROOT = Path(__file__).parents[2]
X = np.random.default_rng(0).normal(size=(20, 3)).astype("float32")
Y = np.arange(20) % 2


def make_trainer():
    return Trainer(Sequential([Dense(2)], input_shape=(3,)), "softmax_cross_entropy", SGD(0.5))


@pytest.fixture(autouse=True)
def handlers():
    before = [signal.getsignal(number) for number in SIGNALS]
    yield
    assert [signal.getsignal(number) for number in SIGNALS] == before


class CallAfterStep:
    """Calls a function after a step."""

    def __init__(self, step, action):
        self.step, self.action = step, action

    def on_step_end(self, trainer, step, loss):
        if step == self.step:
            self.action()


def nothing():
    """A callback for a check that expects no SIGTERM."""


def test_ctrl_c_waits_for_a_check():
    done = []
    with pytest.raises(KeyboardInterrupt), Signals() as signals:
        signal.raise_signal(signal.SIGINT)
        done.append("the rest")
        signals.check(nothing)
        done.append("no more")
    assert done == ["the rest"]


def test_a_second_ctrl_c_acts_at_once():
    with pytest.raises(KeyboardInterrupt), Signals():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        pytest.fail("the second one waits as well")


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_signal_at_the_end_is_not_lost(number, error):
    with pytest.raises(error), Signals():
        signal.raise_signal(number)


def test_a_custom_handler_is_called():
    seen = []
    before = [signal.signal(number, lambda number, frame: seen.append(number)) for number in SIGNALS]
    try:
        with Signals() as signals:
            signal.raise_signal(signal.SIGINT)
            assert seen == []
            signals.check(nothing)
            assert seen == [signal.SIGINT]
            signal.raise_signal(signal.SIGTERM)
            assert seen == [signal.SIGINT]
            signals.check(lambda: seen.append("saved"))
            assert seen == [signal.SIGINT, "saved", signal.SIGTERM]
            signals.check(lambda: seen.append("again"))
            signal.raise_signal(signal.SIGTERM)
        assert seen == [signal.SIGINT, "saved", signal.SIGTERM, signal.SIGTERM]
    finally:
        for number, handler in zip(SIGNALS, before, strict=True):
            signal.signal(number, handler)


def test_ignored_signals_stay_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Signals() as signals:
            signal.raise_signal(signal.SIGINT)
            signals.check(nothing)
            assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_in_a_fit_is_raised_after_all_callbacks_have_seen_the_step():
    class StepCounter:
        steps = 0

        def on_step_end(self, trainer, step, loss):
            self.steps += 1

    counts, trainer = StepCounter(), make_trainer()
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(
            X,
            Y,
            9,
            batch_size=8,
            verbose=0,
            callbacks=[CallAfterStep(4, lambda: signal.raise_signal(signal.SIGINT)), counts],
        )
    assert counts.steps == trainer.step == 5


@pytest.mark.parametrize("hook", ["on_fit_begin", "on_epoch_begin", "on_epoch_end", "on_fit_end"])
def test_sigterm_in_any_hook_saves_and_exits_with_143(tmp_path, hook):
    callback = type("Raises", (), {hook: lambda self, *args: signal.raise_signal(signal.SIGTERM)})()
    with pytest.raises(SystemExit) as left:
        make_trainer().fit(
            X, Y, 1, batch_size=8, verbose=0, callbacks=[callback, Checkpoint(tmp_path / "c", every_n_steps=1000)]
        )
    assert left.value.code == 143
    assert Trainer.resume(tmp_path / "c").epoch == (hook in ("on_epoch_end", "on_fit_end"))


@pytest.mark.parametrize("number", SIGNALS)
def test_a_forked_child_ends_at_once(number):
    """Its fit, if it has one, never reaches a check."""

    def fork():
        pid = os.fork()
        if pid == 0:
            try:
                signal.raise_signal(number)
                time.sleep(20)
            except KeyboardInterrupt:
                os._exit(7)
            finally:
                os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert status == {signal.SIGINT: 7, signal.SIGTERM: -signal.SIGTERM}[number]

    make_trainer().fit(X, Y, epochs=1, verbose=0, callbacks=[CallAfterStep(0, fork)])


def test_a_handler_installed_meanwhile_is_kept():
    def other(number, frame):
        """A handler set by a callback, say."""

    before = signal.getsignal(signal.SIGTERM)
    with Signals():
        signal.signal(signal.SIGTERM, other)
    assert signal.signal(signal.SIGTERM, before) is other


def test_other_threads_install_no_handlers():
    """A fit there works, and the main thread keeps its own handlers."""
    trainer, errors = make_trainer(), []

    def fit():
        try:
            trainer.fit(X, Y, 3, verbose=0)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=fit)
    thread.start()
    thread.join()
    assert not errors and trainer.epoch == 3


def test_sigterm_in_a_fit_calls_on_terminate_between_steps_and_exits_with_143():
    class TerminateRecorder:
        seen = None

        def on_terminate(self, trainer):
            self.seen = trainer.step

    callback, trainer = TerminateRecorder(), make_trainer()
    with pytest.raises(SystemExit) as left:
        trainer.fit(
            X,
            Y,
            9,
            batch_size=8,
            verbose=0,
            callbacks=[callback, CallAfterStep(4, lambda: signal.raise_signal(signal.SIGTERM))],
        )
    assert left.value.code == 143
    assert callback.seen == trainer.step == 5


def test_sigterm_saves_and_the_fit_can_be_completed(tmp_path):
    uninterrupted = make_trainer()
    uninterrupted.fit(X, Y, 4, batch_size=8, verbose=0)
    checkpoint = Checkpoint(tmp_path / "c", every_n_steps=1000)
    with pytest.raises(SystemExit):
        terminate = CallAfterStep(4, lambda: signal.raise_signal(signal.SIGTERM))
        make_trainer().fit(X, Y, 4, batch_size=8, verbose=0, callbacks=[checkpoint, terminate])
    trainer = Trainer.resume(tmp_path / "c")
    assert trainer.step == 5
    trainer.fit(X, Y, 4, batch_size=8, verbose=0, callbacks=[checkpoint])
    assert trainer.model.predict(X).tobytes() == uninterrupted.model.predict(X).tobytes()


PROGRAM = """
import sys, numpy as np
from minidl import Sequential, Trainer
from minidl.layers import Dense
from minidl.optimizers import SGD
class Ready:
    def on_epoch_begin(self, trainer, epoch):
        if epoch == 1:
            print("ready", flush=True)
try:
    model = Sequential([Dense(2)], input_shape=(3,))
    X, y = np.zeros((1000, 3)), np.zeros(1000, int)
    Trainer(model, "softmax_cross_entropy", SGD(0.5)).fit(X, y, 10**9, verbose=0, callbacks=[Ready()])
finally:
    print("finally", flush=True)
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)])
def test_a_process_exits_soon_and_cleanly(number, status):
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        out, _ = process.communicate(timeout=300)
    assert (out, process.returncode) == ("finally\n", status)
