"""Predictions of nets in 8-bit integers, compared with the same nets in float32, alternating within one run.

README.md in this folder describes the method. Weights are the first ones, images are random: they do not change the
time.
"""

import argparse

import numpy as np
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
from nets import ALL_NETS

from minidl import quantize

NETS = ("lenet", "cnn", "mlp", "vgg", "resnet20")
EXAMPLES = 64  # of calibration data
HEAD = f"{'':12}{'ms':>10}{'fastest':>10}{'slowest':>10}{'images/s':>11}{'as fast':>11}"


def measure(net, batch_size, args):
    """Measures both sides of a net and batch size; returns the entry for the file."""
    model, rng = ALL_NETS[net].model(), np.random.default_rng(0)
    images = rng.integers(0, 256, (max(batch_size, EXAMPLES), *ALL_NETS[net].image), dtype=np.uint8)
    quantized = quantize(model, images[:EXAMPLES])
    images = images[:batch_size]
    sides = []
    for name, one in (("float32", model), ("int8", quantized)):

        def run(steps, one=one):
            for _ in range(steps):
                one.predict(images, num_threads=args.threads)

        sides.append(Side(name, run))
    settle(sides, args.steps, args.seconds)
    alternate(sides, args.rounds)
    print(f"\n{ALL_NETS[net].title}, batch {batch_size}\n{HEAD}")
    for side in sides:
        times = f"{side.median:10.3f}{min(side.rounds):10.3f}{max(side.rounds):10.3f}"
        ratio = sides[0].median / side.median
        print(f"{side.name:12}{times}{1000 * batch_size / side.median:11,.0f}{ratio:10.2f}x", flush=True)
    times = {side.name: spread(side.rounds) | {"rounds": side.rounds} for side in sides}
    return {"net": net, "batch_size": batch_size, "milliseconds": times}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", nargs="+", choices=NETS, metavar="NET", default=list(NETS))
    parser.add_argument("--batch-sizes", nargs="+", type=positive, default=[1, 16, 256])
    parser.add_argument("--threads", type=positive, default=usable_cores())
    parser.add_argument("--rounds", type=positive, default=15)
    parser.add_argument("--steps", type=positive, default=1000, help="maximum number of calls per round (default 1000)")
    parser.add_argument("--seconds", type=float, default=0.3, help="seconds per round of one side (default 0.3)")
    parser.add_argument("--json", metavar="FILE", help="write all rounds to this file")
    return parser.parse_args()


def main():
    """Measures, prints a table for each net and batch size, and writes the JSON file."""
    args = arguments()
    limit_threads(args.threads)
    results = {"machine": machine() | {"threads": args.threads}, "measurements": []}
    print_machine(results["machine"])
    for net in args.nets:
        for batch_size in args.batch_sizes:
            results["measurements"].append(measure(net, batch_size, args))
            write_json(args.json, results)  # after each one: an interrupted run keeps its results


if __name__ == "__main__":
    main()
