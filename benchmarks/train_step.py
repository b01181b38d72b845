"""The LeNet-5 train step of minidl beside PyTorch's: one run, in turn, medians.

Forward, loss, backward and SGD with momentum, on images in memory. README.md in this folder says
what is measured and how.
"""

import argparse
import importlib.util
import itertools

import numpy as np
from measure import Side, alternate, machine, table, write_json

from minidl import Sequential, Trainer
from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, ReLU, Rescale
from minidl.optimizers import SGD

LR, MOMENTUM = 0.01, 0.9
TORCH_MODES = ["eager", "eager channels_last", "compile", "compile channels_last"]


def make_trainer(threads):
    """A trainer of LeNet-5 for MNIST's shape; every call begins with the same weights."""
    model = Sequential(
        [
            Rescale(1 / 255),
            Conv2D(6, 5, padding=2), ReLU(), MaxPool2D(2),
            Conv2D(16, 5), ReLU(), MaxPool2D(2),
            Flatten(),
            Dense(120), ReLU(),
            Dense(84), ReLU(),
            Dense(10),
        ],
        input_shape=(1, 28, 28),
        seed=0,
    )  # fmt: skip
    optimizer = SGD(LR, momentum=MOMENTUM)
    return Trainer(model, loss="softmax_cross_entropy", optimizer=optimizer, num_threads=threads)


def minidl_sides(X, y, batch_size, threads):
    """The two ways to train with minidl: batches handed over one by one, and `fit`."""
    by_batch, by_fit = make_trainer(threads), make_trainer(threads)
    starts = range(0, len(X), batch_size)
    batches = [(X[i : i + batch_size], y[i : i + batch_size]) for i in starts]

    def run_train_batch(steps):
        for xb, yb in itertools.islice(itertools.cycle(batches), steps):
            by_batch.train_batch(xb, yb)

    def run_fit(steps):
        n = steps * batch_size
        by_fit.fit(X[:n], y[:n], epochs=1, batch_size=batch_size, verbose=0)

    return [Side("minidl train_batch", run_train_batch), Side("minidl fit", run_fit)]


def torch_sides(X, y, batch_size, threads):
    """PyTorch's modes; one that does not work here is left out with a notice."""
    if importlib.util.find_spec("torch") is None:
        print("PyTorch is not installed: minidl alone.")
        return []
    import torch
    from torch_lenet import TorchSteps

    torch.set_num_threads(threads)
    trainer = make_trainer(threads)
    weights = trainer.model.state_dict()
    first_loss = trainer.train_batch(X[:batch_size], y[:batch_size])
    sides = []
    for mode in TORCH_MODES:
        try:
            steps = TorchSteps(mode, weights, X, y, batch_size, LR, MOMENTUM)
            loss = steps.step(*steps.batches[0]).item()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            print(f"PyTorch {mode} does not work here ({reason}).")
            continue
        if not np.isclose(loss, first_loss, rtol=1e-4):
            raise AssertionError(f"first loss: {loss} in PyTorch {mode}, {first_loss} in minidl")
        sides.append(Side(f"PyTorch {mode}", steps.run))
    return sides


def main():
    """Measure, print the table, and write the rounds to a file if one is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=200, help="steps in a round (default 200)")
    parser.add_argument("--json", metavar="FILE", help="write all rounds to this file")
    args = parser.parse_args()

    rng = np.random.default_rng(0)
    n = args.batch_size * args.steps
    X = rng.integers(0, 256, (n, 1, 28, 28), dtype=np.uint8)
    y = rng.integers(0, 10, n)

    ours = minidl_sides(X, y, args.batch_size, args.threads)
    theirs = torch_sides(X, y, args.batch_size, args.threads)
    alternate([*ours, *theirs], args.rounds, args.steps)

    best = min(theirs, key=lambda side: side.median, default=None)
    facts = machine() | {"batch_size": args.batch_size, "threads": args.threads}
    print(", ".join(f"{name} {value}" for name, value in facts.items()))
    print(table([*ours, *theirs], args.batch_size, best))
    if best:
        ratio = best.median / min(side.median for side in ours)
        print(f"minidl's step takes 1/{ratio:.2f} of the time of {best.name}, PyTorch's best.")
    if args.json:
        write_json(args.json, [*ours, *theirs], **facts)


if __name__ == "__main__":
    main()
