"""Latency and throughput of `predict` in float32 and in 8-bit integers, compared with onnxruntime and PyTorch.

README.md in this folder describes the method.
"""

import argparse
import math
import tempfile
from functools import partial
from pathlib import Path

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
from nets import ALL_NETS, LARGE_NETS
from sides import MinidlPredict, OnnxruntimePredict, chosen_names, quantize_by_onnxruntime, ready_sides

import minidl.onnx

SIDES = (
    "minidl",
    "onnxruntime",
    "PyTorch eager",
    "PyTorch eager channels_last",
    "PyTorch compile",
    "PyTorch compile channels_last",
    "minidl int8",
    "onnxruntime int8",
)
CALIBRATION = 64  # examples for the ranges of integers
MAX_NUMBERS = 2**22  # of the images of a batch: more are left out
HEAD = f"{'':30}{'ms':>10}{'fastest':>10}{'slowest':>10}{'images/s':>11}{'minidl is':>11}"


def export_and_open(model, images, threads):
    """Returns the side of onnxruntime, for the exported model."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        minidl.onnx.export(model, path)
        return OnnxruntimePredict(path, images, threads)


def quantized_side(name, model, images, threads):
    """Returns a side of 8-bit integers; a filter's weights have one scale in both."""
    some = np.resize(images, (CALIBRATION, *images.shape[1:]))
    if name == "minidl int8":
        return MinidlPredict(minidl.quantize(model, some), images)
    with tempfile.TemporaryDirectory() as folder:
        return OnnxruntimePredict(quantize_by_onnxruntime(model, some, Path(folder), True), images, threads)


def make_side(name, model, images, threads):
    """Returns a side; raises ImportError if its library is missing."""
    if name == "minidl":
        return MinidlPredict(model, images)
    if name == "onnxruntime":
        return export_and_open(model, images, threads)
    if name.endswith("int8"):
        return quantized_side(name, model, images, threads)
    from torch_steps import TorchPredict

    return TorchPredict(model, images / np.float32(255), threads, name.removeprefix("PyTorch "))  # it does not scale


def measure(net, batch_size, args):
    """Measures all sides of one net and batch size, alternating; returns the entry for the file."""
    print(f"\n{ALL_NETS[net].title}, batch {batch_size}", flush=True)
    model = ALL_NETS[net].model()
    images = np.random.default_rng(0).integers(0, 256, (batch_size, *ALL_NETS[net].image)).astype(np.float32)
    names, scores = chosen_names(SIDES, args.sides, model), model.predict(images)
    makers = {name: partial(make_side, name, model, images, args.threads) for name in names}
    ready = {}
    for error in (1e-4, 0.5):  # of the largest score; in integers of nets that were not trained, the second one
        some = {name: make for name, make in makers.items() if name.endswith("int8") == (error > 0.1)}
        ready |= ready_sides(some, lambda side: side.predict(), scores, rtol=1e-3, atol=error * np.abs(scores).max())
    sides = [Side(name, side.run) for name, side in ready.items()]
    if not sides:
        raise SystemExit(f"--sides {' '.join(args.sides)}: none of {', '.join(SIDES)}")
    settle(sides, args.steps, args.seconds)
    alternate(sides, args.rounds)
    print(HEAD)
    for side in sides:
        ratio = f"{side.median / sides[0].median:10.2f}x" if sides[0].name == "minidl" else ""
        times = f"{side.median:10.3f}{min(side.rounds):10.3f}{max(side.rounds):10.3f}"
        print(f"{side.name:30}{times}{1000 * batch_size / side.median:11,.0f}{ratio}", flush=True)
    times = {side.name: spread(side.rounds) | {"rounds": side.rounds} for side in sides}
    return {"net": net, "batch_size": batch_size, "milliseconds": times}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", nargs="+", choices=ALL_NETS, metavar="NET", default=list(LARGE_NETS))
    parser.add_argument("--batch-sizes", nargs="+", type=positive, default=[1, 16, 256])
    words = "minidl onnxruntime eager compile"
    parser.add_argument("--sides", nargs="+", default=words.split(), help=f"words of their names (default: {words})")
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
            if batch_size * math.prod(ALL_NETS[net].image) > MAX_NUMBERS:
                print(f"\n{ALL_NETS[net].title}, batch {batch_size}: left out, too large")
                continue
            results["measurements"].append(measure(net, batch_size, args))
            write_json(args.json, results)  # after each one: an interrupted run keeps its results


if __name__ == "__main__":
    main()
