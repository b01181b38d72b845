"""Fuzzing: random calls of every kernel that is callable from Python, and random nets, each result checked.

Each trial runs twice, with different numbers of threads and on different arrays: once between guard elements, once in
separate memory, whose bounds AddressSanitizer checks. The arrays differ in their previous contents, so an unwritten
output is noticed too. All bits except those of NaN must be equal. One trial in ten is also compared with
tests/reference.py, within the bounds of rounding.

Trials come in blocks, each determined by its number: a finding names the block, and --block runs it again.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE
from types import SimpleNamespace

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from conformance.nets import Net, digest, trained_by
from conformance.trial import Trial, alone
from conformance.trials import KERNELS, relu
from native.conftest import Check

KERNEL_FILES = Path(__file__).parents[2] / "minidl_c"
COMPARED = 0.1  # fraction of the trials that are compared with the reference
THREADS = (1, 1, 1, 2, 3, 4)  # more would be slow, since every processor runs a worker
BLOCKS = 40  # blocks of kernels per block that is a net


# ---- one trial -----------------------------------------------------------------------------------
def guarded(trial: Trial, check: Check) -> SimpleNamespace:
    """Returns the trial's arrays between guard elements: NaN around inputs, constants around outputs."""
    arrays = {name: check.input(values, values.dtype) for name, values in trial.inputs.items()}
    return SimpleNamespace(**arrays, **{n: check.output(s, trial.dtype) for n, s in trial.outputs.items()})


def with_canonical_nan(array: np.ndarray) -> np.ndarray:
    """Returns a copy with a single NaN: the sign and payload of a sum of two NaNs depend on the compiler."""
    return np.where(np.isnan(array), np.nan, array)


def check_trial(trial: Trial, rng: np.random.Generator, check: Check) -> None:
    """Runs a trial twice; raises pytest's Failed or AssertionError if a result is wrong."""
    first, second = guarded(trial, check), alone(trial)
    trial.run(first, int(rng.choice(THREADS)))
    trial.run(second, int(rng.choice(THREADS)))
    for name in trial.outputs:
        one, other = getattr(first, name), getattr(second, name)
        check.equal(one, other, f"{name}, run twice")
        check.same_bits(with_canonical_nan(one), with_canonical_nan(other), f"{name}, run twice")
    if trial.oracle and rng.random() < COMPARED:
        with np.errstate(all="ignore"):
            for name, exact, bound in trial.oracle():
                check.close(getattr(second, name), exact, bound, f"{name} against the reference")


def check_net(seed: int) -> None:
    """Checks that a random net computes the same bits for any number of threads and of training ranks."""
    threads, ranks = 1 + seed // 2 % 4, 2 + seed // 3 % 4
    assert digest(Net(seed).results(1)) == digest(Net(seed).results(threads)), f"1 and {threads} threads differ"
    assert digest(trained_by(1, seed)) == digest(trained_by(ranks, seed, threads)), f"{ranks} ranks differ"


# ---- blocks --------------------------------------------------------------------------------------
def run_block(number: int, check: Check) -> Counter:
    """Checks all trials of a block; returns the number of calls by kernel."""
    rng, counts = np.random.default_rng(number), Counter()
    if number % (BLOCKS + 1) == BLOCKS:
        check_net(number)
        return Counter(nets=1)
    kernel = KERNELS[rng.integers(len(KERNELS))]
    for trial in kernel(rng):
        try:
            check_trial(trial, rng, check)
        except (AssertionError, pytest.fail.Exception) as error:
            raise AssertionError(f"{kernel.__name__} {trial.dtype} {trial.about}: {error}") from error
        counts[kernel.__name__] += 2 * trial.calls
    return counts


def work(first: int, step: int, calls: int, progress: str) -> None:
    """Runs blocks first, first + step, ... until `calls` kernels were called; prints the counts as JSON."""
    check, counts, number = Check(Counter()), Counter(), first
    with open(progress, "w") as file:
        while counts.total() - counts["nets"] < calls:
            os.pwrite(file.fileno(), f"{number:20}".encode(), 0)
            counts += run_block(number, check)
            number += step
    print(json.dumps(counts))


def run_workers(seed: int, calls: int, workers: int) -> Counter:
    """Splits the calls over worker processes; returns the counts. Exits at the first finding or crash of a worker."""
    counts, environment = Counter(), os.environ | {"OMP_WAIT_POLICY": "passive"}  # waiting threads would spin
    with tempfile.TemporaryDirectory() as folder:
        running = []
        for i in range(workers):
            progress = os.path.join(folder, str(i))
            numbers = [seed * 10**9 + i, workers, -(-calls // workers)]
            command = [sys.executable, __file__, "--work", progress, *map(str, numbers)]
            running.append((progress, subprocess.Popen(command, env=environment, stdout=PIPE, stderr=PIPE, text=True)))
        for progress, process in running:
            said, complaints = process.communicate()
            if process.returncode:
                block = Path(progress).read_text().strip()
                for _, other in running:
                    other.kill()
                sys.exit(f"{said}{complaints}\nfuzz: block {block} failed; again: fuzz.py --block {block}")
            counts += Counter(json.loads(said))
    return counts


# ---- canaries and coverage --------------------------------------------------------------
def faulty_trials() -> Iterator[tuple[str, Trial]]:
    """Yields a valid trial with one planted fault each."""
    trial = next(relu(np.random.default_rng(2)))

    def then(fault):
        def run(a, threads):
            trial.run(a, threads)
            fault(a, threads)

        return replace(trial, run=run)

    def beyond(a, threads):
        if a.y.base is not None and a.y.base.size > a.y.size:
            a.y.base[-60] = 1

    def unwritten(a, threads):
        a.y[...] = np.nan if a.y.base is not None else 7

    def off(a, threads):
        a.dx[...] = np.nextafter(a.dx, 9, dtype=a.dx.dtype)

    yield "writes beyond its array", then(beyond)
    yield "leaves its output unwritten", then(unwritten)
    yield "is off by one unit in the last place", then(off)
    yield "differs with the threads", then(lambda a, threads: a.y.__setitem__(..., a.y + threads))


def canaries(check: Check) -> int:
    """Returns the number of planted faults. Exits if one is not caught."""
    caught = 0
    for name, trial in faulty_trials():
        for attempt in range(200):  # thread counts may coincide, and few trials are compared
            try:
                check_trial(trial, np.random.default_rng(attempt), check)
            except (AssertionError, pytest.fail.Exception):
                caught += 1
                break
        else:
            sys.exit(f"fuzz: a kernel that {name} was not caught")
    return caught


def uncovered() -> set[str]:
    """Returns the kernels callable from Python that have no trial."""
    text = "".join(path.read_text(encoding="utf-8") for path in KERNEL_FILES.rglob("*.pyx"))
    return set(re.findall(r"^def (\w+)_forward\(", text, re.M)) - {kernel.__name__ for kernel in KERNELS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20_000, help="number of kernel calls (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes (default: %(default)s)")
    parser.add_argument("--block", type=int, help="run only this block")
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    check, start = Check(Counter()), time.perf_counter()
    if options.work:
        progress, *numbers = options.work
        work(*map(int, numbers), progress)
        return
    if options.block is not None:
        print(f"fuzz: block {options.block}: {dict(run_block(options.block, check))}, nothing found")
        return
    if missing := uncovered():
        sys.exit(f"fuzz: no trials of {', '.join(sorted(missing))}: add them to trials.py")
    caught = canaries(check)
    counts = run_workers(options.seed, options.calls, options.workers)
    seconds, nets = time.perf_counter() - start, counts.pop("nets", 0)
    parts = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))
    print(
        f"fuzz: {sum(counts.values()):,} calls of kernels ({parts}) and {nets:,} nets, 0 findings; "
        f"canaries: {caught} of {caught} caught; {seconds:.0f} s"
    )


if __name__ == "__main__":
    main()
