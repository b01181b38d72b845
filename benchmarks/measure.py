"""Timing of several ways to do the same work: in one run and in turn."""

import json
import os
import platform
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Side:
    """One way to do the work: `run(steps)` does so many steps; `rounds` are milliseconds a step."""

    name: str
    run: object
    rounds: list = field(default_factory=list)

    @property
    def median(self):
        return statistics.median(self.rounds)


def alternate(sides, rounds, steps, warm_up=5):
    """Time `steps` steps of each side, `rounds` times over, back and forth through the sides."""
    for side in sides:
        side.run(steps)
    for number in range(rounds):
        for side in sides if number % 2 == 0 else reversed(sides):
            side.run(warm_up)
            begin = time.perf_counter()
            side.run(steps)
            side.rounds.append(1000 * (time.perf_counter() - begin) / steps)


def table(sides, batch_size, reference):
    """Lines for people: the median and extremes of each side, and its speed beside `reference`."""
    lines = [f"{'':28}{'ms/step':>9}{'fastest':>9}{'slowest':>9}{'images/s':>11}{'speed':>8}"]
    for side in sides:
        speed = f"{reference.median / side.median:7.2f}x" if reference else f"{'-':>8}"
        lines.append(
            f"{side.name:28}{side.median:9.3f}{min(side.rounds):9.3f}{max(side.rounds):9.3f}"
            f"{1000 * batch_size / side.median:11,.0f}{speed}"
        )
    return "\n".join(lines)


def machine():
    """What the figures were taken on: processor, number of usable cores, Python."""
    processor = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                processor = line.partition(":")[2].strip()
                break
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"processor": processor, "cores": cores, "python": platform.python_version()}


def write_json(path, sides, **facts):
    """Write all rounds of all sides, with the facts they were taken under, to a file."""
    results = {side.name: {"median": side.median, "rounds": side.rounds} for side in sides}
    text = json.dumps({**facts, "milliseconds_per_step": results}, indent=2)
    Path(path).write_text(text + "\n")
