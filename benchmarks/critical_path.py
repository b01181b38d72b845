"""Model of a training step's parallel speedup: multiply-adds and barriers on the critical path, for 1 to 64 threads.

README.md in this folder says what is counted.
"""

import argparse
import math

from measure import positive, write_json
from nets import NETS, leaves, make_trainer

from minidl.layers import Conv2D, Dense
from minidl_c.runtime.threads import set_thread_choice

# Constants of minidl_c: examples per tile, slots per batch, parts of a tile, row ranges of a dense layer, rows per
# register tile, side of a patch in Winograd's algorithm
LANES, SLOTS, PARTS, RANGES, ROWS_AT_ONCE, PATCH = 16, 16, 16, 64, 8, 4
# As in schedule.pyx, in multiply-adds, channels and as a factor: fitted on two cores, a guess for more
BARRIER, BARRIER_THREAD, READ_CHANNELS, SHARED_TILE = 2e5, 4e3, 2, 1.35
BLOCKED = 1.15  # an example in the blocked layout, compared with its share of a tile, if its channels fill the lanes
THREADS = (1, 2, 4, 8, 16, 32, 64)
REAL_BYTES = 4


def tile_work(layer, first):
    """Returns the calls of one tile as (multiply-adds, number of pieces for threads, channels of a piece).

    The weight gradient of a dense layer is excluded: it is computed after all tiles are done.
    """
    macs, channels = LANES * layer.macs, 1
    outputs, inputs, kernels = layer.out_shape[0], layer.in_shape[0], layer.out_shape[0]
    if getattr(layer, "uses_winograd", False):  # split into patches; the gradient of the weights by 16 channels
        outputs = inputs = math.prod(math.ceil(side / PATCH) for side in layer.out_shape[1:])
        kernels, channels = kernels // LANES, LANES
    work = [(macs, outputs, channels)]
    if isinstance(layer, Conv2D):
        work.append((macs, kernels, channels))
    if not first:
        work.append((macs, inputs, channels))
    return work


def part_time(work, parts, ideal):
    """Returns the multiply-adds of the largest part of a tile; unless ideal, with what sharing costs."""
    read, factor = (0, 1) if ideal or parts == 1 else (READ_CHANNELS, SHARED_TILE)
    shares = [
        macs * (math.ceil(things / parts) * channels + read) / (things * channels + read)
        for macs, things, channels in work
    ]
    return factor * sum(shares)


def tiles_time(work, tiles, threads, slots, ideal=True):
    """Returns the multiply-adds of the thread that has the most, for all tiles.

    slots: None: whole tiles, then threads share those that are left over. A number: whole slots, of that many at most;
    threads share tiles only if each is a slot and has two threads.
    """
    whole = sum(macs for macs, _, _ in work)
    if slots is None:
        rest = tiles % threads
        shared = [math.ceil(rest * n / threads) * part_time(work, n, ideal) for n in range(1, PARTS + 1)]
        return tiles // threads * whole + min(shared)
    if tiles < slots and 2 * tiles <= threads:
        return tiles * part_time(work, threads, ideal)
    slots = min(tiles, slots)
    return math.ceil(slots / threads) * math.ceil(tiles / slots) * whole


def blocked_time(layers):
    """Returns the multiply-adds of one example in the blocked layout; lanes without a channel cost as in costs.pyx."""
    total = 0
    for layer in layers:
        waste = math.ceil(layer.out_shape[0] / LANES) * LANES / layer.out_shape[0]
        total += sum(macs for macs, _, _ in tile_work(layer, layer is layers[0])) / LANES * waste**1.5
    return BLOCKED * total


def critical_path(model, batch_size, threads, slots=None, ideal=True, rest=0):
    """Returns the multiply-adds that must be done in sequence, if no thread waits. slots: as for tiles_time.

    rest: the examples at the end that are in the blocked layout; threads without one more tile share them.
    """
    layers = [layer for layer in leaves(model) if isinstance(layer, Conv2D | Dense)]
    tiles = math.ceil(batch_size / LANES)
    work = [part for layer in layers for part in tile_work(layer, layer is layers[0])]
    if rest:
        whole, more = divmod((batch_size - rest) // LANES, threads)
        tile, chunk = sum(macs for macs, _, _ in work), math.ceil(rest / (threads - more)) * blocked_time(layers)
        total = whole * tile + max(tile if more else 0, chunk)
    else:
        total = tiles_time(work, tiles, threads, slots, ideal)
    ranges = SLOTS if slots or SLOTS % threads == 0 else RANGES
    for layer in layers:
        if isinstance(layer, Dense):  # rows are split into ranges of whole register tiles, ranges among the threads
            groups = math.ceil((layer.in_shape[0] + 1) / ROWS_AT_ONCE)
            largest = min(1, math.ceil(ranges / threads) * math.ceil(groups / ranges) / groups)
            total += layer.macs * LANES * tiles * largest
    return total


def bounds(model, batch_size, slots=None):
    """Returns the speedup over one thread without barriers, by number of threads."""
    single = critical_path(model, batch_size, 1, slots)
    return {threads: single / critical_path(model, batch_size, threads, slots) for threads in THREADS}


def modelled(model, plan, batch_size):
    """Returns the speedup with the costs of sharing, by number of threads: of as many as a step takes of them."""
    single, found = critical_path(model, batch_size, 1), {}
    for threads in THREADS:
        parts = plan.schedules(batch_size, threads)
        used, rest = parts[0][2], sum(examples for form, examples, _ in parts if form == "IN_CHUNKS")
        barriers = len(plan.phases(batch_size, threads)) * (BARRIER + BARRIER_THREAD * used) if used > 1 else 0
        found[threads] = single / (barriers + critical_path(model, batch_size, used, ideal=False, rest=rest))
    return found


def sum_bytes(model, rows):
    """Returns the bytes of the sums of convolutions and norms, with a row for each slot or tile."""
    params = [param for layer in leaves(model) if not isinstance(layer, Dense) for param in layer.params.values()]
    return rows * REAL_BYTES * sum(param.value.size for param in params)


def main():
    """Counts, prints and writes the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch-sizes", nargs="+", type=positive, default=[64, 256, 1024])
    parser.add_argument("--slots", nargs="+", type=positive, default=[16, 32, 64], help="whole slots, to compare")
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file")
    args = parser.parse_args()
    set_thread_choice(True, max(THREADS))
    print("Speedup over one thread, counted and modelled, not timed; memory of sums over the batch\n")
    print(f"{'threads':38}" + "".join(f"{threads:7}" for threads in THREADS) + "      sums")
    results = {}
    for net in NETS:
        model = NETS[net].model()
        plan = make_trainer(model).steps().plan
        for batch_size in args.batch_sizes:
            tiles = math.ceil(batch_size / LANES)
            rows = {f"at most {n} slots": (bounds(model, batch_size, n), min(n, tiles)) for n in args.slots}
            rows["tiles"] = bounds(model, batch_size), tiles
            rows["tiles, with all costs"] = modelled(model, plan, batch_size), tiles
            results[f"{net}, {batch_size}"] = {name: speeds for name, (speeds, _) in rows.items()}
            print(f"{NETS[net].title}, batch {batch_size}")
            for name, (speeds, copies) in rows.items():
                cells = "".join(f"{speed:6.1f}x" for speed in speeds.values())
                print(f"  {name:36}{cells}{sum_bytes(model, copies) / 1e6:7.1f} MB")
    write_json(args.json, results)


if __name__ == "__main__":
    main()
