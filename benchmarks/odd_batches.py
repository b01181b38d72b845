"""Times a step in `fit` and `predict` for every batch size, against the line between the sizes that fill tiles.

README.md in this folder describes the method.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from bisect import bisect_right
from pathlib import Path

from measure import machine, positive, print_machine, write_json

ROOT = Path(__file__).parents[1]
NETS = ["lenet", "mlp", "cnn", "vgg", "resnet20", "mobilenet"]
KINDS = ["fit", "predict"]
BATCHES = [*range(1, 131), *range(136, 321, 8)]
KNOTS = [16, *range(32, 1025, 32)]  # the line between the times of these sizes
BOUND = 1.15  # of the line
STATISTICS = {"median": statistics.median, "fastest": min}  # of the rounds; on a noisy machine the fastest vary less
SLOWER = 1.03  # than before, or than a larger batch


class Work:
    """A net in a process of its own, which times one batch size after the other."""

    def __init__(self, name):
        from nets import ALL_NETS, make_trainer

        self.net, self.trainers, self.steps = ALL_NETS[name], {}, {}
        self.make_trainer, self.model = make_trainer, self.net.model()

    def time(self, kind, batch, threads, seconds):
        """Returns the milliseconds of a step or a call; as many as fill about `seconds`."""
        run = self.fit if kind == "fit" else self.predict
        key = kind, batch, threads
        if key not in self.steps:
            run(batch, threads, 2)
            self.steps[key] = max(2, min(200, int(1000 * seconds / run(batch, threads, 3))))
        return run(batch, threads, self.steps[key])

    def fit(self, batch, threads, steps):
        if threads not in self.trainers:
            self.trainers[threads] = self.make_trainer(self.net.model(), threads)
        X, y = self.data(batch * steps)
        begin = time.perf_counter()
        self.trainers[threads].fit(X, y, batch_size=batch, verbose=0)
        return 1000 * (time.perf_counter() - begin) / steps

    def predict(self, batch, threads, calls):
        X, _ = self.data(batch)
        begin = time.perf_counter()
        for _ in range(calls):
            self.model.predict(X, num_threads=threads)
        return 1000 * (time.perf_counter() - begin) / calls

    def data(self, n):
        import numpy as np

        rng = np.random.default_rng(0)
        return rng.integers(0, 256, (n, *self.net.image), dtype=np.uint8), rng.integers(0, 10, n)


class Side:
    """A build of minidl in a folder, at work in a child process."""

    def __init__(self, folder, net):
        path = os.pathsep.join(map(str, [folder, Path(__file__).parent]))
        self.child = subprocess.Popen(
            [sys.executable, "-P", __file__, "--child", net],
            env=os.environ | {"PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def time(self, *cell):
        """Returns the milliseconds of (kind, batch, threads, seconds)."""
        print(json.dumps(cell), file=self.child.stdin, flush=True)
        return float(self.child.stdout.readline())

    def close(self):
        self.child.stdin.close()
        self.child.wait()


def line_at(times, batch):
    """Returns the time of a batch on the straight line between its neighbours among KNOTS; its own beyond them."""
    knots = [knot for knot in KNOTS if knot in times]
    right = bisect_right(knots, batch)
    if not 0 < right < len(knots):
        return times.get(batch)
    a, b = knots[right - 1], knots[right]
    return times[a] + (times[b] - times[a]) * (batch - a) / (b - a)


def findings(times, before):
    """Returns what falls short in the times of all batch sizes, as (batch, what, ratio)."""
    found = []
    for batch, value in times.items():
        line = line_at(times, batch)
        if batch > KNOTS[0] and line and value > BOUND * line:
            found.append((batch, "the line", value / line))
        cheaper = min((times[n] for n in times if n > batch), default=value)
        if value > SLOWER * cheaper:
            found.append((batch, "a larger batch", value / cheaper))
        if before and value > SLOWER * before[batch]:
            found.append((batch, "before", value / before[batch]))
    return found


def print_curve(times, before):
    """Prints microseconds for each example, eight batch sizes in a line."""
    batches = sorted(times)
    for k in range(0, len(batches), 8):
        some = batches[k : k + 8]
        print("    batch " + "".join(f"{n:10}" for n in some))
        for name, found in (("before", before), ("now", times)):
            if found:
                print(f"{name:>9} " + "".join(f"{1000 * found[n] / n:10.1f}" for n in some))


def measure(net, args):
    """Measures one net; returns {"fit, 1": {"now": {batch: milliseconds}, "before": ...}}."""
    folders = {"now": ROOT} | ({"before": args.before.resolve()} if args.before else {})
    sides = {name: Side(folder, net) for name, folder in folders.items()}
    cells = [(kind, threads, batch) for kind in args.kinds for threads in args.threads for batch in args.batches]
    rounds = {cell: {name: [] for name in sides} for cell in cells}
    for number in range(args.rounds):
        for kind, threads, batch in cells:
            for name in list(sides)[:: 1 if number % 2 else -1]:
                rounds[kind, threads, batch][name].append(sides[name].time(kind, batch, threads, args.seconds))
    for side in sides.values():
        side.close()
    results = {}
    for (kind, threads, batch), found in rounds.items():
        for name, times in found.items():
            results.setdefault(f"{kind}, {threads}", {}).setdefault(name, {})[batch] = STATISTICS[args.statistic](times)
    return results


def main():
    """Measures all nets, prints the curves and what falls short, and writes the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", nargs="+", default=NETS)
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--batches", nargs="+", type=positive, default=BATCHES)
    parser.add_argument("--threads", nargs="+", type=positive, default=[1, 2])
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--seconds", type=float, default=0.02, help="of a cell in a round, about")
    parser.add_argument("--statistic", choices=STATISTICS, default="median")
    parser.add_argument("--before", type=Path, help="a folder with another build, to compare")
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file")
    parser.add_argument("--child", metavar="NET", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        work = Work(args.child)
        for line in sys.stdin:
            print(work.time(*json.loads(line)), flush=True)
        return
    results = {"machine": machine()}
    print_machine(results["machine"])
    for net in args.nets:
        results[net] = measure(net, args)
        for title, found in results[net].items():
            print(f"\n{net}: {title} threads, us for each example")
            print_curve(found["now"], found.get("before"))
            for batch, what, ratio in findings(found["now"], found.get("before")):
                print(f"  {batch}: {ratio:.2f} times {what}")
        write_json(args.json, results)


if __name__ == "__main__":
    main()
