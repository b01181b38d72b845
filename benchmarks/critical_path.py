"""How far a train step could be shared out: the multiply-adds of its critical path for 1 to 64 threads, counted, not timed.

README.md in this folder says what is counted.
"""

import argparse
import math

from measure import write_json
from nets import NETS, TITLES, forward_macs, make_model

from minidl.layers import Conv2D, Dense

LANES, SLOTS, RANGES = 16, 16, 16  # of minidl_c: examples in a tile, slots of a batch, ranges of a dense layer's rows
THREADS = (1, 2, 4, 8, 16, 32, 64)


def largest_share(things, parts):
    """The share of the thread that has most, as a fraction of all."""
    return math.ceil(things / parts) / things


def tile_work(layer, first):
    """Multiply-adds of one tile, with the number of things each may be split into: [(multiply-adds, things)].

    A dense layer's weight gradient is not among them: it follows when all tiles are done.
    """
    macs = LANES * forward_macs(layer)
    outputs, inputs = layer.out_shape[0], layer.in_shape[0]
    work = [(macs, outputs)]
    if isinstance(layer, Conv2D):
        work.append((macs, outputs))
    if not first:
        work.append((macs, inputs))
    return work


def critical_path(model, batch_size, threads):
    """Multiply-adds that one thread after another has to do, if no thread ever waits for memory or for nothing."""
    layers = [layer for layer in model.layers if isinstance(layer, Conv2D | Dense)]
    tiles = math.ceil(batch_size / LANES)
    work = [part for layer in layers for part in tile_work(layer, layer is layers[0])]
    slots = min(tiles, SLOTS)
    if tiles < SLOTS and 2 * tiles <= threads:  # every call's channels are shared out by all threads
        total = tiles * sum(macs * largest_share(things, threads) for macs, things in work)
    else:  # whole slots, runs of tiles, each done by one thread
        threads = min(threads, slots)
        total = math.ceil(slots / threads) * math.ceil(tiles / slots) * sum(macs for macs, _ in work)
    rows = sum(forward_macs(layer) for layer in layers if isinstance(layer, Dense)) * LANES * tiles
    return total + rows * largest_share(RANGES, threads)


def count(net, batch_size):
    """The speed over one thread, for each number of threads."""
    model = make_model(NETS[net]())
    alone = critical_path(model, batch_size, 1)
    return {threads: alone / critical_path(model, batch_size, threads) for threads in THREADS}


def main():
    """Count, print, and write the file if one is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=[16, 64, 256, 1024])
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file")
    args = parser.parse_args()
    print("Times as fast as one thread, at most: by the multiply-adds of the longest path. Counted, not timed.\n")
    print(f"{'threads':41}" + "".join(f"{threads:7}" for threads in THREADS))
    results = {}
    for net in NETS:
        for batch_size in args.batch_sizes:
            found = results[f"{net}, {batch_size}"] = count(net, batch_size)
            row = "".join(f"{speed:6.1f}x" for speed in found.values())
            print(f"{TITLES[net] + ', batch ' + str(batch_size):41}{row}")
    write_json(args.json, results)


if __name__ == "__main__":
    main()
