"""Cost of a custom kernel: LeNet-5 with the SiLU of examples/custom_kernel, compared with the built-in SiLU.

The kernel is built as a user builds it: in its own folder, against the installed minidl.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path

from measure import (
    Side,
    alternate,
    limit_threads,
    machine,
    positive,
    print_machine,
    settle,
    spread,
    usable_cores,
    write_json,
)
from nets import Net
from sides import MinidlFit, Task

import minidl
from minidl import layers

SOURCE = Path(__file__).parents[1] / "examples" / "custom_kernel"


def build_example(folder):
    """Builds the example's kernel in `folder`; returns its module `train`."""
    shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns("*.c", "*.so", "build"), dirs_exist_ok=True)
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    environment = {"PYTHONPATH": str(Path(minidl.__file__).parents[1])}
    subprocess.run(command, cwd=folder, env=os.environ | environment, check=True, stdout=subprocess.DEVNULL)
    sys.path.insert(0, str(folder))
    return import_module("train")


def measure(example, args):
    """Returns the milliseconds of a training step with each of the two, and the median of the ratios by round."""
    sides = []
    for name, activation in (("minidl's SiLU", layers.SiLU), ("your SiLU", example.SiLU)):
        net = Net(name, lambda layer=activation: [layers.Rescale(1 / 255), *example.lenet5(layer)])
        task = Task(net, args.batch_size, args.steps, args.threads)
        sides.append(Side(name, MinidlFit(task).run))
    settle(sides, args.steps, args.seconds)
    sides[0].steps = sides[1].steps = min(side.steps for side in sides)
    alternate(sides, args.rounds)
    ours, yours = (side.rounds for side in sides)
    ratio = statistics.median(b / a for a, b in zip(ours, yours, strict=True))
    return {"sides": {side.name: spread(side.rounds) for side in sides}, "ratio": ratio}


def main():
    """Builds, measures, prints and writes the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch-size", type=positive, default=64)
    parser.add_argument("--threads", type=positive, default=usable_cores())
    parser.add_argument("--rounds", type=positive, default=31)
    parser.add_argument("--steps", type=positive, default=200, help="maximum number of steps per round (default 200)")
    parser.add_argument("--seconds", type=float, default=0.1, help="seconds per round of one side (default 0.1)")
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file")
    args = parser.parse_args()
    limit_threads(args.threads)
    facts = machine() | {"threads": args.threads}
    print_machine(facts)
    with tempfile.TemporaryDirectory() as folder:
        found = measure(build_example(folder), args)
    print(f"\nLeNet-5 with SiLU, a step of fit at batch {args.batch_size}: ms, {args.rounds} rounds\n")
    print(f"{'':20}{'median':>10}{'fastest':>10}{'slowest':>10}")
    for name, ms in found["sides"].items():
        print(f"{name:20}{ms['median']:10.3f}{ms['smallest']:10.3f}{ms['largest']:10.3f}")
    print(f"\nyour SiLU takes {found['ratio']:.3f} times as long (median of the rounds)")
    write_json(args.json, {"machine": facts, **found})


if __name__ == "__main__":
    main()
