"""Speed and memory of nets with Winograd's convolutions, compared with the same nets with direct ones."""

import dataclasses

from measure import Side, alternate, settle, spread
from nets import ALL_NETS, make_model
from sides import MinidlPredict, MinidlTrainBatch, Task
from winograd_training import ALGORITHMS, with_algorithm

ROUNDS, SECONDS, STEPS = 15, 0.3, 1000
BATCHES = 4  # different batches of a training side


def with_layers(net, algorithm):
    """Returns a benchmarked net whose convolutions all have this algorithm."""
    return dataclasses.replace(net, layers=lambda: with_algorithm(net.layers(), algorithm))


def predict_side(task):
    return MinidlPredict(make_model(task.net.layers(), task.net.image), task.scaled[: task.batch_size])


WORK = {"predict": predict_side, "train_batch": MinidlTrainBatch}


def measure_pair(net, batch_size, work, threads):
    """Returns the milliseconds of both algorithms, alternating, as `spread` does."""
    sides = []
    for algorithm in ALGORITHMS:
        task = Task(with_layers(ALL_NETS[net], algorithm), batch_size, BATCHES, threads)
        sides.append(Side(algorithm, WORK[work](task).run))
    settle(sides, STEPS, SECONDS)
    alternate(sides, ROUNDS)
    return {side.name: spread(side.rounds) for side in sides}


def measure_memory(net, batch_size):
    """Returns the bytes of a training step with each algorithm, as `summary` tells them."""
    found = {}
    for algorithm in ALGORITHMS:
        model = make_model(with_layers(ALL_NETS[net], algorithm).layers(), ALL_NETS[net].image)
        found[algorithm] = model.summary(batch_size).training_bytes
    return found


def compare_speed(args):
    """Prints the times of predictions and training steps with both algorithms, and the memory of a step."""
    results = []
    print(f"\n{'ms: Winograd, direct sum, speedup':40}{'predict':>28}{'train_batch':>30}{'MB of a step':>20}")
    for net in args.nets:
        for batch_size in args.batch_sizes:
            entry = {"net": net, "batch_size": batch_size, "bytes": measure_memory(net, batch_size)}
            line = f"{ALL_NETS[net].title}, batch {batch_size}"
            line = f"{line:40}"
            for work in WORK:
                entry[work] = measure_pair(net, batch_size, work, args.threads)
                auto, direct = (entry[work][algorithm]["median"] for algorithm in ALGORITHMS)
                line += f"{auto:10.3f}{direct:10.3f}{direct / auto:8.2f}"
            line += "".join(f"{entry['bytes'][algorithm] / 1e6:10.1f}" for algorithm in ALGORITHMS)
            print(line, flush=True)
            results.append(entry)
    return results
