"""How far a train step could be shared out: multiply-adds of its critical path for 1 to 64 threads, counted, not timed.

README.md in this folder says what is counted.
"""

import argparse
import math

from measure import positive, write_json
from nets import NETS, leaves

from minidl.layers import Conv2D, Dense

# Of minidl_c: examples in a tile, slots of a batch, ranges of a dense layer's rows, rows that a range does not split
LANES, SLOTS, RANGES, ROWS_AT_ONCE = 16, 16, 16, 8
THREADS = (1, 2, 4, 8, 16, 32, 64)


def largest_share(things, parts):
    """The share of the thread that has most, as a fraction of all."""
    return math.ceil(things / parts) / things


def tile_work(layer, first):
    """Multiply-adds of one tile, with the number of things each may be split into: [(multiply-adds, things)].

    A dense layer's weight gradient is not among them: it follows when all tiles are done.
    """
    macs = LANES * layer.macs
    outputs, inputs = layer.out_shape[0], layer.in_shape[0]
    work = [(macs, outputs)]
    if isinstance(layer, Conv2D):
        work.append((macs, outputs))
    if not first:
        work.append((macs, inputs))
    return work


def critical_path(model, batch_size, threads):
    """Multiply-adds that have to be done one behind the other, if no thread ever waits."""
    layers = [layer for layer in leaves(model) if isinstance(layer, Conv2D | Dense)]
    tiles = math.ceil(batch_size / LANES)
    work = [part for layer in layers for part in tile_work(layer, layer is layers[0])]
    slots = min(tiles, SLOTS)
    if tiles < SLOTS and 2 * tiles <= threads:  # every call's channels are shared out by all threads
        total = tiles * sum(macs * largest_share(things, threads) for macs, things in work)
    else:  # whole slots, runs of tiles, each done by one thread
        threads = min(threads, slots)
        total = math.ceil(slots / threads) * math.ceil(tiles / slots) * sum(macs for macs, _ in work)
    for layer in layers:
        if isinstance(layer, Dense):  # ranges of whole register tiles of rows, and each thread its ranges
            groups = math.ceil((layer.in_shape[0] + 1) / ROWS_AT_ONCE)
            most = min(1, math.ceil(RANGES / threads) * math.ceil(groups / RANGES) / groups)
            total += layer.macs * LANES * tiles * most
    return total


def count(net, batch_size):
    """The speed over one thread, for each number of threads."""
    model = NETS[net].model()
    alone = critical_path(model, batch_size, 1)
    return {threads: alone / critical_path(model, batch_size, threads) for threads in THREADS}


def main():
    """Count, print, and write the file if one is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch-sizes", nargs="+", type=positive, default=[16, 64, 256, 1024])
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file")
    args = parser.parse_args()
    print("Times as fast as one thread, at most: by the multiply-adds of the longest path. Counted, not timed.\n")
    print(f"{'threads':41}" + "".join(f"{threads:7}" for threads in THREADS))
    results = {}
    for net in NETS:
        for batch_size in args.batch_sizes:
            found = results[f"{net}, {batch_size}"] = count(net, batch_size)
            row = "".join(f"{speed:6.1f}x" for speed in found.values())
            print(f"{NETS[net].title + ', batch ' + str(batch_size):41}{row}")
    write_json(args.json, results)


if __name__ == "__main__":
    main()
