"""Import of torchvision's CNNs: scores of the imported model, and of onnxruntime, compared with PyTorch's in float64.

    python tests/conformance/zoo.py                             # each net, both exporters, their usual opsets
    python tests/conformance/zoo.py mobilenet_v2 --opsets 11 13 17 20 --sizes 64 224

A file agrees if the largest difference is at most 1e-4 of the largest score, or three times that of onnxruntime.
Canary: a net with one weight changed must not agree.
"""

import argparse
import copy
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import torchvision_nets

from minidl.onnx import import_model

TOLERANCE, TIMES_ONNXRUNTIME = 1e-4, 3
OPSETS = {"torchscript": (17,), "dynamo": (None,)}
BATCH = 3


def distance(scores, expected):
    """Returns the largest difference, relative to the largest score."""
    return np.abs(scores - expected).max() / np.abs(expected).max()


def agrees(ours, onnxruntimes):
    return bool(ours <= max(TOLERANCE, TIMES_ONNXRUNTIME * onnxruntimes))


def run_onnxruntime(path, images):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"input": images})[0]


def compare(path, images, expected):
    """Returns the distances of minidl and of onnxruntime, and the seconds of the import."""
    began = time.perf_counter()
    model = import_model(path)
    seconds = time.perf_counter() - began
    ours = distance(model.predict(images), expected)
    return ours, distance(run_onnxruntime(path, images), expected), seconds


def check_net(name, size, opsets, folder):
    """Prints one row for each file of a net; returns how many agree, are refused, and are wrong."""
    counts, net = np.zeros(3, int), torchvision_nets.draw(name, size)
    images = np.random.default_rng(0).standard_normal((BATCH, 3, size, size), dtype=np.float32)
    expected = torchvision_nets.scores(copy.deepcopy(net).double(), images)
    path = folder / "net.onnx"
    for exporter, numbers in opsets.items():
        for opset in numbers:
            torchvision_nets.export(net, torch.from_numpy(images), path, exporter, opset)
            row = f"{name:18} {exporter:11} {opset or 'default':>7} {size:4}"
            try:
                ours, onnxruntimes, seconds = compare(path, images, expected)
            except ValueError as error:
                print(row, f"refused: {error}", flush=True)
                counts[1] += 1
                continue
            verdict = agrees(ours, onnxruntimes)
            counts[0 if verdict else 2] += 1
            figures = f"{ours:.1e}  onnxruntime {onnxruntimes:.1e}  import {seconds:5.2f} s"
            print(row, figures, "" if verdict else "WRONG", flush=True)
    return counts


def canary(folder):
    """Exits unless a changed weight is noticed."""
    net = torchvision_nets.draw("squeezenet1_1", 64)
    images = np.random.default_rng(0).standard_normal((BATCH, 3, 64, 64), dtype=np.float32)
    expected = torchvision_nets.scores(copy.deepcopy(net).double(), images)
    with torch.no_grad():
        next(net.parameters())[0, 0, 0, 0] += 0.1
    torchvision_nets.export(net, torch.from_numpy(images), folder / "net.onnx", "torchscript", 17)
    ours, _, _ = compare(folder / "net.onnx", images, expected)
    if agrees(ours, 0.0):
        sys.exit("zoo: a changed weight was not noticed")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nets", nargs="*", metavar="net", help=f"of {', '.join(torchvision_nets.SIZES)}; default: all")
    parser.add_argument("--opsets", nargs="+", type=int, help="of the torchscript exporter; default: 17")
    parser.add_argument("--sizes", nargs="+", type=int, help="of images; default: one for each net")
    options = parser.parse_args()
    if unknown := set(options.nets) - set(torchvision_nets.SIZES):
        parser.error(f"no net {', '.join(sorted(unknown))}: expected some of {', '.join(torchvision_nets.SIZES)}")
    opsets, counts = OPSETS | ({"torchscript": options.opsets} if options.opsets else {}), np.zeros(3, int)
    with tempfile.TemporaryDirectory() as folder:
        canary(Path(folder))
        for name in options.nets or torchvision_nets.SIZES:
            for size in options.sizes or [torchvision_nets.SIZES[name]]:
                counts += check_net(name, size, opsets, Path(folder))
    agreeing, refused, wrong = counts
    print(f"zoo: {counts.sum()} files: {agreeing} agree, {refused} refused, {wrong} wrong; canary noticed")
    sys.exit(int(refused + wrong > 0))


if __name__ == "__main__":
    main()
