"""Kernel benchmark, one thread: each kernel's share of the peak of multiply-adds, or of the memory bandwidth.

README.md in this folder describes the method.
"""

import argparse
import math
import statistics
import time
from dataclasses import dataclass, field

import numpy as np
from measure import limit_threads, machine, positive, print_machine, write_json
from nets import make_model
from peak import Peak, probe_or_notice

from minidl.layers import (
    GELU,
    AvgPool2D,
    BatchNorm2D,
    Conv2D,
    ConvTranspose2D,
    Dense,
    DepthwiseConv2D,
    GroupNorm,
    LayerNorm,
    MaxPool2D,
    Pad2D,
    PReLU,
    ReLU,
    Rescale,
    Scale,
    Sigmoid,
    SiLU,
    Softmax,
    Tanh,
    Upsample2D,
)
from minidl_c.runtime.gather import pack_tiles

LANES = 16  # examples per tile
ROWS_TILES = 4  # tiles per dense weight gradient: a batch of 64

MULTIPLYING = {
    "conv 1->6 5x5 pad 2, 28x28": (Conv2D(6, 5, padding=2), (1, 28, 28)),
    "conv 6->16 5x5, 14x14": (Conv2D(16, 5), (6, 14, 14)),
    "conv 1->32 3x3, 28x28": (Conv2D(32, 3), (1, 28, 28)),
    "conv 32->64 3x3, 26x26": (Conv2D(64, 3), (32, 26, 26)),
    "conv 64->64 3x3 pad 1, 16x16": (Conv2D(64, 3, padding=1), (64, 16, 16)),
    "conv 64->64 3x3 stride 2, 16x16": (Conv2D(64, 3, 2, padding=1), (64, 16, 16)),
    "conv 64->64 1x1, 16x16": (Conv2D(64, 1), (64, 16, 16)),
    "transposed 64->32 2x2 by 2, 16x16": (ConvTranspose2D(32, 2, 2), (64, 16, 16)),
    "depthwise 32 3x3 pad 1, 16x16": (DepthwiseConv2D(3, padding=1), (32, 16, 16)),
    "depthwise 32 3x3 stride 2, 16x16": (DepthwiseConv2D(3, 2, padding=1), (32, 16, 16)),
    "dense 400->120": (Dense(120), (400,)),
    "dense 784->256": (Dense(256), (784,)),
    "dense 9216->128": (Dense(128), (9216,)),
}
SMALL, IMAGE = (6, 28, 28), (32, 16, 16)  # input shapes; a tile of IMAGE is half a megabyte
MOVING = {  # layer, input shape, the array that backward reads besides dy
    "max-pool 2 of 6x28x28": (MaxPool2D(2), SMALL, "saved"),
    "max-pool 2 of 64x24x24": (MaxPool2D(2), (64, 24, 24), "saved"),
    "average-pool 2 of 32x16x16": (AvgPool2D(2), IMAGE, None),
    "upsample 2 of 32x8x8": (Upsample2D(2), (32, 8, 8), None),
    "pad 1 of 32x16x16": (Pad2D(1), IMAGE, None),
    "ReLU of 6x28x28": (ReLU(), SMALL, "y"),
    "PReLU of 32x16x16": (PReLU(), IMAGE, "x"),
    "GELU of 32x16x16": (GELU(), IMAGE, "x"),
    "SiLU of 32x16x16": (SiLU(), IMAGE, "x"),
    "sigmoid of 32x16x16": (Sigmoid(), IMAGE, "y"),
    "tanh of 32x16x16": (Tanh(), IMAGE, "y"),
    "softmax of 32x16x16": (Softmax(), IMAGE, "y"),
    "group norm 8 of 32x16x16": (GroupNorm(8), IMAGE, "x"),
    "layer norm of 32x16x16": (LayerNorm(), IMAGE, "x"),
    "layer norm over channels of 32x16x16": (LayerNorm(axis="channels"), IMAGE, "x"),
    "scale of 32x16x16": (Scale(), IMAGE, "x"),
    "rescale of 1x28x28": (Rescale(1 / 255), (1, 28, 28), None),
}


@dataclass
class Kernel:
    """One direction of one op: `seconds()` measures a run; it does `flops` or moves `bytes`."""

    name: str
    direction: str
    seconds: object
    flops: int = 0
    bytes: int = 0
    rounds: list = field(default_factory=list)

    @property
    def median(self):
        return statistics.median(self.rounds)


def build_layer(layer, shape):
    """Returns the layer, built as the only one of a model."""
    return make_model([layer], shape).layers[0]


def multiplying_kernels(probe, least):
    """Yields kernels of convolutions and dense layers; `split_backward` separates their two gradients later."""
    for name, (layer, shape) in MULTIPLYING.items():
        layer = build_layer(layer, shape)
        flops, x, y = 2 * LANES * layer.macs, *(tile_bytes(s) for s in (layer.in_shape, layer.out_shape))
        directions = {"forward": (flops, x + y)}
        if isinstance(layer, Dense):  # a tile's backward: the input gradient, and transposing dy for the reduction
            directions |= {"backward": (flops, 0), "rows": (ROWS_TILES * flops, 0)}
        else:
            directions |= {"backward without dx": (flops, x + y), "backward": (2 * flops, 2 * (x + y))}
        for direction, (flops_done, moved) in directions.items():
            tiled = probe.TiledOp(layer.op, direction, ROWS_TILES if direction == "rows" else 1)
            moved *= isinstance(layer, DepthwiseConv2D)  # the others are bound by arithmetic
            yield Kernel(name, direction, lambda tiled=tiled: tiled.seconds(least), flops=flops_done, bytes=moved)


def tile_bytes(shape):
    return 4 * LANES * math.prod(shape)


def moving_kernels(probe, least):
    """Yields kernels of pools and elementwise ops, with the bytes of the arrays that must be read and written."""
    for name, (layer, shape, reread) in MOVING.items():
        layer = build_layer(layer, shape)
        x, y = tile_bytes(layer.in_shape), tile_bytes(layer.out_shape)
        saved = y if reread == "saved" else 0  # the indices of the maxima
        directions = {"forward": x + y + saved, "backward": x + y + {None: 0, "x": x, "y": y, "saved": saved}[reread]}
        if saved:
            directions["ReLU forward"] = x + y + saved
        for direction, moved in directions.items():
            tiled = probe.TiledOp(layer.op, direction)
            yield Kernel(name, direction, lambda tiled=tiled: tiled.seconds(least), bytes=moved)
    names, ops = ("statistics of 32x16x16", "batch norm of 32x16x16"), build_layer(BatchNorm2D(), IMAGE).ops
    arrays = {"statistics": {"forward": 1, "backward": 3}, "batch norm": {"forward": 2, "backward": 2}}
    for name, op in zip(names, ops, strict=True):
        for direction, count in arrays[name.partition(" of")[0]].items():
            tiled = probe.TiledOp(op, direction)
            yield Kernel(name, direction, lambda tiled=tiled: tiled.seconds(least), bytes=count * tile_bytes(IMAGE))


def gather_kernels(least, images=256):
    """Yields the kernel that gathers rows of bytes into tiles of float32, called through its Python function."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, (10_000, 784), dtype=np.uint8)
    rows = rng.permutation(len(X))[:images]
    tiles = np.empty((images // LANES, 784, LANES), np.float32)

    def seconds():
        begin, runs = time.thread_time(), 0
        while time.thread_time() - begin < least:
            pack_tiles(X, rows, tiles)
            runs += 1
        return (time.thread_time() - begin) / runs

    yield Kernel(f"gather {images} of 784 bytes", "forward", seconds, bytes=images * 784 * 5)


def split_backward(kernels):
    """Separates the gradients: the input gradient is the backward's time less that without dx, round by round."""
    for i, kernel in enumerate(kernels):
        if kernel.direction == "backward" and kernels[i - 1].direction == "backward without dx":
            weights = kernels[i - 1]
            kernel.direction, weights.direction = "input gradient", "weight gradient"
            kernel.flops -= weights.flops
            kernel.bytes -= weights.bytes
            kernel.rounds = [both - one for both, one in zip(kernel.rounds, weights.rounds, strict=True)]
        elif kernel.flops:
            named = {"backward": "input gradient", "rows": f"weight gradient, {LANES * ROWS_TILES} images"}
            kernel.direction = named.get(kernel.direction, kernel.direction)


def summarize_kernel(kernel, peak, bandwidth):
    """Returns the figures of one kernel, for the file and the table."""
    facts = {"kernel": kernel.name, "direction": kernel.direction, "microseconds": 1e6 * kernel.median}
    if kernel.flops:
        flops = kernel.flops / kernel.median
        facts |= {"gflops": flops / 1e9, "share_of_peak": flops / peak.flops}
    if kernel.bytes:
        moved = kernel.bytes / kernel.median
        facts |= {"gigabytes_per_second": moved / 1e9, "share_of_bandwidth": moved / bandwidth}
    return facts


def format_row(facts):
    """Returns a line of the table."""
    row = f"{facts['kernel']:35}{facts['direction']:28}{facts['microseconds']:10.1f}"
    row += f"{facts['gflops']:10.1f}{facts['share_of_peak']:9.0%}" if "gflops" in facts else " " * 19
    if "gigabytes_per_second" in facts:
        row += f"{facts['gigabytes_per_second']:8.1f}{facts['share_of_bandwidth']:7.0%}"
    return row


def main():
    """Measures all kernels, alternating; prints a table and writes the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=positive, default=15)
    parser.add_argument("--seconds", type=float, default=0.01, help="minimum duration of a round of one kernel")
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file")
    args = parser.parse_args()
    limit_threads(1)
    if (probe := probe_or_notice()) is None:
        raise SystemExit(1)
    probe.count_own_time()
    results = {"machine": machine() | {"threads": 1}}
    print_machine(results["machine"])
    kernels = [*multiplying_kernels(probe, args.seconds), *moving_kernels(probe, args.seconds)]
    kernels += gather_kernels(args.seconds)
    peak, bandwidths = Peak(probe, 1, args.seconds), []
    for _ in range(args.rounds):
        peak.measure()
        bandwidths.append(probe.bandwidth(args.seconds))
        for kernel in kernels:
            kernel.rounds.append(kernel.seconds())
    split_backward(kernels)
    bandwidth = statistics.median(bandwidths)
    results |= {"peak_gflops": peak.flops / 1e9, "gigabytes_per_second": bandwidth / 1e9}
    results["kernels"] = [summarize_kernel(kernel, peak, bandwidth) for kernel in kernels]
    bounds = f"{peak.flops / 1e9:.1f} GFLOP/s in float32, {bandwidth / 1e9:.1f} GB/s"
    print(f"\none thread: {bounds}; a tile is {LANES} images\n")
    print(f"{'':63}{'us':>10}{'GFLOP/s':>10}{'of peak':>9}{'GB/s':>8}{'of it':>7}")
    print("\n".join(format_row(facts) for facts in results["kernels"]))
    write_json(args.json, results)


if __name__ == "__main__":
    main()
