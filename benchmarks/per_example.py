"""Per-example gradients, their norms and clipping, compared with an ordinary step and with PyTorch's vmap.

README.md in this folder describes the method.
"""

import argparse
import itertools
import statistics
from importlib.util import find_spec

import numpy as np
from footprint import run_fit_memory
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
from nets import NETS, make_trainer
from sides import MinidlTrainBatch, Task

UNCOUPLED_NETS = ("lenet", "cnn", "mlp")  # without batch norm, which couples the examples of a batch
STEP, NORMS, GRADIENTS, CLIPPED, VMAP = "train_batch", "norms", "gradients", "clipped", "PyTorch vmap(grad)"


class PerExample:
    """Computes the gradient of every example of a batch, or its norm with reduce="norm", without a step."""

    def __init__(self, task, reduce=None):
        self.trainer, self.batches, self.reduce = make_trainer(task.model()), task.cut(task.X, task.y), reduce

    def compute(self, xb, yb):
        return self.trainer.per_example_gradients(xb, yb, reduce=self.reduce)

    def run(self, steps):
        for xb, yb in itertools.islice(itertools.cycle(self.batches), steps):
            self.compute(xb, yb)


def clipped(task):
    """Returns a side that clips per-example gradients: each step is a pass for the norms and an ordinary step."""
    side = MinidlTrainBatch(task)
    side.trainer.per_example_clip_norm = 1.0
    return side


def torch_vmap(task):
    from torch_steps import TorchPerExample

    return TorchPerExample(task)


SIDES = {
    STEP: MinidlTrainBatch,
    NORMS: lambda task: PerExample(task, "norm"),
    GRADIENTS: PerExample,
    CLIPPED: clipped,
    VMAP: torch_vmap,
}


def check_same_norms(sides):
    """Raises AssertionError unless all sides find the same norms for their first batch."""
    norms = sides[NORMS].compute(*sides[NORMS].batches[0])
    for name in (GRADIENTS, VMAP):
        if name in sides:
            grads = sides[name].compute(*sides[name].batches[0])
            for param, expected in norms.items():
                lengths = np.linalg.norm(np.asarray(grads[param]).reshape(len(expected), -1), axis=1)
                np.testing.assert_allclose(lengths, expected, rtol=1e-3, atol=1e-6, err_msg=f"{name}: {param}")


def measure(net, batch_size, peers, args):
    """Measures all sides of one net and batch size, alternating; returns the entry for the file."""
    task = Task(NETS[net], batch_size, args.steps, args.threads)
    made = {name: make(task) for name, make in SIDES.items() if peers or name != VMAP}
    check_same_norms(made)
    sides = [Side(name, side.run) for name, side in made.items()]
    settle(sides, args.steps, args.seconds)
    alternate(sides, args.rounds)
    rounds = {side.name: side.rounds for side in sides}
    result = {"net": net, "batch_size": batch_size, "sides": {}}
    for name, found in rounds.items():
        kilobytes = run_fit_memory(name, net, "--batch-size", batch_size, "--steps", 2)["fit"]
        result["sides"][name] = {
            "milliseconds": spread(found),
            "rounds": found,
            "steps": ratio(found, rounds[STEP]),
            "kilobytes": kilobytes,
        }
    result["times_of_vmap"] = ratio(rounds[VMAP], rounds[GRADIENTS]) if peers else None
    parameters = sum(param.value.size for param in task.model().params.values())
    result["gradients_kilobytes"] = batch_size * parameters * 4 // 1024  # float32
    return result


def ratio(some, others):
    """Returns the median of the ratios of two lists of times, round by round."""
    return statistics.median(a / b for a, b in zip(some, others, strict=True))


def format_table(result):
    """Returns the printed table."""
    lines = [f"{NETS[result['net']].title}, batch {result['batch_size']}"]
    lines.append(f"{'':20}{'ms':>9}{'fastest':>9}{'slowest':>9}{'steps':>8}{'MB':>9}")
    for name, side in result["sides"].items():
        ms, megabytes = side["milliseconds"], side["kilobytes"] / 1024
        times = f"{ms['median']:9.3f}{ms['smallest']:9.3f}{ms['largest']:9.3f}"
        lines.append(f"{name:20}{times}{side['steps']:8.2f}{megabytes:9.1f}")
    lines.append(f"{result['gradients_kilobytes'] / 1024:.1f} MB are the gradients themselves")
    if result["times_of_vmap"]:
        lines[-1] += f"; PyTorch takes {result['times_of_vmap']:.1f} times as long to compute them"
    return "\n".join(lines)


def main():
    """Measures, prints a table for each net and batch size, and writes the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", nargs="+", choices=UNCOUPLED_NETS, default=list(UNCOUPLED_NETS))
    parser.add_argument("--batch-sizes", nargs="+", type=positive, default=[64])
    parser.add_argument("--threads", type=positive, default=usable_cores())
    parser.add_argument("--rounds", type=positive, default=15)
    parser.add_argument("--steps", type=positive, default=100, help="maximum number of steps per round (default 100)")
    parser.add_argument("--seconds", type=float, default=0.3, help="seconds per round of one side (default 0.3)")
    parser.add_argument("--no-peers", action="store_true", help="minidl alone, without PyTorch")
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file")
    args = parser.parse_args()
    limit_threads(args.threads)
    peers = not args.no_peers and find_spec("torch") is not None
    results = {"machine": machine() | {"threads": args.threads}, "measurements": []}
    print_machine(results["machine"])
    for net, batch_size in itertools.product(args.nets, args.batch_sizes):
        results["measurements"].append(measure(net, batch_size, peers, args))
        print(f"\n{format_table(results['measurements'][-1])}", flush=True)
        write_json(args.json, results)  # after each one: an interrupted run keeps its results


if __name__ == "__main__":
    main()
