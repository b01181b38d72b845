"""torchvision's nets, imported from ONNX files, compared with the nets themselves and with onnxruntime, alternating.

README.md in this folder describes the method.
"""

import argparse
import copy
import itertools
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torchvision_nets
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
from sides import MinidlPredict, OnnxruntimePredict, Prediction, ready_sides
from torch import nn

from minidl import Trainer
from minidl.onnx import import_model
from minidl.optimizers import SGD

NETS = ("mobilenet_v2", "mobilenet_v3_large", "efficientnet_b0", "shufflenet_v2_x1_0")
LAYOUTS = {"PyTorch": torch.contiguous_format, "PyTorch channels_last": torch.channels_last}
LR, MOMENTUM, CLASSES, BATCHES = 0.01, 0.9, 1000, 4
UNFOLDED = {"training": torch.onnx.TrainingMode.PRESERVE, "do_constant_folding": False}  # batch norm stays a layer


class TorchPredict(Prediction):
    """The net in eval mode, without gradients, on images in the given memory layout."""

    def __init__(self, net, images, layout):
        self.net = copy.deepcopy(net).eval().to(memory_format=layout)
        self.images = torch.from_numpy(images).to(memory_format=layout)

    def predict(self):
        with torch.no_grad():
            return self.net(self.images).numpy()


class MinidlSteps:
    """`train_batch` of the imported model."""

    def __init__(self, path, batches):
        self.trainer = Trainer(import_model(path), "softmax_cross_entropy", SGD(LR, momentum=MOMENTUM))
        self.batches = batches

    def step_loss(self):
        return self.trainer.train_batch(*self.batches[0])

    def run(self, steps):
        for batch in itertools.islice(itertools.cycle(self.batches), steps):
            self.trainer.train_batch(*batch)


class TorchSteps:
    """Training steps of the net, with fused SGD."""

    def __init__(self, net, batches, layout):
        self.net = copy.deepcopy(net).train().to(memory_format=layout)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=LR, momentum=MOMENTUM, fused=True)
        self.batches = [(torch.from_numpy(x).to(memory_format=layout), torch.from_numpy(y)) for x, y in batches]

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.net(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def step_loss(self):
        return self.step(*self.batches[0])

    def run(self, steps):
        for batch in itertools.islice(itertools.cycle(self.batches), steps):
            self.step(*batch)


def prediction_sides(net, size, batch_size, threads, folder):
    """Returns the sides that predict one batch."""
    images = np.random.default_rng(0).standard_normal((batch_size, 3, size, size), dtype=np.float32)
    path = folder / "inference.onnx"
    if not path.exists():
        torchvision_nets.export(net, torch.from_numpy(images), path, "torchscript", 17)
    model = import_model(path)
    makers = {"minidl": lambda: MinidlPredict(model, images)}
    makers["onnxruntime"] = lambda: OnnxruntimePredict(path, images, threads)
    makers |= {name: partial(TorchPredict, net, images, layout) for name, layout in LAYOUTS.items()}
    scores = model.predict(images)
    return ready_sides(makers, lambda side: side.predict(), scores, rtol=1e-3, atol=1e-3 * np.abs(scores).max())


def training_sides(net, size, batch_size, threads, folder):
    """Returns the sides that train on the same batches."""
    rng, path = np.random.default_rng(0), folder / "training.onnx"
    images = rng.standard_normal((BATCHES, batch_size, 3, size, size), dtype=np.float32)
    batches = list(zip(images, rng.integers(0, CLASSES, (BATCHES, batch_size)), strict=True))
    if not path.exists():
        torchvision_nets.export(net, torch.from_numpy(images[0]), path, "torchscript", 17, **UNFOLDED)
    makers = {"minidl": lambda: MinidlSteps(path, batches)}
    makers |= {name: partial(TorchSteps, net, batches, layout) for name, layout in LAYOUTS.items()}
    return ready_sides(makers, lambda side: side.step_loss(), MinidlSteps(path, batches).step_loss(), rtol=1e-3)


def measure(ready, args):
    """Measures the sides, alternating; prints a row; returns the times by side in milliseconds."""
    sides = [Side(name, side.run) for name, side in ready.items()]
    settle(sides, args.steps, args.seconds)
    alternate(sides, args.rounds)
    ours = sides[0].median
    print("  ".join(f"{side.name} {side.median:.2f} ({side.median / ours:.2f}x)" for side in sides), flush=True)
    return {side.name: spread(side.rounds) | {"rounds": side.rounds} for side in sides}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", nargs="+", choices=torchvision_nets.SIZES, default=NETS, metavar="NET")
    parser.add_argument("--size", type=positive, default=64, help="height and width of the images (default 64)")
    parser.add_argument("--train", nargs="*", type=positive, default=[16, 64], help="batch sizes of training steps")
    parser.add_argument("--predict", nargs="*", type=positive, default=[1, 16, 64], help="batch sizes of predictions")
    parser.add_argument("--threads", type=positive, default=usable_cores())
    parser.add_argument("--rounds", type=positive, default=9)
    parser.add_argument("--steps", type=positive, default=1000, help="maximum number of steps per round (default 1000)")
    parser.add_argument("--seconds", type=float, default=0.5, help="seconds per round of one side (default 0.5)")
    parser.add_argument("--json", metavar="FILE", help="write all rounds to this file")
    return parser.parse_args()


def main():
    """Measures, prints a row for each net, work and batch size, and writes the JSON file."""
    args = arguments()
    limit_threads(args.threads)
    torch.set_num_threads(args.threads)
    results = {"machine": machine() | {"threads": args.threads, "size": args.size}, "measurements": []}
    print_machine(results["machine"])
    for name in args.nets:
        net = torchvision_nets.without_randomness(torchvision_nets.draw(name, args.size))
        with tempfile.TemporaryDirectory() as folder:
            for work, make, sizes in (
                ("training", training_sides, args.train),
                ("prediction", prediction_sides, args.predict),
            ):
                for n in sizes:
                    print(f"{name} {work} {n}: ms: ", end="", flush=True)
                    times = measure(make(net, args.size, n, args.threads, Path(folder)), args)
                    results["measurements"].append({"net": name, "work": work, "batch_size": n, "milliseconds": times})
                    write_json(args.json, results)  # after each one: an interrupted run keeps its results


if __name__ == "__main__":
    main()
