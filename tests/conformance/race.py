"""Training, prediction and kernels in a build with ThreadSanitizer, on 2 to 8 threads: no report.

In this build the threads are those of minidl's own pool, each one computes its own part of every phase, and only the
end of a phase synchronizes them (see MINIDL_EXACT in minidl_c/runtime/waiting.h). Conflicting accesses to one address
are therefore reported in either order.
"""

import argparse
import re
import sys
import threading
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from conformance.copies import finished
from conformance.instrumented import InstrumentedCopy

CANARIES = {  # faults and the arguments that expose them: in tiles, parts of a tile, rows, and an optimizer
    "shares": ["--threads", "2", "--examples", "40"],
    "ignores part": ["--threads", "4", "--examples", "16"],
    "shares rows": ["--threads", "3"],
    "shares update": ["--threads", "2"],
}
REPORT = "WARNING: ThreadSanitizer: data race"
THREADS = (2, 3, 4, 8)


def train(seed: int, nets: int) -> None:
    """Runs random nets and kernels on several threads."""
    from conformance.nets import Net, digest, of_sizes, trained_by
    from conformance.trial import alone
    from conformance.trials import KERNELS

    for number in range(seed, seed + nets):
        expected = digest(Net(number).results(1))
        threads = THREADS[number // 2 % len(THREADS)]
        assert digest(Net(number).results(threads)) == expected, f"net {number}: {threads} threads change bits"
        same = digest(of_sizes(number, threads)) == digest(of_sizes(number, 1))
        assert same, f"net of several sizes {number}: {threads} threads change bits"
        trained_by(2, number, threads)
        for trial in KERNELS[number % len(KERNELS)](np.random.default_rng(number)):
            trial.run(alone(trial), threads)


def predict_together(seed: int, callers: int = 4) -> None:
    """Checks that Python threads that share a model get the predictions of a single thread."""
    from conformance.nets import Net

    net, wrong = Net(seed), []
    expected = net.model.predict(net.X)

    def call(number):
        for i in range(10):
            rows = slice(0, len(net.X) - (number * i) % len(net.X))
            if not np.array_equal(net.model.predict(net.X[rows], 1 + (number + i) % 3), expected[rows]):
                wrong.append(number)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, f"net {seed}: wrong predictions beside other threads"


def work(seed: int, nets: int) -> None:
    train(seed, nets)
    for number in range(seed, seed + max(1, nets // 5)):
        predict_together(number)


def reason_not_to_run(copy: InstrumentedCopy) -> str:
    """Returns why ThreadSanitizer cannot run on this machine, "" if it can."""
    code, said = copy.run("-c", "import numpy")
    return said.strip() if code else ""


def canaries(copy: InstrumentedCopy) -> int:
    """Returns the number of planted races. Exits if one is not reported, or if the correct kernel is."""
    for fault, arguments in {"none": ["--threads", "4", "--examples", "100"], **CANARIES}.items():
        code, said = copy.run("tests/conformance/canary.py", fault, *arguments)
        if (fault != "none") != (REPORT in said):
            sys.exit(f"race: fault {fault!r} ended with {code} and this:\n{said}")
    return len(CANARIES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", type=int, default=40, help="random nets to train (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--strict", action="store_true", help="fail where ThreadSanitizer cannot run")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.seed, options.nets)
        return
    start, copy = time.perf_counter(), InstrumentedCopy("thread")
    copy.build()
    built = time.perf_counter() - start
    if reason := reason_not_to_run(copy):
        print(f"race: NOT CHECKED, ThreadSanitizer cannot run here: {reason}")
        sys.exit(options.strict)
    caught = canaries(copy)
    half = -(-options.nets // 2)
    seeds = (options.seed * 10**6, options.seed * 10**6 + half)
    command = ["tests/conformance/race.py", "--work", "--nets", str(half), "--seed"]
    for process in [copy.start(*command, str(seed)) for seed in seeds]:
        code, said = finished(process)
        if code or REPORT in said:
            first = re.search(rf"{REPORT}.*?={{18}}", said, re.S)
            sys.exit(f"{first[0] if first else said[-20_000:]}\nrace: see above")
    print(
        f"race: {2 * half} nets on 1 and up to {max(THREADS)} threads, {2 * max(1, half // 5)} asked by 4 threads, "
        f"0 reports; canaries: {caught} of {caught} reported; "
        f"{time.perf_counter() - start:.0f} s, {built:.0f} of them to build"
    )


if __name__ == "__main__":
    main()
