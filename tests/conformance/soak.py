"""Soak test: random valid and invalid calls of the public API on a sequence of random models.

    python tests/conformance/soak.py --seconds 900

Valid calls compare results that must be bit-identical: predictions for any number of threads, of a model that was
saved, pickled, copied or cut in two; a trainer and its resumed checkpoint after one more step. Invalid calls must raise
TypeError, ValueError, RuntimeError or FloatingPointError (OSError for an invalid path) and leave all weights unchanged;
so must junk in place of one argument, if it is refused. Memory, open files and threads must not grow after a warm-up. A
world (a model and its calls) is determined by its number: a finding names it, and --world runs it again. Canaries:
calls that raise KeyError, change a weight before they raise, give different bits, or leak memory and a file.
"""

import argparse
import contextlib
import ctypes
import functools
import gc
import io
import os
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from itertools import pairwise
from pathlib import Path

os.environ.setdefault(
    "OMP_WAIT_POLICY", "passive"
)  # set before OpenMP is loaded: on few cores, waiting threads would spin
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from conformance.soak_calls import CALLS, THREADS, DifferenceError, World, same
from conformance.soak_wrong import PATHS, REFUSED, junk_call

import minidl

PROPER = TypeError, ValueError, RuntimeError, FloatingPointError
VALID = ValueError, FloatingPointError  # of a valid call: all layers frozen, batch too small, divergence
OF_PATHS = (*PROPER, OSError)
IMPROPER = UnicodeError, RecursionError, NotImplementedError  # subclasses of these that are not accepted
CALLS_A_WORLD = 30
GROWTH = 4 * 2**20  # bytes allowed from one measurement to the next one (0.3 MB in 3 minutes, once warm)
MEASURED = 0.4, 0.7, 1.0  # fractions of the time after which memory is measured; first calls of a kind still add to it


class Soak:
    """Counts of calls so far, and the findings."""

    def __init__(self):
        self.counts, self.done, self.refusals, self.findings = Counter(), Counter(), Counter(), []

    def note(self, world, what, finding):
        self.findings.append(f"world {world}: {what}: {finding}")
        print(f"soak: {self.findings[-1]}", flush=True)

    def attempt(self, number, w, kind, call, allowed, *, what="", refuse=False):
        """Makes a call; notes unexpected exceptions, accepted invalid calls, and weights changed by a refused call."""
        what, before, name = what or kind, w.state(), None
        self.counts[kind] += 1
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                call()
            self.done[kind] += 1
        except DifferenceError as error:
            name = "DifferenceError"
            self.note(number, what, f"not the same bits: {error}")
        except Exception as error:
            name = type(error).__name__
            self.refusals[name] += 1
            if isinstance(error, IMPROPER) or not isinstance(error, allowed):
                where = traceback.extract_tb(error.__traceback__)[-1]
                self.note(number, what, f"{name}: {error} ({Path(where.filename).name}:{where.lineno})")
        if refuse and name is None:
            self.note(number, what, "was accepted")
        stays = refuse or name not in (None, "FloatingPointError", "DifferenceError")
        if stays and w.state() != before:  # a diverging fit has made steps before it raises
            self.note(number, what, f"weights changed, though it ended with {name}")

    def run_world(self, number, calls=CALLS):
        with tempfile.TemporaryDirectory() as folder:
            w = World(number, folder)
            for _ in range(CALLS_A_WORLD):
                draw = w.rng.random()
                if draw < 0.5:
                    call = calls[w.rng.integers(len(calls))]
                    self.attempt(number, w, call.__name__, functools.partial(call, w), VALID)
                elif draw < 0.8:
                    what = str(w.rng.choice([*REFUSED]))
                    call, allowed = functools.partial(REFUSED[what], w), OF_PATHS if what in PATHS else PROPER
                    self.attempt(number, w, "wrong", call, allowed, what=what, refuse=True)
                else:
                    what, call = junk_call(w)
                    self.attempt(number, w, "junk", call, PROPER, what=what)
            minidl.set_num_threads(2)
            if left := [path.name for path in Path(folder).glob(".minidl*")]:
                self.note(number, "files", f"not removed: {left}")


def resources():
    """Returns bytes of memory, open files and threads, after freeing all that can be freed."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmRSS"].split()[0]) * 1024, len(os.listdir("/proc/self/fd")), int(status["Threads"])


def grown(*measured):
    """Returns the resources that have grown, of several measurements: memory from each to the next one, as by a leak.

    Empty if none has. A first call of a kind, which keeps its buffers, is no leak: it happens once.
    """
    memory = min(after[0] - before[0] for before, after in pairwise(measured))
    _, files, threads = (after - before for before, after in zip(measured[0], measured[-1], strict=True))
    growth = [f"memory grew by {memory / 2**20:.1f} MB or more at a time"] * (memory > GROWTH)
    growth += [f"{files} more open files"] * (files > 0)
    return growth + [f"{threads} more threads"] * (threads >= max(THREADS))  # OpenMP keeps the threads of the last call


def soak(seed, seconds):
    """Runs worlds for `seconds`; returns the Soak, the number of worlds, and the resources after each of MEASURED."""
    found, start, number, measured = Soak(), time.monotonic(), 10**6 * seed, []
    for part in MEASURED:
        found.run_world(number)  # at least one
        number += 1
        while time.monotonic() - start < part * seconds:
            found.run_world(number)
            number += 1
        measured.append(resources())
    return found, number - 10**6 * seed, measured


# ---- canaries ------------------------------------------------------------------------------------
def raises_key_error(w):
    {}["missing"]


def changes_a_weight(w):
    next(iter(w.model.params.values())).value[...] = 3
    raise ValueError("refused too late")


def gives_other_bits(w):
    same("canary", w.X, np.nextafter(w.X, 9, dtype=w.X.dtype))


def canaries():
    """Returns the number of planted faults. Exits if one was not found."""
    for fault in (raises_key_error, changes_a_weight, gives_other_bits):
        found = Soak()
        with contextlib.redirect_stdout(io.StringIO()):
            found.run_world(1, [fault])
        if not any(fault.__name__ in finding for finding in found.findings):
            sys.exit(f"soak: canary {fault.__name__} was not found")
    before = resources()
    with open(os.devnull):
        leak = np.ones(2 * GROWTH // 8)
        if len(grown(before, resources())) != 2:
            sys.exit("soak: a leak of memory and of an open file was not found")
        del leak
    return 4


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20, help="duration (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--world", type=int, help="run only this world")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # NumPy and scikit-learn warn about non-finite values
    np.seterr(all="ignore")
    if options.world is not None:
        found = Soak()
        found.run_world(options.world)
        print(f"soak: world {options.world}: {found.counts.total()} calls, {len(found.findings)} findings")
        return int(bool(found.findings))
    caught = canaries()
    found, worlds, measured = soak(options.seed, options.seconds)
    for what in grown(*measured):
        found.note("all", "resources", what)
    for kind, count in found.counts.items():
        if count >= 20 and not found.done[kind] and kind != "wrong":
            found.note("every", kind, "never went well, so nothing was compared")
    calls = ", ".join(f"{kind} {found.done[kind]:,} of {count:,}" for kind, count in sorted(found.counts.items()))
    refusals = ", ".join(f"{kind} {count:,}" for kind, count in sorted(found.refusals.items()))
    print(
        f"soak: {found.counts.total():,} calls in {worlds:,} worlds, of which went well: {calls}; refused: {refusals}; "
        f"megabytes, open files and threads after {', '.join(f'{part:.0%}' for part in MEASURED)} of the time: "
        f"{'; '.join(f'{memory / 2**20:.1f}, {files}, {threads}' for memory, files, threads in measured)}; "
        f"{len(found.findings)} findings; canaries: {caught} of {caught} found; {options.seconds:.0f} s"
    )
    return int(bool(found.findings))


if __name__ == "__main__":
    sys.exit(main())
