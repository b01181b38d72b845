"""Milliseconds and memory of steps of cifar10.py's recipes in minidl and PyTorch, and CPU time of a net's stages."""

import json
import subprocess
import sys
import time

import numpy as np
from cifar10_parts import load, make, peak_memory, recipe_of
from measure import Side, alternate, machine, print_machine, settle
from nets import step_macs
from peak import Peak, probe_or_notice

from minidl import Sequential, Trainer
from minidl.layers import Conv2D, Dense, GlobalMaxPool2D
from minidl.optimizers import SGD

MOST_STEPS = 50  # of a round
IMAGES = 1000  # of which steps take batches
HEAD = f"{'':28}{'ms/step':>9}{'fastest':>9}{'slowest':>9}{'images/s':>10}{'GFLOP/s':>9}{'of peak':>9}{'MB':>7}"


# ---- steps


def few_images(args):
    """Returns some images, their labels and the number of classes."""
    X, y, *_, classes = load(args)
    some = np.linspace(0, len(y) - 1, min(IMAGES, len(y))).astype(int)
    return X[some], y[some], classes


def serve(args):
    """Makes as many steps as each line of the input says; prints the most memory so far."""
    minutes, side = args.step_of
    recipe, (X, y, classes) = recipe_of(args, int(minutes)), few_images(args)
    model, trainer = make(X, classes, recipe, 0, args.threads)
    rows = np.arange(recipe.batch_size) % len(X)
    X, y = X[rows], y[rows]
    if side == "minidl":

        def step():
            trainer.train_batch(X, y)
    else:
        import cifar10_torch as other

        step = other.step_of(model, trainer, X, y, recipe, args.threads, side.removeprefix("torch "))
    print(step_macs(model), flush=True)
    for line in sys.stdin:
        for _ in range(int(line)):
            step()
        print(peak_memory(), flush=True)


class Process:
    """A process that makes steps."""

    def __init__(self, minutes, side):
        command = [sys.executable, *sys.argv, "--step-of", str(minutes), side]
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.macs, self.memory = int(self.child.stdout.readline() or 0), 0

    def run(self, steps):
        print(steps, file=self.child.stdin, flush=True)
        self.memory = int(self.child.stdout.readline())

    def close(self):
        self.child.stdin.close()
        self.child.wait()


def measure_steps(args, minutes, probe):
    """Returns the figures of each side of a recipe; their rounds take turns."""
    names = ["minidl"] if "minidl" in args.sides else []
    names += [f"torch {mode}" for mode in args.modes] if "torch" in args.sides else []
    processes, sides, peak = {name: Process(minutes, name) for name in names}, [], Peak(probe, args.threads)
    for name, process in processes.items():
        if not process.macs:
            print(f"  {name} is skipped: its process failed", flush=True)
            continue
        try:
            process.run(1)  # compiles
        except (ValueError, OSError) as error:
            print(f"  {name} is skipped ({error})", flush=True)
            continue
        sides.append(Side(name, process.run))
    settle(sides, MOST_STEPS, args.seconds)
    alternate(sides, args.rounds, peak.measure)
    for process in processes.values():
        process.close()
    batch = recipe_of(args, minutes).batch_size
    found = {}
    for side in sides:
        gflops = 2e-6 * processes[side.name].macs * batch / side.median
        share = 1e9 * gflops / peak.flops if peak.flops else None
        rounds = {"milliseconds": side.median, "rounds": side.rounds, "images_per_second": 1000 * batch / side.median}
        found[side.name] = rounds | {"gflops": gflops, "share_of_peak": share, "memory": processes[side.name].memory}
    return found


def format_steps(found):
    """Returns the printed table."""
    lines = [HEAD]
    for name, side in found.items():
        rounds, share = side["rounds"], side["share_of_peak"]
        lines.append(
            f"{name:28}{side['milliseconds']:9.1f}{min(rounds):9.1f}{max(rounds):9.1f}{side['images_per_second']:10.0f}"
            f"{side['gflops']:9.1f}{'-' if share is None else f'{share:.0%}':>9}{side['memory'] / 1e6:7.0f}"
        )
    return "\n".join(lines)


# ---- stages


def measure_stages(args, minutes):
    """Returns CPU milliseconds an image and multiply-adds of each stage: a convolution with what follows it.

    One thread trains growing beginnings of the net by SGD; a stage is the difference of two. The last row is the
    difference between SGD and the example's optimizer.
    """
    recipe, (X, y, classes) = recipe_of(args, minutes), few_images(args)
    rows = np.arange(2 * recipe.batch_size) % len(X)
    Xb, yb = X[rows], y[rows]

    def new():
        return make(X, classes, recipe, 0, 1)

    def cpu(trainer):
        found = []
        for _ in range(args.rounds + 1):
            begin = time.process_time()
            trainer.fit(Xb, yb, 1, batch_size=recipe.batch_size, verbose=0)
            found.append(1000 * (time.process_time() - begin) / len(Xb))
        return min(found[1:])

    layers = new()[0].layers
    starts = [k for k, layer in enumerate(layers) if isinstance(layer, Conv2D)]
    ends = [starts[0], *starts[1:], len(layers) - 2]  # without the last pool and Dense, which each beginning gets
    titles = ["scaling and augmentation", *(f"{layers[k].in_shape[0]} to {layers[k].filters}" for k in starts)]
    stages, before = {}, 0.0
    for number, (title, end) in enumerate(zip(titles, ends, strict=True)):
        model = Sequential([new()[0][:end].as_layer(), GlobalMaxPool2D(), Dense(classes)], X.shape[1:])
        took = cpu(Trainer(model, "softmax_cross_entropy", SGD(0.01), seed=0, num_threads=1))
        macs = 0 if number == 0 else layers[starts[number - 1]].macs * (2 if number == 1 else 3)
        stages[f"{number}: {title}"] = {"milliseconds": took - before, "multiply_adds": macs}
        before = took
    stages["optimizer"] = {"milliseconds": cpu(new()[1]) - before, "multiply_adds": 0}
    return stages


def format_stages(stages):
    """Returns the printed table; multiply-adds a second are those of the textbook."""
    whole = sum(stage["milliseconds"] for stage in stages.values())
    lines = [f"{'':28}{'CPU ms/image':>13}{'share':>7}{'GMAC/s':>8}"]
    for name, stage in stages.items():
        took, macs = stage["milliseconds"], stage["multiply_adds"]
        speed = f"{macs / took / 1e6:.1f}" if macs and took > 0 else "-"
        lines.append(f"{name:28}{took:13.3f}{took / whole:7.0%}{speed:>8}")
    return "\n".join(lines)


# ---- both


def measure(args):
    """Measures steps and stages of each recipe, prints them, and appends a line for each to the results."""
    probe, facts = probe_or_notice(), machine()
    print_machine(facts)
    args.results.parent.mkdir(parents=True, exist_ok=True)
    for minutes in args.minutes:
        print(
            f"\nrecipe {minutes}, batches of {recipe_of(args, minutes).batch_size}, {args.threads} threads", flush=True
        )
        sides = measure_steps(args, minutes, probe)
        print(format_steps(sides), flush=True)
        stages = measure_stages(args, minutes)
        print(f"\nstages on one thread\n{format_stages(stages)}", flush=True)
        row = {"steps_of": minutes, "threads": args.threads, "set": args.set, "machine": facts}
        with args.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row | {"sides": sides, "stages": stages}) + "\n")
