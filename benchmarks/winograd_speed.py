"""Speed, and memory of a step, of nets with Winograd's convolutions, compared with the same nets with direct ones."""

import time
from dataclasses import replace

from measure import Side, alternate, settle, spread
from nets import ALL_NETS, Net
from sides import MinidlPredict, MinidlTrainBatch, Task
from winograd_training import ALGORITHMS, with_algorithm

from minidl.layers import Conv2D, Dense, GlobalAvgPool2D, Rescale, Scale

STEPS, SECONDS = 1000, 0.3  # of a round, at most
BATCHES = 4  # of random images
SMALL = ((256, 8), (256, 4), (256, 2), (128, 4))  # channels and filters, pixels a side


def predict_side(task):
    return MinidlPredict(task.model(), task.scaled[: task.batch_size])


WORK = {"predict": predict_side, "train_batch": MinidlTrainBatch}


def with_convolutions(net, algorithm):
    """Returns a benchmarked net whose convolutions have this algorithm."""
    return replace(net, layers=lambda: with_algorithm(net.layers(), algorithm))


def measure_pair(net, batch_size, work, args, algorithms=ALGORITHMS, clock=time.perf_counter):
    """Returns median, smallest and largest milliseconds of a step by algorithm, measured alternately."""
    tasks = {name: Task(with_convolutions(net, name), batch_size, BATCHES, args.threads) for name in algorithms}
    sides = [Side(name, WORK[work](task).run, clock=clock) for name, task in tasks.items()]
    settle(sides, STEPS, SECONDS)
    alternate(sides, args.rounds)
    return {side.name: spread(side.rounds) for side in sides}


def compare_speed(args):
    """Prints milliseconds of predictions and training steps with both algorithms, and megabytes of a step."""
    results = []
    print(f"\n{'':36}{'predict, ms':^30}{'train_batch, ms':^30}{'MB of a step':^20}")  # in blocks of 2 MiB
    print(f"{'':36}" + 2 * f"{'winograd':>10}{'direct':>10}{'speedup':>10}" + f"{'winograd':>10}{'direct':>10}")
    for name in args.speed_nets:
        net = ALL_NETS[name]
        for batch_size in args.batch_sizes:
            found = {work: measure_pair(net, batch_size, work, args) for work in WORK}
            memory = {
                algorithm: with_convolutions(net, algorithm).model().summary(batch_size, args.threads).step_bytes
                for algorithm in ALGORITHMS
            }
            medians = [[found[work][algorithm]["median"] for algorithm in ALGORITHMS] for work in WORK]
            cells = "".join(f"{auto:10.3f}{direct:10.3f}{direct / auto:10.2f}" for auto, direct in medians)
            cells += "".join(f"{size / 1e6:10.1f}" for size in memory.values())
            print(f"{f'{net.title}, {batch_size}':36}{cells}", flush=True)
            results.append({"net": name, "batch_size": batch_size, "step_bytes": memory} | found)
    return results


def small_net(channels, size):
    """Returns a net of one convolution of small images, which computes dx for Scale. Other layers take little time."""

    def layers():
        return [Rescale(1 / 255), Scale(), Conv2D(channels, 3, padding=1), GlobalAvgPool2D(), Dense(10)]

    return Net(f"{channels}x{size}x{size} to {channels}", layers, (channels, size, size))


def compare_small(args):
    """Prints the processor's time for an image, of convolutions of small images with both algorithms."""
    results, algorithms = [], ("winograd", "direct")
    print(f"\n{'CPU milliseconds of an image':36}{'predict':^30}{'train_batch':^30}")
    print(f"{'':36}" + 2 * f"{'winograd':>10}{'direct':>10}{'speedup':>10}")
    for net in (small_net(*sizes) for sizes in SMALL):
        for batch_size in args.batch_sizes:
            found = {work: measure_pair(net, batch_size, work, args, algorithms, time.process_time) for work in WORK}
            medians = [[found[work][algorithm]["median"] / batch_size for algorithm in algorithms] for work in WORK]
            cells = "".join(f"{own:10.3f}{direct:10.3f}{direct / own:10.2f}" for own, direct in medians)
            print(f"{f'{net.title}, {batch_size}':36}{cells}", flush=True)
            results.append({"net": net.title, "batch_size": batch_size} | found)
    return results
