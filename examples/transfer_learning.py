"""Transfer learning
====================

A net trained on the digits 0 to 4 learns 5 to 9 from ten examples of each.

Run it with: `python examples/transfer_learning.py`

The digits are at random positions in larger images, which is hard to learn from few examples. So a new last layer uses
the convolutions of the first net as features: frozen at first, then fine-tuned. A net trained from scratch on the few
examples is the baseline.
"""

import numpy as np

from minidl import Sequential, Trainer
from minidl.datasets import load_digits
from minidl.layers import BatchNorm2D, Conv2D, Dense, Flatten, MaxPool2D, RandomShift, ReLU, Rescale
from minidl.optimizers import AdamW

CLASSES, EACH, DRAWS = 5, 10, 5
SIZE = 14  # of the images


def scatter(digits, seed):
    """Puts each 8x8 digit at a random position in an image of zeros."""
    images = np.zeros((len(digits), 1, SIZE, SIZE), np.uint8)
    corners = np.random.default_rng(seed).integers(0, SIZE - 7, (len(digits), 2))
    for image, digit, (row, column) in zip(images, digits, corners, strict=True):
        image[:, row : row + 8, column : column + 8] = digit
    return images


def small_net(seed):
    """Returns a net for five classes."""
    return Sequential(
        [
            Rescale(1 / 16), RandomShift(3),
            Conv2D(16, 3, padding=1, use_bias=False), BatchNorm2D(), ReLU(), MaxPool2D(2),
            Conv2D(32, 3, padding=1, use_bias=False), BatchNorm2D(), ReLU(), MaxPool2D(2),
            Flatten(),
            Dense(64), ReLU(),
            Dense(CLASSES),
        ],
        input_shape=(1, SIZE, SIZE),
        seed=seed,
    )  # fmt: skip


def train(model, X, y, epochs, lr=0.003):
    """Trains for some epochs, in small batches."""
    trainer = Trainer(model, "softmax_cross_entropy", AdamW(lr, weight_decay=0.01))
    trainer.fit(X, y, epochs=epochs, batch_size=16, verbose=0)


def compare_ways(base, X, y, X_test, y_test, seed):
    """Returns the accuracies of a net from scratch, of a new layer on frozen features, and after fine-tuning."""

    def accuracy(model):
        return (model.predict(X_test).argmax(axis=1) == y_test).mean()

    scratch = small_net(seed)
    train(scratch, X, y, epochs=60)

    features = base[:-3]  # a model of copies: all layers up to Flatten, with their weights
    model = Sequential([features, Dense(CLASSES)], input_shape=(1, SIZE, SIZE), seed=seed)
    model.layers[0].trainable = False  # freezes its weights and the statistics of batch norm
    train(model, X, y, epochs=60, lr=0.01)
    frozen = accuracy(model)

    model.layers[0].trainable = True
    train(model, X, y, epochs=20, lr=0.001)
    return accuracy(scratch), frozen, accuracy(model)


def main():
    """Trains on one half of the classes, then on a few examples of the other half."""
    data = load_digits()
    X, X_test = scatter(data.X_train, seed=0), scatter(data.X_test, seed=1)
    low, high = data.y_train < CLASSES, data.y_test >= CLASSES
    base = small_net(seed=0)
    train(base, X[low], data.y_train[low], epochs=20)

    found = []
    for seed in range(1, DRAWS + 1):
        order = np.random.default_rng(seed).permutation(len(X))
        few = np.concatenate([order[data.y_train[order] == digit][:EACH] for digit in range(CLASSES, 10)])
        y, y_test = data.y_train[few] - CLASSES, data.y_test[high] - CLASSES
        found.append(compare_ways(base, X[few], y, X_test[high], y_test, seed))

    print(f"Test accuracy with {EACH} examples of each digit from 5 to 9 (means of {DRAWS} draws):\n")
    ways = ("a net from scratch", "a new layer on frozen features", "after fine-tuning all layers")
    for way, accuracy in zip(ways, np.mean(found, axis=0), strict=True):
        print(f"{way:36}{accuracy:.1%}")


if __name__ == "__main__":
    main()
