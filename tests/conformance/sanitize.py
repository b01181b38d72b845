"""Runs the tests of compiled code and fuzz.py under AddressSanitizer and UndefinedBehaviorSanitizer.

A report ends its process, so a run without failures had no report. In this build each array of an arena is filled with
garbage and followed by a poisoned gap: see minidl_c/runtime/asan.h.
"""

import argparse
import re
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from conformance.copies import finished
from conformance.instrumented import InstrumentedCopy

TESTS = ["tests/native", "tests/layers/test_batchnorm.py", "tests/losses"]
MORE_TESTS = ["tests/test_custom_kernels.py", "tests/layers", "tests/engine", "tests/test_sequential.py"]
MORE_TESTS += ["tests/test_invalid_input.py", "tests/test_reproducibility.py", "tests/test_trainer.py"]
MORE_TESTS += ["tests/training"]
CANARIES = {
    "reads beyond": "AddressSanitizer: use-after-poison",
    "writes beyond": "AddressSanitizer: use-after-poison",
    "misaligned": "runtime error: load of misaligned address",
    "overflows": "runtime error: signed integer overflow",
}


def canaries(copy: InstrumentedCopy) -> int:
    """Returns the number of planted faults. Exits if one is not reported, or if the correct kernel is."""
    code, said = copy.run("tests/conformance/canary.py", "none")
    if code:
        sys.exit(f"sanitize: the kernel without a fault fails:\n{said}")
    for fault, report in CANARIES.items():
        code, said = copy.run("tests/conformance/canary.py", fault)
        if not code or report not in said:
            sys.exit(f"sanitize: no {report!r} for a kernel that {fault}; its output:\n{said}")
    return len(CANARIES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--calls", type=int, default=20_000, help="number of kernel calls of fuzz.py (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--isa", help="the instruction set to build for (default: v3 if supported)")
    parser.add_argument("--all", action="store_true", help="run more tests, also those marked slow")
    options = parser.parse_args()
    start, copy = time.perf_counter(), InstrumentedCopy("address", options.isa)
    copy.build()
    built = time.perf_counter() - start
    caught = canaries(copy)
    which, paths = ("not oracle", TESTS + MORE_TESTS) if options.all else ("not oracle and not slow", TESTS)
    names = [] if options.all else ["-k", "not float64"]  # its code is that of float32, compiled with another type
    two_workers = ("-n", "2", "--dist", "worksteal")
    tests = copy.start("-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", which, *names, *two_workers, *paths)
    fuzz = copy.start("tests/conformance/fuzz.py", "--calls", str(options.calls), "--seed", str(options.seed))
    for process in (tests, fuzz):
        code, said = finished(process)
        if code:
            tests.kill()
            fuzz.kill()
            sys.exit(f"{said[-20_000:]}\nsanitize: see above")
        if process is tests:
            passed = int(re.search(r"(\d+) passed", said)[1])
    calls = re.search(r"fuzz: (\S+) calls", said)[1]
    print(
        f"sanitize: {passed:,} tests, {calls} fuzzed calls, 0 reports; canaries: {caught} of {caught} reported; "
        f"{time.perf_counter() - start:.0f} s, {built:.0f} of them to build"
    )


if __name__ == "__main__":
    main()
