"""Threads of parallel regions: parked between calls, limited by threadpoolctl, usable in forked children.

Every test holds for both kinds of threads, those of OpenMP and those of minidl's own pool, or names the one it needs.
"""

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import threadpoolctl

import minidl
from minidl import Sequential
from minidl.layers import Conv2D, Dense, Flatten, ReLU
from minidl_c.runtime.threads import openmp

ROOT = Path(__file__).parents[3]
X = np.random.default_rng(0).normal(size=(96, 1, 12, 12)).astype(np.float32)
NET = """
import os, sys, threading, time
import numpy as np
from minidl import Sequential
from minidl.layers import Conv2D, Dense, Flatten, ReLU
from minidl_c.runtime.threads import set_thread_choice

set_thread_choice(False)
X = np.random.default_rng(0).normal(size=(96, 1, 12, 12)).astype(np.float32)
model = Sequential([Conv2D(8, 3), ReLU(), Flatten(), Dense(5)], input_shape=(1, 12, 12))
expected = model.predict(X, num_threads=1).tobytes()

def threads():
    return len(os.listdir("/proc/self/task"))

def predict(num_threads):
    assert model.predict(X, num_threads=num_threads).tobytes() == expected
"""

own_pool = pytest.mark.skipif(openmp(), reason="a build with OpenMP")
is_free_threaded = not getattr(sys, "_is_gil_enabled", lambda: True)()
linux = pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")


def run(code, **variables):
    """Runs code after NET in a new process; returns its output."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]) if (ROOT / "minidl").is_dir() else None
    environment = os.environ | ({"PYTHONPATH": path} if path else {}) | variables
    done = subprocess.run(
        [sys.executable, "-c", NET + code], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def make_net():
    return Sequential([Conv2D(8, 3), ReLU(), Flatten(), Dense(5)], input_shape=(1, 12, 12))


def test_callers_with_different_numbers_of_threads_do_not_disturb_each_other():
    model = make_net()
    expected, wrong = model.predict(X, num_threads=1), []

    def call(seed):
        rng = np.random.default_rng(seed)
        for _ in range(100):
            if not np.array_equal(model.predict(X, num_threads=int(rng.integers(1, 6))), expected):
                wrong.append(seed)

    callers = [threading.Thread(target=call, args=(seed,)) for seed in range(5)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


@linux
def test_threads_are_kept_for_the_next_call():
    before, after, many = map(
        int,
        run("""
for n in (1, 4):
    predict(n)
    after = threads()
    print(after)
for i in range(200):
    predict(1 + i % 4)
end = time.monotonic() + 60
while threads() > after and time.monotonic() < end:  # OpenMP's idle threads may still be ending
    time.sleep(0.01)
print(threads())
"""),
    )
    assert (after - before, many) == (3, after)


@own_pool
@linux
def test_a_call_without_new_threads_runs_on_those_that_exist():
    """A limit on the address space leaves no room for the stack of a thread."""
    assert run("""
import resource
predict(2)
used = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
resource.setrlimit(resource.RLIMIT_AS, (used + 2**22, used + 2**22))  # for the batch; a stack has 8 MiB
before = threads()
predict(8)
print(threads() - before)
""") == ["0"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@linux
def test_a_forked_child_computes_the_same():
    code = """
import warnings
warnings.simplefilter("ignore")  # Python warns of forks beside threads
predict(4)
child = os.fork()
if not child:
    predict(4)
    print(threads(), flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
predict(4)
"""
    assert run(code) == ["1" if openmp() else "4"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.skipif(is_free_threaded, reason="CPython's own locks may hang such children")
@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="so may the locks of AddressSanitizer's malloc")
def test_forks_beside_busy_callers_leave_working_children():
    assert run("""
import warnings
warnings.simplefilter("ignore")
stop = threading.Event()
def call():
    while not stop.is_set():
        predict(3)
callers = [threading.Thread(target=call) for _ in range(3)]
for caller in callers:
    caller.start()
failed = 0
for _ in range(20):
    child = os.fork()
    if not child:
        predict(3)
        os._exit(0)
    failed += os.waitpid(child, 0)[1]
stop.set()
for caller in callers:
    caller.join()
print(failed)
""") == ["0"]


@pytest.mark.parametrize("policy", ["passive", "ACTIVE", ""])
def test_the_wait_policy_changes_no_result(policy):
    assert run(
        """
for _ in range(20):
    predict(4)
print("done")
""",
        OMP_WAIT_POLICY=policy or "active",
    ) == ["done"]


@own_pool
@linux
def test_small_stacks_of_other_threads_do_not_matter():
    """Kernels for float64 need more than the 32 kB that Python allows."""
    assert run("""
threading.stack_size(32768)
wide = Sequential([Conv2D(32, 3, padding=1), ReLU(), Conv2D(32, 3), Flatten(), Dense(5)], (1, 12, 12), dtype="float64")
from minidl import Trainer
from minidl.optimizers import SGD
Trainer(wide, "softmax_cross_entropy", SGD(0.1), num_threads=4).fit(X, np.arange(96) % 5, verbose=0)
print(threads() > 1, threading.stack_size())
""") == ["True", "32768"]


@own_pool
@linux
def test_workers_block_signals_except_those_of_faults():
    """A signal that Python's threads block or wait for would otherwise act in a worker."""
    assert run("""
import signal

def blocked():
    found = {}
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/status") as lines:
            found[task] = int(next(line for line in lines if line.startswith("SigBlk")).split()[1], 16)
    return found

def is_in(mask, number):
    return mask >> number - 1 & 1

before, good, end = set(blocked()), 0, time.monotonic() + 60
predict(3)
while good != 2 and time.monotonic() < end:  # a region does not wait until its workers have begun
    workers = [mask for task, mask in blocked().items() if task not in before]
    good = sum(is_in(m, signal.SIGINT) and is_in(m, signal.SIGUSR1) and not is_in(m, signal.SIGSEGV) for m in workers)
print(len(workers), good)
""") == ["2", "2"]


def test_threadpoolctl_limits_the_default_of_the_calling_thread(monkeypatch):
    before = minidl.get_num_threads()
    other = []
    with threadpoolctl.threadpool_limits(1, user_api="openmp"):
        assert minidl.get_num_threads() == 1
        thread = threading.Thread(target=lambda: other.append(minidl.get_num_threads()))
        thread.start()
        thread.join()
    assert minidl.get_num_threads() == before == other[0]


@own_pool
def test_threadpoolctl_lists_the_pool():
    found = [info for info in threadpoolctl.threadpool_info() if info["internal_api"] == "minidl"]
    assert len(found) == 1
    assert found[0]["user_api"] == "openmp"
    assert found[0]["version"] == minidl.__version__
    assert found[0]["num_threads"] >= 1
