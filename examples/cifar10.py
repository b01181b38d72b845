"""ResNet-20 on CIFAR-10
========================

ResNet-20 learns CIFAR-10, Fashion-MNIST, or ten synthetic shapes that need no download.

Run it with: `python examples/cifar10.py --short` (the shapes, less than a minute). Without `--short` it trains on
CIFAR-10, for hours. `--help` lists the options.

Images are shifted and mirrored at random in each step. The learning rate rises for one epoch and then follows a cosine.
"""

import argparse
import math
import time

import numpy as np
from models import MODELS

from minidl import Sequential, Trainer
from minidl.datasets import Bunch, DatasetUnavailable, load_cifar10, load_fashion_mnist
from minidl.layers import RandomCrop, RandomFlip
from minidl.optimizers import SGD
from minidl.schedules import Cosine

# Predicates: True if a point (u, v) lies inside a shape of about radius 1. Mirroring does not change the class.
SHAPES = (
    lambda u, v: np.hypot(u, v) < 1,  # a disc
    lambda u, v: abs(np.hypot(u, v) - 0.8) < 0.2,  # a ring
    lambda u, v: np.maximum(abs(u), abs(v)) < 0.9,  # a square
    lambda u, v: abs(np.maximum(abs(u), abs(v)) - 0.75) < 0.2,  # a frame
    lambda u, v: abs(u) + abs(v) < 1.2,  # a square on its corner
    lambda u, v: (np.minimum(abs(u), abs(v)) < 0.3) & (np.maximum(abs(u), abs(v)) < 1),  # a plus
    lambda u, v: (abs(abs(u) - abs(v)) < 0.35) & (np.maximum(abs(u), abs(v)) < 1),  # a cross
    lambda u, v: (np.floor(3 * u) % 2 == 0) & (np.maximum(abs(u), abs(v)) < 1),  # bars
    lambda u, v: (np.floor(3 * v) % 2 == 0) & (np.maximum(abs(u), abs(v)) < 1),  # steps
    lambda u, v: ((np.floor(3 * u) + np.floor(3 * v)) % 2 == 0) & (np.maximum(abs(u), abs(v)) < 1),  # a chequer
)


def draw_shapes(n, seed, size=32):
    """Draws n noisy images, uint8 (n, 3, size, size), of shapes with random position, size and colours; and labels."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, len(SHAPES), n)
    rows, columns = np.mgrid[:size, :size]
    centre = rng.uniform(0.35 * size, 0.65 * size, (2, n, 1, 1))
    radius = rng.uniform(0.2 * size, 0.35 * size, (n, 1, 1))
    v, u = (rows - centre[0]) / radius, (columns - centre[1]) / radius
    inside = np.zeros((n, 1, size, size), bool)
    for label, shape in enumerate(SHAPES):
        inside[y == label, 0] = shape(u[y == label], v[y == label])
    dark, light = rng.uniform(0, 110, (n, 3, 1, 1)), rng.uniform(145, 255, (n, 3, 1, 1))
    images = np.where(inside ^ (rng.random((n, 1, 1, 1)) < 0.5), dark, light) + rng.normal(0, 20, (n, 3, size, size))
    return images.clip(0, 255).astype(np.uint8), y


def load_synthetic(n_train=20_000, n_test=1000):
    """Returns the shapes as a data set."""
    (X_train, y_train), (X_test, y_test) = draw_shapes(n_train, seed=0), draw_shapes(n_test, seed=1)
    return Bunch(X_train=X_train, y_train=y_train, X_test=X_test, y_test=y_test)


DATA = {"cifar10": load_cifar10, "fashion_mnist": load_fashion_mnist, "synthetic": load_synthetic}


def make_augmented(net, input_shape, seed):
    """Returns a net of models.py for ten classes, after augmentation layers that change each image in each step."""
    layers = MODELS[net](10, input_shape=None, seed=seed).layers
    return Sequential([RandomCrop(input_shape[1:], padding=4), RandomFlip(), *layers], input_shape, seed)


def main():
    """Trains and tests."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--net", choices=MODELS, default="resnet20")
    parser.add_argument("--data", choices=DATA, help="default: cifar10; with --short, synthetic")
    parser.add_argument("--short", action="store_true", help="2,000 of the images, few epochs, small batches")
    parser.add_argument("--epochs", type=int, help="default: 60; with --short, 5")
    parser.add_argument("--batch-size", type=int, help="default: 128; with --short, 32")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, help="default: every core this process may use")
    args = parser.parse_args()
    epochs, batch_size = args.epochs or (5 if args.short else 60), args.batch_size or (32 if args.short else 128)

    try:
        data = DATA[args.data or ("synthetic" if args.short else "cifar10")]()
    except DatasetUnavailable as error:
        raise SystemExit(f"{error}\n--data synthetic needs no download.") from None
    X, y = (data.X_train[:2000], data.y_train[:2000]) if args.short else (data.X_train, data.y_train)
    model = make_augmented(args.net, X.shape[1:], args.seed)
    summary = model.summary(batch_size)
    print(f"{args.net}: {summary.parameters:,} parameters, {summary.macs:,} multiply-adds per image")

    steps = math.ceil(len(X) / batch_size)
    rate = Cosine(0.1 * batch_size / 128, total_steps=epochs * steps, warmup_steps=steps)
    optimizer = SGD(rate, momentum=0.9, nesterov=True, weight_decay=5e-4)
    trainer = Trainer(model, "softmax_cross_entropy", optimizer, ["accuracy"], args.seed, args.threads)
    begin = time.perf_counter()
    trainer.fit(X, y, epochs=epochs, batch_size=batch_size)
    seconds = time.perf_counter() - begin
    accuracy = trainer.evaluate(data.X_test, data.y_test)["accuracy"]
    print(f"\nTest accuracy {accuracy:.2%} after {epochs} epochs, {seconds:.0f} s")


if __name__ == "__main__":
    main()
