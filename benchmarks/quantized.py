"""Predictions of nets in 8-bit integers, compared with the same nets in float32, alternating within one run.

README.md in this folder describes the method. The integers are random: they do not change the time.
"""

import argparse
from dataclasses import dataclass, field

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

from minidl import Sequential
from minidl.layers import Conv2D, Dense, MaxPool2D
from minidl.quantization import program as p
from minidl.quantization.integer_net import IntegerNet

NETS = ("lenet", "cnn", "mlp", "vgg")
HALF = p.Quantization(0.5, 3)
HEAD = f"{'':12}{'ms':>10}{'fastest':>10}{'slowest':>10}{'images/s':>11}{'as fast':>11}"


@dataclass
class Growing:
    """The values and operations of a program so far."""

    values: list
    operations: list = field(default_factory=list)

    def add(self, operation, shape):
        self.operations.append(operation)
        self.values.append(p.Value(shape, HALF))

    def sum_of_products(self, layer, kernel, shape, padding, rng):
        """Adds a layer with weights, whose sums are brought to 8 bits, and a ReLU."""
        outputs, channels = shape[0], self.values[-1].shape[0]
        weights = rng.integers(-127, 128, (outputs, channels, *kernel)).astype(np.int8)
        factor = 50 / (60 * 70 * np.sqrt(weights[0].size))
        multipliers = np.full(outputs, factor * 2**36, np.int64).astype(np.int32)
        numbers = np.zeros(outputs, np.int32), multipliers, np.full(outputs, 36, np.int32)
        inputs, ones = (len(self.values) - 1,), (1, 1)
        name = type(layer).__name__
        made = p.SumOfProducts(name, inputs, weights, *numbers, ones, padding, ones, 1, HALF.zero_point, p.HIGH)
        self.add(made, shape)


def program_of(model):
    """Returns a program of the shapes of a model: convolutions and dense layers with ReLU, and max-pooling."""
    rng, first = np.random.default_rng(0), model.layers[0].in_shape
    net = Growing([p.Value(first, HALF)])
    for layer in model.layers:
        _, h, w = net.values[-1].shape
        if isinstance(layer, Conv2D):
            kernel, shape = layer.weight.value.shape[2:], layer.out_shape
            before = [(size + k - 1 - length) // 2 for size, k, length in zip(shape[1:], kernel, (h, w), strict=True)]
            net.sum_of_products(layer, kernel, shape, (before[0], before[0], before[1], before[1]), rng)
        elif isinstance(layer, Dense):
            net.sum_of_products(layer, (h, w), (*layer.out_shape, 1, 1), (0, 0, 0, 0), rng)
        elif isinstance(layer, MaxPool2D):
            windows = [tuple((2 * i, 2 * i + 2) for i in range(size)) for size in layer.out_shape[1:]]
            net.add(p.MaxPool("MaxPool2D", (len(net.values) - 1,), *windows, (1, 1)), layer.out_shape)
    factors, offsets = np.full(first[0], 0.5), np.full(first[0], -64.0)
    return p.Program(p.QuantizeInput(factors, offsets), tuple(net.values), tuple(net.operations))


def measure(net, batch_size, args):
    """Measures both sides of a net and batch size; returns the entry for the file."""
    model = ALL_NETS[net].model()
    quantized = Sequential([IntegerNet(program_of(model))], input_shape=model.layers[0].in_shape)
    images = np.random.default_rng(0).integers(0, 256, (batch_size, *ALL_NETS[net].image)).astype(np.uint8)
    if len(np.unique(quantized.layers[0].quantized(quantized.predict(images[:16])))) < 2:
        raise SystemExit(f"{net}: the program computes the same number everywhere")
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
