"""Training with Winograd's convolutions and with direct ones: the same seeds, compared by their final accuracies."""

import math
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from nets import make_model, resnet20

from minidl import Trainer
from minidl.datasets import Bunch, DatasetUnavailable, load_digits, load_mnist
from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, RandomCrop, RandomFlip, ReLU, Rescale
from minidl.optimizers import SGD
from minidl.schedules import Cosine

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from cifar10 import draw_shapes

ALGORITHMS = ("auto", "direct")


@dataclass(frozen=True)
class Task:
    """A data set and the training of a net on it: batches of 64, `epochs` epochs."""

    title: str
    data: Bunch
    layers: Callable  # of the data: a list of new layers
    epochs: int


def digits_layers(data):
    """Returns the layers of a net with convolutions of 32 and 64 filters; Winograd's algorithm suits the second."""
    return [
        Rescale(1 / float(data.X_train.max())),
        Conv2D(32, 3, padding=1), ReLU(),
        Conv2D(64, 3, padding=1), ReLU(), MaxPool2D(2),
        Flatten(),
        Dense(128), ReLU(),
        Dense(10),
    ]  # fmt: skip


def augmented(layers, data):
    """Returns layers after two that shift and mirror each image in each step, as in examples/cifar10.py."""
    return [RandomCrop(data.X_train.shape[2:], padding=4), RandomFlip(), *layers]


def load_shapes(noise=0):
    """Returns 4,000 training and 4,000 test images of the shapes of examples/cifar10.py, 3x32x32.

    noise: the standard deviation of normal numbers that are added, without which a net soon makes no errors at all.
    """
    found = []
    for seed in (0, 1):
        images, labels = draw_shapes(4000, seed)
        images = images + noise * np.random.default_rng([seed, 1]).standard_normal(images.shape, "f4")
        found += [images.clip(0, 255).astype(np.uint8), labels]
    return Bunch(zip(("X_train", "y_train", "X_test", "y_test"), found, strict=True))


def mnist_task():
    """Returns the training on MNIST; on the digits of scikit-learn, with a notice, if MNIST is not available."""
    try:
        return Task("MNIST, convolutions of 32 and 64 filters", load_mnist(), digits_layers, 2)
    except DatasetUnavailable as error:
        print(f"\ndigits in place of MNIST ({error})", flush=True)
        return digits_task()


def digits_task():
    return Task("digits, convolutions of 32 and 64 filters", load_digits(), digits_layers, 15)


def shapes_task():
    return Task("noisy shapes, ResNet-20", load_shapes(noise=160), lambda data: augmented(resnet20(), data), 5)


TASKS = {"mnist": mnist_task, "digits": digits_task, "shapes": shapes_task}


def first_images(data, count):
    """Returns the first `count` training and test images; all if it is None."""
    return Bunch(**{name: values[:count] for name, values in data.items()})


def train(layers, data, epochs, seed, threads):
    """Returns a trainer after `epochs` epochs: SGD as in examples/cifar10.py, whose rate rises for a tenth of them."""
    model = make_model(layers, data.X_train.shape[1:], seed)
    steps = epochs * math.ceil(len(data.X_train) / 64)
    rate = Cosine(0.05, total_steps=steps, warmup_steps=steps // 10)
    optimizer = SGD(rate, momentum=0.9, nesterov=True, weight_decay=5e-4)
    trainer = Trainer(model, "softmax_cross_entropy", optimizer, ["accuracy"], seed, threads)
    trainer.fit(data.X_train, data.y_train, epochs=epochs, batch_size=64, verbose=0)
    return trainer


def with_algorithm(layers, algorithm):
    """Sets the algorithm of all convolutions that are not built yet; returns the layers."""
    for layer in layers:
        for leaf in layer.leaves():
            if isinstance(leaf, Conv2D):
                leaf.algorithm = algorithm
    return layers


def compare_training(args):
    """Trains each net with both algorithms for several seeds; prints the test accuracies."""
    results = {}
    for name in args.data:
        task = TASKS[name]()
        data = first_images(task.data, args.images)
        found = {algorithm: [] for algorithm in ALGORITHMS}
        for seed in range(args.seeds):
            for algorithm in ALGORITHMS:
                layers = with_algorithm(task.layers(data), algorithm)
                trainer = train(layers, data, task.epochs, seed, args.threads)
                found[algorithm].append(100 * trainer.evaluate(data.X_test, data.y_test)["accuracy"])
        print(f"\n{task.title}: test accuracy in % by seed")
        print(f"{len(data.X_train):,} training images, epochs: {task.epochs}, {len(data.X_test):,} test images\n")
        results[name] = {"title": task.title, "accuracy": found} | summarize_accuracies(found)
        print_accuracies(results[name])
    return results


def summarize_accuracies(found):
    """Returns means, standard deviations over the seeds, and whether the means differ by less than the larger one."""
    means = {name: statistics.mean(values) for name, values in found.items()}
    spreads = {name: statistics.stdev(values) for name, values in found.items()}
    difference = means["auto"] - means["direct"]
    within = abs(difference) <= max(spreads.values())
    return {"mean": means, "spread": spreads, "difference": difference, "within_spread": within}


def print_accuracies(result):
    """Prints one line per algorithm, and the difference of the means."""
    print(f"{'algorithm':12}{'accuracy':50}{'mean':>8}{'spread':>8}")
    for name, values in result["accuracy"].items():
        seeds = " ".join(f"{value:.2f}" for value in values)
        print(f"{name:12}{seeds:50}{result['mean'][name]:8.2f}{result['spread'][name]:8.2f}")
    verdict = "within the spread" if result["within_spread"] else "more than the spread"
    print(f"difference of the means {result['difference']:+.2f}: {verdict}", flush=True)
