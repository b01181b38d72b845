"""Bound of a training step's parallel speedup: multiply-adds on the critical path, for 1 to 64 threads.

README.md in this folder says what is counted.
"""

import argparse
import math

from measure import positive, write_json
from nets import NETS, leaves

from minidl.layers import Conv2D, Dense

# Constants of minidl_c: examples per tile, slots per batch, row ranges of a dense layer, rows per register tile
LANES, SLOTS, RANGES, ROWS_AT_ONCE = 16, 16, 16, 8
THREADS = (1, 2, 4, 8, 16, 32, 64)


def largest_fraction(things, parts):
    """Returns the fraction of the work of the thread that has the most."""
    return math.ceil(things / parts) / things


def tile_work(layer, first):
    """Returns the calls of one tile as pairs (multiply-adds, number of pieces that it can be split into).

    The weight gradient of a dense layer is excluded: it is computed after all tiles are done.
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
    """Returns the multiply-adds that must be done in sequence, if no thread ever waits."""
    layers = [layer for layer in leaves(model) if isinstance(layer, Conv2D | Dense)]
    tiles = math.ceil(batch_size / LANES)
    work = [part for layer in layers for part in tile_work(layer, layer is layers[0])]
    slots = min(tiles, SLOTS)
    if tiles < SLOTS and 2 * tiles <= threads:  # all threads split the channels of every call
        total = tiles * sum(macs * largest_fraction(things, threads) for macs, things in work)
    else:  # one thread computes a whole slot, which is a run of tiles
        threads = min(threads, slots)
        total = math.ceil(slots / threads) * math.ceil(tiles / slots) * sum(macs for macs, _ in work)
    for layer in layers:
        if isinstance(layer, Dense):  # rows are split into ranges of whole register tiles, ranges among the threads
            groups = math.ceil((layer.in_shape[0] + 1) / ROWS_AT_ONCE)
            largest = min(1, math.ceil(RANGES / threads) * math.ceil(groups / RANGES) / groups)
            total += layer.macs * LANES * tiles * largest
    return total


def count(net, batch_size):
    """Returns the speedup over one thread, by number of threads."""
    model = NETS[net].model()
    single = critical_path(model, batch_size, 1)
    return {threads: single / critical_path(model, batch_size, threads) for threads in THREADS}


def main():
    """Counts, prints and writes the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch-sizes", nargs="+", type=positive, default=[16, 64, 256, 1024])
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file")
    args = parser.parse_args()
    print("Upper bound of the speedup over one thread, from multiply-adds on the critical path. Counted, not timed.\n")
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
