"""Time to accuracy: MNIST to 99 % from process start, compared with PyTorch; one epoch, compared with scikit-learn.

README.md in this folder describes the method.
"""

import argparse
import re
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from measure import limit_threads, positive, run_parts, usable_cores
from nets import MOMENTUM, NETS, make_model, mlp
from sides import mlp_classifier

from minidl import Trainer
from minidl.datasets import DatasetUnavailable, load_mnist
from minidl.optimizers import SGD

HERE = Path(__file__).parent
PROGRAMS = {"minidl": HERE.parent / "examples" / "mnist_fast.py", "PyTorch eager": HERE / "torch_mnist.py"}
LR = 0.05


def run_program(program, seed):
    """Returns the seconds from start to end of a process that learns MNIST, and its test accuracy; None if it fails."""
    begin = time.perf_counter()
    command = [sys.executable, str(program), "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - begin
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        print(f"{program.name} is skipped ({reason})", flush=True)
        return None
    return {"seconds": seconds, "accuracy": float(re.findall(r"test accuracy ([\d.]+)%", done.stdout)[-1])}


def compare_time_to_accuracy(args):
    """Runs examples/mnist_fast.py and its PyTorch equivalent as whole processes, alternating, for several seeds."""
    found = {name: [] for name in PROGRAMS}
    for seed in range(args.seeds):
        for name, program in PROGRAMS.items():
            if name in found and (run := run_program(program, seed)) is None:
                del found[name]
            elif name in found:
                found[name].append(run)
    print("\nMNIST, LeNet-5 as in mnist_fast.py, from the start of the process: seconds, test accuracy\n")
    print_runs(found)
    return found


def print_runs(found):
    """Prints one line per side."""
    print(f"{'':16}{'median s':>10}{'fastest':>10}{'slowest':>10}{'median %':>10}{'lowest':>10}{'highest':>10}")
    for name, runs in found.items():
        row = ""
        for what in ("seconds", "accuracy"):
            values = [run[what] for run in runs]
            row += "".join(f"{f(values):10.2f}" for f in (statistics.median, min, max))
        print(f"{name:16}{row}")


def train_minidl(data, seed, args):
    """Trains the MLP; returns the seconds of `fit` and the predicted classes of the test images."""
    model = make_model(mlp(), seed=seed)
    trainer = Trainer(model, "softmax_cross_entropy", SGD(LR, momentum=MOMENTUM), seed=seed)
    begin = time.perf_counter()
    trainer.fit(data["X_train"], data["y_train"], epochs=args.epochs, batch_size=args.batch_size, verbose=0)
    return time.perf_counter() - begin, model.predict(data["X_test"]).argmax(axis=1)


def train_scikit_learn(data, seed, args):
    """Trains the same net in MLPClassifier, which draws its own initial weights."""
    all_epochs = {"max_iter": args.epochs, "tol": 0, "n_iter_no_change": args.epochs + 1}
    classifier = mlp_classifier((256, 128), LR, args.batch_size, seed, **all_epochs)
    images = [(data[name].reshape(-1, 784) / 255).astype(np.float32) for name in ("X_train", "X_test")]
    begin = time.perf_counter()
    classifier.fit(images[0], data["y_train"])
    return time.perf_counter() - begin, classifier.predict(images[1])


def compare_with_scikit_learn(args):
    """Trains the MLP on all training images, alternating the sides; prints seconds per epoch and final accuracy."""
    limit_threads(args.threads)
    data = load_mnist()
    sides = {"minidl": train_minidl, "scikit-learn": train_scikit_learn}
    found = {name: [] for name in sides}
    for seed in range(args.seeds):
        for name, learn in sides.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # ConvergenceWarning
                seconds, guesses = learn(data, seed, args)
            accuracy = 100 * float((guesses == data["y_test"]).mean())
            found[name].append({"seconds": seconds / args.epochs, "accuracy": accuracy})
    title = f"MNIST, {NETS['mlp'].title}, batch {args.batch_size}"
    print(f"\n{title}: seconds an epoch, test accuracy after {args.epochs}\n")
    print_runs(found)
    ratios = [b["seconds"] / a["seconds"] for a, b in zip(*found.values(), strict=True)]
    print(f"minidl's epoch is {statistics.median(ratios):.1f} times as fast")
    return found


PARTS = {"fast": compare_time_to_accuracy, "epoch": compare_with_scikit_learn}


def main():
    """Measures the requested parts, prints them and writes the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--seeds", type=positive, default=5)
    parser.add_argument("--epochs", type=positive, default=3, help="of part epoch (default 3)")
    parser.add_argument("--batch-size", type=positive, default=64, help="of part epoch (default 64)")
    parser.add_argument("--threads", type=positive, default=usable_cores(), help="of part epoch (default: all cores)")
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file")
    args = parser.parse_args()
    try:
        load_mnist()  # the first call takes up to a minute: not part of the measurement
    except DatasetUnavailable as error:
        raise SystemExit(f"{error}") from None
    run_parts(PARTS, args)


if __name__ == "__main__":
    main()
