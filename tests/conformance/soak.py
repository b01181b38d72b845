"""A soak: random calls of the public API, right ones and wrong ones, on one random model after the other.

    python tests/conformance/soak.py --seconds 900

A right call compares what has to be equal to the last bit: predictions for any number of threads, of a model that was
saved, pickled, copied or cut in two; a trainer and its checkpoint, resumed, after one more step. A wrong call has to
be refused with a TypeError, ValueError, RuntimeError or FloatingPointError (with an OSError where its path is wrong),
and to leave all weights as they were. So has junk in place of one argument, if it is refused. Memory, open files and
threads must not grow after a warm-up. All that a world (a model and its calls) does follows from its number: a
finding names it, and --world runs it again. Canaries: calls that end with a KeyError, change a weight before they
refuse, give other bits, or leak memory and a file.
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
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before OpenMP is loaded: with few cores, threads spin for others
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from conformance.soak_calls import CALLS, EVERY, THREADS, DifferenceError, World, same
from conformance.soak_wrong import PATHS, REFUSED, junk_call

import minidl
from minidl import layers

PROPER = TypeError, ValueError, RuntimeError, FloatingPointError
RIGHT = ValueError, FloatingPointError  # of a right call: all is frozen, a batch is too small, training diverges
OF_PATHS = (*PROPER, OSError)
IMPROPER = UnicodeError, RecursionError, NotImplementedError  # which derive from these
CALLS_A_WORLD = 30
GROWTH = 8 * 2**20  # bytes, for fragments of the heap (runs of 3 minutes took 0.3 MB); 1 kB leaked in each call is more
WARM = 0.4  # share of the time after which memory is first measured: by then all kinds of calls have been made


class Soak:
    """What was called so far, and what was found."""

    def __init__(self):
        self.counts, self.done, self.refusals, self.findings = Counter(), Counter(), Counter(), []

    def note(self, world, what, finding):
        self.findings.append(f"world {world}: {what}: {finding}")
        print(f"soak: {self.findings[-1]}", flush=True)

    def attempt(self, number, w, kind, call, allowed, *, what="", refuse=False):
        """Makes a call; notes an odd exception, a wrong call that was accepted, weights that a refusal changed."""
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
        if stays and w.state() != before:  # a fit that diverges has made steps before
            self.note(number, what, f"weights changed, though it ended with {name}")

    def run_world(self, number, calls=CALLS):
        with tempfile.TemporaryDirectory() as folder:
            w = World(number, folder)
            for _ in range(CALLS_A_WORLD):
                draw = w.rng.random()
                if draw < 0.5:
                    call = calls[w.rng.integers(len(calls))]
                    self.attempt(number, w, call.__name__, functools.partial(call, w), RIGHT)
                elif draw < 0.8:
                    what = str(w.rng.choice([*REFUSED]))
                    call, allowed = functools.partial(REFUSED[what], w), OF_PATHS if what in PATHS else PROPER
                    self.attempt(number, w, "wrong", call, allowed, what=what, refuse=True)
                else:
                    what, call = junk_call(w)
                    self.attempt(number, w, "junk", call, PROPER, what=what)
            minidl.set_num_threads(2)
            if left := [path.name for path in Path(folder).glob(".minidl*")]:
                self.note(number, "files", f"left over: {left}")


def resources():
    """Bytes of memory, open files, threads; all that can be freed is freed before."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmRSS"].split()[0]) * 1024, len(os.listdir("/proc/self/fd")), int(status["Threads"])


def grown(first, last):
    """What of the resources has grown; empty if nothing has."""
    memory, files, threads = (after - before for before, after in zip(first, last, strict=True))
    told = [f"memory grew by {memory / 2**20:.1f} MB"] * (memory > GROWTH)
    told += [f"{files} more open files"] * (files > 0)
    return told + [f"{threads} more threads"] * (threads >= max(THREADS))  # OpenMP keeps as many as the last call had


def soak(seed, seconds):
    """Runs worlds for that long; what was called and found, and the resources after warming up and at the end."""
    found, start, number, first = Soak(), time.monotonic(), 10**6 * seed, None
    while first is None or time.monotonic() - start < seconds:
        found.run_world(number)
        number += 1
        if first is None and time.monotonic() - start > WARM * seconds:
            first = resources()
    return found, number - 10**6 * seed, first, resources()


# ---- canaries ------------------------------------------------------------------------------------
def raises_key_error(w):
    {}["missing"]


def changes_a_weight(w):
    next(iter(w.model.params.values())).value[...] = 3
    raise ValueError("refused too late")


def gives_other_bits(w):
    same("canary", w.X, np.nextafter(w.X, 9, dtype=w.X.dtype))


def canaries():
    """How many planted faults were found. Ends the program if one was not."""
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
    parser.add_argument("--seconds", type=float, default=20, help="how long to call (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--world", type=int, help="run this world alone")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of NumPy and scikit-learn, at numbers that are not finite
    np.seterr(all="ignore")
    if missing := set(layers.__all__) - set(EVERY):
        sys.exit(f"soak: no {', '.join(sorted(missing))} in soak_calls.py: add how to draw them")
    if options.world is not None:
        found = Soak()
        found.run_world(options.world)
        print(f"soak: world {options.world}: {found.counts.total()} calls, {len(found.findings)} findings")
        return int(bool(found.findings))
    caught = canaries()
    found, worlds, first, last = soak(options.seed, options.seconds)
    for what in grown(first, last):
        found.note("all", "resources", what)
    for kind, count in found.counts.items():
        if count >= 20 and not found.done[kind] and kind != "wrong":
            found.note("every", kind, "never went well, so nothing was compared")
    calls = ", ".join(f"{kind} {found.done[kind]:,} of {count:,}" for kind, count in sorted(found.counts.items()))
    refusals = ", ".join(f"{kind} {count:,}" for kind, count in sorted(found.refusals.items()))
    print(
        f"soak: {found.counts.total():,} calls in {worlds:,} worlds, of which went well: {calls}; refused: {refusals}; "
        f"after warming up and at the end {first[0] / 2**20:.1f} and {last[0] / 2**20:.1f} MB, "
        f"{first[1]} and {last[1]} open files, {first[2]} and {last[2]} threads; "
        f"{len(found.findings)} findings; canaries: {caught} of {caught} found; {options.seconds:.0f} s"
    )
    return int(bool(found.findings))


if __name__ == "__main__":
    sys.exit(main())
