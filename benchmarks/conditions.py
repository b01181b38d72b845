"""Speed under other conditions: a single image, a busy machine, numbers of threads, batch sizes and channels.

README.md in this folder describes the method.
"""

import argparse
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager

import numpy as np
from measure import Side, alternate, limit_threads, positive, run_parts, settle, spread, usable_cores
from nets import NETS, Net, step_macs
from sides import MinidlFit, MinidlPredict, Task, prepare

from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, ReLU, Rescale

BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CHANNELS = (4, 8, 16, 32, 64)


def measure_predict(args):
    """Times `predict` of one image: uint8 for minidl, float32 in eager mode without gradients for PyTorch."""
    sides = []
    for net in args.nets:
        model = NETS[net].model()
        image = np.random.default_rng(0).integers(0, 256, (1, *NETS[net].image), dtype=np.uint8)
        sides.append(Side(f"{net}, minidl", MinidlPredict(model, image).run))
        if "eager" in args.modes:
            try:
                from torch_steps import TorchPredict
            except ImportError as error:
                print(f"PyTorch is skipped ({error})")
                continue
            torch_side = TorchPredict(model, image.astype(np.float32) / 255, args.threads)
            sides.append(Side(f"{net}, PyTorch eager", torch_side.run))
    settle(sides, 10 * args.steps, args.seconds)
    alternate(sides, args.rounds)
    print("\npredict of one image: us\n")
    for side in sides:
        print(f"{side.name:24}{1000 * side.median:9.1f}")
    return {side.name: spread([1000 * ms for ms in side.rounds]) for side in sides}


@contextmanager
def busy_neighbours(number):
    """Keeps cores busy with as many other processes while the block runs."""
    neighbours = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        time.sleep(0.1)  # until they have started
        yield
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.wait()


def measure_busy(args):
    """Times a LeNet-5 step at batch 64, alternating between a quiet machine and one with busy processes.

    Reports means, too, because the waits that a busy core causes are rare and long.
    """
    task = Task(NETS["lenet"], 64, args.steps, args.threads)
    sides = {mode: Side(mode, side.run) for mode, side in prepare(args.modes, task).items()}
    settle(sides.values(), args.steps, args.seconds)
    found = {name: {"quiet": [], "busy": []} for name in sides}
    for _ in range(args.rounds):
        for name, side in sides.items():
            side.run(2)
            found[name]["quiet"].append(side.time(side.steps))
            with busy_neighbours(args.busy):
                side.run(2)
                found[name]["busy"].append(side.time(side.steps))
    print(f"\nLeNet-5, batch 64, beside {args.busy} busy process(es): ms per step, by round\n")
    print(f"{'':30}{'quiet: mean':>14}{'median':>9}{'busy: mean':>14}{'median':>9}{'ratio of means':>18}")
    for name, times in found.items():
        (quiet, quiet_median), (busy, busy_median) = [
            (statistics.mean(times[which]), statistics.median(times[which])) for which in ("quiet", "busy")
        ]
        print(f"{name:30}{quiet:14.3f}{quiet_median:9.3f}{busy:14.3f}{busy_median:9.3f}{busy / quiet:17.2f}x")
    return found


def make_channel_net(channels):
    """Returns a net of two 3x3 convolutions with this number of channels."""

    def layers():
        convolutions = [Conv2D(channels, 3, padding=1), ReLU(), Conv2D(channels, 3, padding=1), ReLU()]
        return [Rescale(1 / 255), *convolutions, MaxPool2D(2), Flatten(), Dense(10)]

    return Net(f"{channels} channels", layers)


def time_fit_steps(tasks, args):
    """Times a step inside `fit` for several (name, task, num_threads), alternating; returns the sides."""
    sides = [Side(name, MinidlFit(task, threads).run) for name, task, threads in tasks]
    settle(sides, args.steps, args.seconds)
    alternate(sides, args.rounds)
    return sides


def measure_threads(args):
    """Times LeNet-5 at batch 64 on 1, 2, ... threads."""
    task = Task(NETS["lenet"], 64, args.steps, args.threads)
    sides = time_fit_steps([(str(n), task, n) for n in range(1, args.threads + 1)], args)
    print("\nLeNet-5, batch 64, by number of threads\n")
    print(f"{'threads':>10}{'ms/step':>10}{'speed':>8}")
    for side in sides:
        print(f"{side.name:>10}{side.median:10.3f}{sides[0].median / side.median:7.2f}x")
    return {side.name: spread(side.rounds) for side in sides}


def measure_sizes(title, tasks, args):
    """Times several tasks; prints milliseconds per step, microseconds per image and GFLOP/s."""
    print(f"\n{title}\n\n{'':>10}{'ms/step':>10}{'us/image':>10}{'GFLOP/s':>10}")
    for side, (_, task, _) in zip(found := time_fit_steps(tasks, args), tasks, strict=True):
        gflops = 2e-6 * step_macs(task.model()) * task.batch_size / side.median
        print(f"{side.name:>10}{side.median:10.3f}{1000 * side.median / task.batch_size:10.2f}{gflops:10.1f}")
    return {side.name: spread(side.rounds) for side in found}


def measure_batch_sizes(args):
    tasks = [(str(size), Task(NETS["lenet"], size, args.steps, args.threads), None) for size in BATCH_SIZES]
    return measure_sizes(f"{NETS['lenet'].title}, by batch size", tasks, args)


def measure_channels(args):
    tasks = [(str(c), Task(make_channel_net(c), 64, args.steps, args.threads), None) for c in CHANNELS]
    return measure_sizes("two 3x3 convolutions of 28x28, batch 64, by number of channels", tasks, args)


PARTS = {
    "predict": measure_predict,
    "busy": measure_busy,
    "threads": measure_threads,
    "batch": measure_batch_sizes,
    "channels": measure_channels,
}


def main():
    """Measures the requested parts, prints them and writes the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--nets", nargs="+", choices=NETS, default=list(NETS), help="for predict")
    parser.add_argument("--modes", nargs="+", default=["minidl fit", "eager"], help="as for train_step.py")
    parser.add_argument("--threads", type=positive, default=usable_cores())
    parser.add_argument("--busy", type=positive, default=1, help="number of busy processes")
    parser.add_argument("--rounds", type=positive, default=15)
    parser.add_argument("--steps", type=positive, default=200, help="maximum per round (default 200)")
    parser.add_argument("--seconds", type=float, default=0.3, help="seconds per round of one side (default 0.3)")
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file")
    args = parser.parse_args()
    limit_threads(args.threads)
    run_parts(PARTS, args)


if __name__ == "__main__":
    main()
