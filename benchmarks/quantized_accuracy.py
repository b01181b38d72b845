"""Scores of nets in float and in 8-bit integers, quantized after training and trained with the rounding.

    python benchmarks/quantized_accuracy.py --results build/bench/quantized.jsonl  # nets on MNIST and on signals
    python benchmarks/quantized_accuracy.py --results ... --images FOLDER --table FILE.csv

onnxruntime's static quantization of the same float nets stands beside them. Each net of a seed is a line of the
results: a program that was stopped goes on. README.md in this folder describes the method.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
from measure import limit_threads, positive, usable_cores
from nets import cnn, lenet5, mobilenet, resnet20
from sides import OnnxruntimePredict, quantize_by_onnxruntime
from tables import read_files

from minidl import Sequential, Trainer, quantize
from minidl.datasets import load_images, load_mnist
from minidl.layers import (
    BatchNorm1D,
    Conv1D,
    Conv2D,
    Dense,
    DepthwiseConv1D,
    GlobalAvgPool1D,
    Normalize,
    RandomFlip,
    RandomShift,
    ReLU,
    Rescale,
    Sigmoid,
    Upsample2D,
)
from minidl.optimizers import SGD, Adam
from minidl.quantization import convert, prepare
from minidl.schedules import OneCycle, Polynomial

CALIBRATION = 500  # examples
COLUMNS = {
    "int8": "int8",
    "trained": "trained with rounding",
    "onnxruntime": "onnxruntime",
    "onnxruntime channels": "onnxruntime, by channel",
}


@dataclass(frozen=True)
class Task:
    """A net with its data, and the epochs and the rate of its training, then of training with the rounding by Adam."""

    load: Callable
    layers: Callable  # of X
    epochs: int
    more_epochs: int
    rate: float
    second_rate: float
    optimizer: Callable = Adam
    loss: str = "softmax_cross_entropy"

    def fit(self, model, data, optimizer, epochs, seed, args):
        """Trains a model."""
        trainer = Trainer(model, self.loss, optimizer, seed=seed, num_threads=args.threads)
        trainer.fit(*data[:2], epochs=epochs, batch_size=args.batch_size, verbose=0)

    def score(self, outputs, y):
        """Returns the accuracy, or the share of the variance that an autoencoder's outputs explain, in %."""
        if self.loss == "mean_squared_error":
            return float(100 * (1 - np.mean((outputs.reshape(y.shape) - y) ** 2) / np.var(y)))
        return float(100 * (outputs.argmax(axis=1) == y).mean())


# ---- data: X and y to train on, X and y to test with


def mnist(args):
    data = load_mnist()
    return data.X_train, data.y_train, data.X_test, data.y_test


def mnist_images(args):
    """MNIST's images, which are their own targets."""
    X, _, X_test, _ = mnist(args)
    return X, X.astype(np.float32) / 255, X_test, X_test.astype(np.float32) / 255


def cifar10(args):
    train, test = (load_images(args.images / part, 32) for part in ("train", "test"))
    return train.X, train.y, test.X, test.y


def signals(args, length=128, n=4000):
    """Cylinders, bells and funnels, as in examples/signals.py."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 2 * n)
    a = rng.integers(16, 33, (2 * n, 1))
    b = a + rng.integers(32, 97, (2 * n, 1))
    t = np.arange(length)
    rise = (t - a) / (b - a)
    shape = np.choose(y[:, None], [np.ones_like(rise), rise, 1 - rise]) * ((a <= t) & (t <= b))
    X = (6 + rng.standard_normal((2 * n, 1))) * shape + 3 * rng.standard_normal((2 * n, length))
    X = X.astype(np.float32)[:, None]
    return X[:n], y[:n], X[n:], y[n:]


def table(args):
    """The columns of numbers of a table; every fourth row is one of the test."""
    frame, y, _ = read_files([args.table])
    X, y = frame.select_dtypes("number").to_numpy(np.float32), np.unique(y, return_inverse=True)[1]
    order = np.random.default_rng(0).permutation(len(y))
    test, train = order[::4], np.delete(order, np.s_[::4])
    return X[train], y[train], X[test], y[test]


# ---- nets


def augmented(layers):
    return lambda X: [RandomShift(4), RandomFlip(), *layers()]


def depthwise_1d(X):
    layers = [Normalize.from_data(X), Conv1D(16, 9, 2, padding=4, use_bias=False), BatchNorm1D(), ReLU()]
    for filters in (32, 64):
        layers += [DepthwiseConv1D(9, 2, padding=4, use_bias=False), BatchNorm1D(), ReLU()]
        layers += [Conv1D(filters, 1, use_bias=False), BatchNorm1D(), ReLU()]
    return [*layers, GlobalAvgPool1D(), Dense(3)]


def autoencoder(X):
    down = [Conv2D(8, 3, 2, padding=1), ReLU(), Conv2D(4, 3, 2, padding=1), ReLU()]
    up = [Upsample2D(2), Conv2D(8, 3, padding=1), ReLU(), Upsample2D(2), Conv2D(1, 3, padding=1), Sigmoid()]
    return [Rescale(1 / 255), *down, *up]


def mlp(X):
    return [Normalize.from_data(X), Dense(64), ReLU(), Dense(64), ReLU(), Dense(2)]


def decayed_sgd(rate):
    return SGD(rate, momentum=0.9, nesterov=True, weight_decay=5e-4)


TASKS = {
    "LeNet-5": Task(mnist, lambda X: lenet5(), 4, 1, 2e-3, 2e-4),
    "CNN": Task(mnist, lambda X: cnn(), 2, 1, 2e-3, 2e-4),
    "ResNet-20": Task(cifar10, augmented(resnet20), 8, 1, 0.2, 2e-4, decayed_sgd),
    "MobileNet": Task(cifar10, augmented(mobilenet), 8, 1, 0.2, 2e-4, decayed_sgd),
    "depthwise 1-D": Task(signals, depthwise_1d, 20, 4, 3e-3, 3e-4),
    "autoencoder": Task(mnist_images, autoencoder, 2, 1, 3e-3, 3e-4, loss="mean_squared_error"),
    "MLP": Task(table, mlp, 40, 8, 3e-3, 3e-4),
}


# ---- a run


def run(name, seed, args):
    """Trains a net, and quantizes it in each way; returns its line of the results: scores in %, and seconds."""
    task = TASKS[name]
    data = X, _, X_test, y_test = task.load(args)
    steps, row, begin = -(-len(X) // args.batch_size), {"net": name, "seed": seed}, time.process_time()

    def note(what, outputs):
        nonlocal begin
        row[what] = task.score(outputs, y_test)
        row[f"{what}, CPU s"] = time.process_time() - begin
        print(f"{name}, seed {seed}: {what} {row[what]:.2f}", flush=True)
        begin = time.process_time()

    model = Sequential(task.layers(X), X.shape[1:], seed)
    task.fit(model, data, task.optimizer(OneCycle(task.rate, task.epochs * steps)), task.epochs, seed, args)
    note("float", model.predict(X_test))
    some = X[np.random.default_rng(seed).choice(len(X), CALIBRATION, replace=False)]
    note("int8", quantize(model, some).predict(X_test))
    for by_channel in (False, True) if find_spec("onnxruntime") else ():
        with tempfile.TemporaryDirectory() as folder:
            path = quantize_by_onnxruntime(model, some, Path(folder), by_channel)
            side = OnnxruntimePredict(path, X_test.astype(np.float32), args.threads)
        note("onnxruntime channels" if by_channel else "onnxruntime", side.predict())
    prepared = prepare(model, some)
    rate = Polynomial(task.second_rate, task.more_epochs * steps)
    task.fit(prepared, data, Adam(rate), task.more_epochs, seed, args)
    note("trained", convert(prepared).predict(X_test))
    return row


def print_table(rows):
    """Prints for each net the float score, and the points that each way of quantizing loses: mean and spread."""
    print(f"\n{'':16}{'seeds':>6}{'float':>16}{''.join(f'{title:>25}' for title in COLUMNS.values())}")
    for name in TASKS:
        of = [row for row in rows if row["net"] == name]
        if of:
            lost = ([row["float"] - row[column] for row in of if column in row] for column in COLUMNS)
            cells = "".join(f"{spread(values) if values else '':>25}" for values in lost)
            print(f"{name:16}{len(of):6}{spread([row['float'] for row in of]):>16}{cells}")
    print("\nBehind float: points lost, mean and standard deviation over the seeds.")


def spread(values):
    return f"{fmean(values):.2f} +- {stdev(values) if len(values) > 1 else 0:.2f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, required=True, help="a file of JSON lines, to which runs are appended")
    parser.add_argument("--images", type=Path, help="has train/CLASS and test/CLASS, for the nets of CIFAR-10")
    parser.add_argument(
        "--table", type=Path, help="a CSV file without a header, for the MLP; the last column is the class"
    )
    parser.add_argument("--nets", nargs="+", choices=TASKS, metavar="NET", default=list(TASKS))
    parser.add_argument("--seeds", type=positive, default=3)
    parser.add_argument("--batch-size", type=positive, default=64)
    parser.add_argument("--threads", type=positive, default=usable_cores())
    args = parser.parse_args()
    limit_threads(args.threads)
    needs = {cifar10: args.images, table: args.table}
    args.results.parent.mkdir(parents=True, exist_ok=True)
    lines = args.results.read_text("utf-8").splitlines() if args.results.exists() else []
    rows = [json.loads(line) for line in lines]
    for seed in range(args.seeds):
        for name in args.nets:
            done = any((row["net"], row["seed"]) == (name, seed) for row in rows)
            if done or needs.get(TASKS[name].load, True) is None:
                continue
            rows.append(run(name, seed, args))
            with args.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    print_table(rows)


if __name__ == "__main__":
    main()
