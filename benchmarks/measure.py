"""Timing of several implementations of the same work, alternating within one run."""

import argparse
import json
import os
import platform
import statistics
import time
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from threadpoolctl import threadpool_limits

PAUSE = 0.05  # seconds
PACKAGES = ("numpy", "scikit-learn", "torch", "jax")


@dataclass
class Side:
    """One implementation: `run(steps)` does that number of steps; `rounds` holds milliseconds per step, by `clock`."""

    name: str
    run: object
    steps: int = 1
    rounds: list = field(default_factory=list)
    clock: object = time.perf_counter

    @property
    def median(self):
        return statistics.median(self.rounds)

    def time(self, steps):
        """Runs `steps` steps; returns the milliseconds per step."""
        begin = self.clock()
        self.run(steps)
        return 1000 * (self.clock() - begin) / steps


def settle(sides, steps, seconds):
    """Warms up every side and sets its steps per round: as many as fit into `seconds`, from 2 to `steps`.

    A side that is more than five times slower than the fastest gets a fifth of that time.
    """
    found = []
    for side in sides:
        side.time(2)
        found.append(min(side.time(2), side.time(min(5, steps))))
    for side, milliseconds in zip(sides, found, strict=True):
        budget = seconds if milliseconds <= 5 * min(found) else 0.2 * seconds
        side.steps = min(steps, max(2, int(1000 * budget / milliseconds)))


def alternate(sides, rounds, between=lambda: None):
    """Times all sides in each of `rounds` rounds, in alternating order; calls `between` once per round.

    Before each side, the threads of the side before get time to fall asleep: those of onnxruntime spin for some
    milliseconds after their last call, on the cores that this side needs.
    """
    for number in range(rounds):
        between()
        for side in sides if number % 2 == 0 else reversed(sides):
            time.sleep(PAUSE)
            side.run(max(1, min(5, side.steps // 4)))  # warms caches, wakes threads
            side.rounds.append(side.time(side.steps))


def spread(values):
    """Returns median, smallest and largest value, for the JSON file."""
    return {"median": statistics.median(values), "smallest": min(values), "largest": max(values)}


def positive(text):
    """Parses an integer above 0, for argparse."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, got {number}")
    return number


def usable_cores():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def limit_threads(threads):
    """Sets an upper limit on the threads of all loaded OpenMP and BLAS libraries; each may use fewer."""
    import minidl_c.runtime.threads  # noqa: F401 - loads OpenMP

    threadpool_limits(threads)


def machine():
    """Returns the facts of the machine: processor, number of usable cores, versions."""
    import minidl_c

    processor = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                processor = line.partition(":")[2].strip()
                break
    facts = {"processor": processor, "cores": usable_cores(), "system": platform.platform()}
    facts |= {"load": round(os.getloadavg()[0], 1), "date": time.strftime("%Y-%m-%d")}
    facts |= {"python": platform.python_version(), "minidl": minidl_c.__version__, "instruction set": minidl_c.isa}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            facts[package] = version(package)
    return facts


def print_machine(facts):
    """Prints the facts of the machine."""
    print(", ".join(f"{name} {value}" for name, value in facts.items()), flush=True)


def run_parts(parts, args):
    """Runs the functions that `args.parts` names; writes their results to the JSON file after each one."""
    results = {"machine": machine() | {"threads": args.threads}}
    print_machine(results["machine"])
    for part in args.parts:
        results[part] = parts[part](args)
        write_json(args.json, results)


def write_json(path, results):
    """Writes results to a file; does nothing if `path` is None."""
    if path:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(json.dumps(results, indent=1) + "\n")
