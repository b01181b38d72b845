"""Calls of several Python threads, and calls after a pause: the number of their threads, and the interpreter's lock."""

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from minidl import Sequential
from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, ReLU
from minidl_c.runtime.threads import openmp, set_thread_choice

RNG = np.random.default_rng(0)
LARGE = 2048  # examples: work for which sleeping threads are woken


def net():
    convs = [Conv2D(8, 5, padding=2), ReLU(), MaxPool2D(2), Conv2D(16, 5), ReLU(), MaxPool2D(2)]
    return Sequential([*convs, Flatten(), Dense(32), ReLU(), Dense(10)], input_shape=(1, 28, 28), seed=1)


def images(n):
    return RNG.standard_normal((n, 1, 28, 28)).astype(np.float32)


@pytest.fixture
def choice():
    """Turns the choice of threads on, as on 8 cores."""
    set_thread_choice(True, 8)
    yield
    set_thread_choice(False)


def threads_of(model, n):
    return max(threads for _, _, threads in model.network.segments[0].plan.schedules(n, 8))


@pytest.mark.usefixtures("choice")
def test_after_a_pause_little_work_takes_one_thread():
    model = net()
    model.predict(images(4))
    time.sleep(0.01)  # ten times what counts as a pause; a slower machine only makes it longer
    assert threads_of(model, 64) == 1
    assert threads_of(model, LARGE) == 8


@pytest.mark.usefixtures("choice")
def test_beside_other_calls_a_call_takes_its_share_of_the_cores():
    model, other, stop = net(), net(), threading.Event()
    X = images(LARGE)

    def predict():
        while not stop.is_set():
            other.predict(X, num_threads=1)

    callers, seen = [threading.Thread(target=predict) for _ in range(3)], set()
    for caller in callers:
        caller.start()
    try:
        end = time.monotonic() + 60
        while not seen & {2, 4} and time.monotonic() < end:  # three calls, seldom fewer, compute beside this one
            seen.add(threads_of(model, LARGE))
    finally:
        stop.set()
        for caller in callers:
            caller.join()
    assert seen & {2, 4}, seen
    assert threads_of(model, LARGE) == 8


@pytest.mark.parametrize("callers", [2, 5, 16])
def test_several_callers_get_the_scores_of_one(callers):
    model, X = net(), images(70)
    expected, wrong = model.predict(X, num_threads=1), []

    def predict(number):
        rng = np.random.default_rng(number)
        for _ in range(30):
            n = int(rng.integers(1, 71))
            if not np.array_equal(model.predict(X[:n], num_threads=1 + number % 3), expected[:n]):
                wrong.append(n)

    threads = [threading.Thread(target=predict, args=(number,)) for number in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


FORKED = """
import os, threading, time
import numpy as np
from minidl import Sequential
from minidl.layers import Dense
from minidl_c.runtime.threads import set_thread_choice

set_thread_choice(True, 8)
model = Sequential([Dense(512), Dense(512), Dense(10)], input_shape=(512,))
X = np.ones((4096, 512), np.float32)
stop = threading.Event()

def predict():
    while not stop.is_set():
        model.predict(X, num_threads=1)

threads = [threading.Thread(target=predict) for _ in range(4)]
for thread in threads:
    thread.start()
time.sleep(0.2)
child = os.fork()
if not child:
    plan = model.network.segments[0].plan
    os._exit(plan.schedules(4096, 8)[0][2])
stop.set()
for thread in threads:
    thread.join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(openmp() or not hasattr(os, "fork"), reason="OpenMP's threads do not survive a fork")
def test_a_forked_child_forgets_the_calls_of_its_parent():
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=120)
    assert (done.stdout.strip(), done.returncode) == ("8", 0), done.stderr


IN_A_CHILD = """
import os, sys, warnings
import minidl

def warned(number):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        minidl.set_num_threads(number)
    return [(warning.category.__name__, warning.filename, str(warning.message)) for warning in found]

assert warned(2) == []
minidl.set_num_threads(None)
warnings.simplefilter("ignore")  # Python warns of forks beside threads
child = os.fork()
if not child:
    for number in (1, None, 2, 3):
        print(number, warned(number), flush=True)
    print(minidl.get_num_threads(), flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_threads_that_a_forked_child_cannot_have_are_named_once(tmp_path):
    (tmp_path / "forks.py").write_text(IN_A_CHILD, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, tmp_path / "forks.py"], capture_output=True, text=True, timeout=120, env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")
    *quiet, second, third, number = done.stdout.splitlines()
    assert (quiet, third) == (["1 []", "None []"], "3 []")
    if openmp():
        assert (
            f"2 [('RuntimeWarning', '{tmp_path / 'forks.py'}', \"set_num_threads(2): a forked child computes on"
            in second
        )
        assert "'spawn'" in second and "MINIDL_NO_OPENMP=1" in second and number == "1"
    else:
        assert (second, number) == ("2 []", "3")
