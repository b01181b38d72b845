"""Every kernel of the nets by itself, on one thread: its share of the peak of multiply-adds, or its bytes a second.

README.md in this folder says what is measured and how.
"""

import argparse
import statistics
import time
from dataclasses import dataclass, field

import numpy as np
from measure import limit_threads, machine, positive, tell, write_json
from nets import make_model
from peak import Peak, probe_or_notice

from minidl.layers import Conv2D, Dense, MaxPool2D, ReLU, Rescale
from minidl_c.gather import gather_forward

LANES = 16  # examples in a tile
ROWS_TILES = 4  # dense weight gradients: of a batch of 64

MULTIPLYING = {
    "conv 1->6 5x5 pad 2, 28x28": (Conv2D(6, 5, padding=2), (1, 28, 28)),
    "conv 6->16 5x5, 14x14": (Conv2D(16, 5), (6, 14, 14)),
    "conv 1->32 3x3, 28x28": (Conv2D(32, 3), (1, 28, 28)),
    "conv 32->64 3x3, 26x26": (Conv2D(64, 3), (32, 26, 26)),
    "dense 400->120": (Dense(120), (400,)),
    "dense 784->256": (Dense(256), (784,)),
    "dense 9216->128": (Dense(128), (9216,)),
}
MOVING = {
    "max-pool 2 of 6x28x28": (MaxPool2D(2), (6, 28, 28)),
    "max-pool 2 of 64x24x24": (MaxPool2D(2), (64, 24, 24)),
    "ReLU of 6x28x28": (ReLU(), (6, 28, 28)),
    "rescale of 1x28x28": (Rescale(1 / 255), (1, 28, 28)),
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


def built(layer, shape):
    """The layer in a model of its own."""
    return make_model([layer], shape).layers[0]


def multiplying(probe, least):
    """Convolutions and dense layers; what a backward does besides the weight gradient comes out in `main`."""
    for name, (layer, shape) in MULTIPLYING.items():
        layer = built(layer, shape)
        flops = 2 * LANES * layer.macs
        directions = {"forward": flops}
        if isinstance(layer, Conv2D):
            directions |= {"backward without dx": flops, "backward": 2 * flops}
        else:  # the tile's backward is the input gradient, and turning dy for the rows
            directions |= {"backward": flops, "rows": ROWS_TILES * flops}
        for direction, flops_done in directions.items():
            tiled = probe.TiledOp(layer.op, direction, ROWS_TILES if direction == "rows" else 1)
            yield Kernel(name, direction, lambda tiled=tiled: tiled.seconds(least), flops=flops_done)


def moving(probe, least):
    """Pools and elementwise ops: bytes of the arrays that have to be read and written."""
    for name, (layer, shape) in MOVING.items():
        layer = built(layer, shape)
        x, y = (4 * LANES * int(np.prod(s)) for s in (layer.in_shape, layer.out_shape))
        saved = y if isinstance(layer, MaxPool2D) else 0  # which cell won
        backward = x + 2 * y if isinstance(layer, (MaxPool2D, ReLU)) else x + y  # a ReLU reads its y again
        directions = {"forward": x + y + saved, "backward": backward}
        if saved:
            directions["ReLU forward"] = x + y + saved
        for direction, moved in directions.items():
            tiled = probe.TiledOp(layer.op, direction)
            yield Kernel(name, direction, lambda tiled=tiled: tiled.seconds(least), bytes=moved)


def gathering(least, images=256):
    """Rows of bytes into tiles of float32, through the function that Python calls."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, (10_000, 784), dtype=np.uint8)
    rows = rng.permutation(len(X))[:images]
    tiles = np.empty((images // LANES, 784, LANES), np.float32)

    def seconds():
        begin, runs = time.perf_counter(), 0
        while time.perf_counter() - begin < least:
            gather_forward(X, rows, tiles)
            runs += 1
        return (time.perf_counter() - begin) / runs

    yield Kernel(f"gather {images} of 784 bytes", "forward", seconds, bytes=images * 784 * 5)


def input_gradients(kernels):
    """What the backward of a convolution takes longer than without dx, round by round."""
    for i, kernel in enumerate(kernels):
        if kernel.direction == "backward" and kernels[i - 1].direction == "backward without dx":
            weights = kernels[i - 1]
            kernel.direction, weights.direction = "input gradient", "weight gradient"
            kernel.flops -= weights.flops
            kernel.rounds = [both - one for both, one in zip(kernel.rounds, weights.rounds, strict=True)]
        elif kernel.flops:
            named = {"backward": "input gradient", "rows": f"weight gradient, {LANES * ROWS_TILES} images"}
            kernel.direction = named.get(kernel.direction, kernel.direction)


def facts_of(kernel, peak):
    """The figures of one kernel, for the file and the table."""
    facts = {"kernel": kernel.name, "direction": kernel.direction, "microseconds": 1e6 * kernel.median}
    if kernel.flops:
        gflops = kernel.flops / kernel.median / 1e9
        return facts | {"gflops": gflops, "share_of_peak": 1e9 * gflops / peak.flops}
    return facts | {"gigabytes_per_second": kernel.bytes / kernel.median / 1e9}


def line(facts):
    """A line for people."""
    start = f"{facts['kernel']:30}{facts['direction']:28}{facts['microseconds']:10.1f}"
    if "gflops" in facts:
        return f"{start}{facts['gflops']:10.1f}{facts['share_of_peak']:9.0%}"
    return f"{start}{facts['gigabytes_per_second']:27.1f}"


def main():
    """Measure all kernels in turn, print a table, write the file if one is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=positive, default=15)
    parser.add_argument("--seconds", type=float, default=0.01, help="of a round of one kernel, at least")
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file")
    args = parser.parse_args()
    limit_threads(1)
    if (probe := probe_or_notice()) is None:
        raise SystemExit(1)
    results = {"machine": machine() | {"threads": 1}}
    tell(results["machine"])
    kernels = [*multiplying(probe, args.seconds), *moving(probe, args.seconds), *gathering(args.seconds)]
    peak = Peak(probe, 1, args.seconds)
    for _ in range(args.rounds):
        peak.measure()
        for kernel in kernels:
            kernel.rounds.append(kernel.seconds())
    input_gradients(kernels)
    results |= {"peak_gflops": peak.flops / 1e9, "kernels": [facts_of(kernel, peak) for kernel in kernels]}
    print(f"\npeak of one thread: {peak.flops / 1e9:.1f} GFLOP/s, float32; a tile is {LANES} images\n")
    print(f"{'':58}{'us':>10}{'GFLOP/s':>10}{'of peak':>9}{'GB/s':>8}")
    print("\n".join(line(facts) for facts in results["kernels"]))
    write_json(args.json, results)


if __name__ == "__main__":
    main()
