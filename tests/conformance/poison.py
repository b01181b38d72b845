"""Reads of uninitialized memory: random nets and kernels run in memory filled with different garbage.

In a build with AddressSanitizer, every malloc and every array of an arena is filled with a given byte (see
runtime/asan.h), and local variables of C functions with another. The results must equal those of the ordinary build,
bit for bit.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from conformance.copies import finished
from conformance.instrumented import OPTIONS, InstrumentedCopy

GARBAGE = (0xFF, 0x00, 0x7B)  # NaN in both dtypes; zeros; large numbers, 1e36 and 1e284
CANARIES = ("reads scratch", "reads saved")


def work(seed: int, nets: int) -> None:
    """Prints a hash for each net and for each trial of a kernel."""
    from conformance.nets import Net, digest, of_sizes, trained_by
    from conformance.trial import alone
    from conformance.trials import KERNELS

    for number in range(seed, seed + nets):
        print("net", number, digest(Net(number).results(1 + number % 3)), digest(trained_by(2 + number % 2, number)))
        print("net of several sizes", number, digest(of_sizes(number, 1 + number % 3)))
        rng = np.random.default_rng(number)
        for index, trial in enumerate(KERNELS[number % len(KERNELS)](rng)):
            arrays = alone(trial)
            trial.run(arrays, 1 + (number + index) % 3)
            found = (getattr(arrays, name) for name in trial.outputs)
            found = [np.where(np.isnan(array), np.nan, array) for array in found]
            print(f"trial {trial.about}", digest(found))


def start(copy: InstrumentedCopy, garbage: int, *command: str) -> subprocess.Popen:
    """Starts a Python command in memory filled with a byte."""
    options = f"{OPTIONS['ASAN_OPTIONS']}:malloc_fill_byte={garbage}:max_malloc_fill_size=1000000000"
    return copy.start(*command, ASAN_OPTIONS=options, MINIDL_GARBAGE=str(garbage))


def lines(process: subprocess.Popen, what: str) -> list[str]:
    code, said = finished(process)
    if code:
        sys.exit(f"poison: {what} failed:\n{said[-20_000:]}")
    return said.splitlines()


def canaries(copy: InstrumentedCopy) -> int:
    """Returns the number of planted reads. Exits if one is not detected, or if the correct kernel is reported."""
    for fault in ("none", *CANARIES):
        command = ("tests/conformance/canary.py", fault)
        different = {tuple(lines(start(copy, garbage, *command), fault)) for garbage in GARBAGE}
        if (len(different) > 1) != (fault != "none"):
            sys.exit(f"poison: fault {fault!r} gave {len(different)} results in {len(GARBAGE)} kinds of garbage")
    return len(CANARIES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", type=int, default=60, help="random nets, and blocks of trials (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.seed, options.nets)
        return
    begin, copy = time.perf_counter(), InstrumentedCopy("address")
    copy.build()
    built = time.perf_counter() - begin
    caught = canaries(copy)
    command = [__file__, "--work", "--seed", str(options.seed * 10**6), "--nets", str(options.nets)]
    ordinary = subprocess.Popen(
        [sys.executable, *command],
        env=os.environ | {"OMP_WAIT_POLICY": "passive"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    expected = lines(ordinary, "the ordinary build")
    running = [(garbage, start(copy, garbage, "tests/conformance/poison.py", *command[1:])) for garbage in GARBAGE]
    for garbage, process in running:
        for line, other in zip(expected, lines(process, f"the build with {garbage:#x}"), strict=True):
            if line != other:
                sys.exit(f"poison: different bits in memory filled with {garbage:#x}:\n{line}\n{other}")
    print(
        f"poison: {options.nets} nets and {len(expected) - options.nets:,} trials of kernels in {len(running)} kinds "
        f"of garbage, 0 differ from the ordinary build; canaries: {caught} of {caught} seen; "
        f"{time.perf_counter() - begin:.0f} s, {built:.0f} of them to build"
    )


if __name__ == "__main__":
    main()
