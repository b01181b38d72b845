"""LeNet-5 beside MLPClassifier
===============================

LeNet-5 as a scikit-learn classifier, and `MLPClassifier`: their accuracies on MNIST after the same time.

Run it with: `python examples/sklearn_mnist.py` (`--seconds N` for another time; the first load of MNIST takes a minute)
"""

import argparse
import time

import numpy as np
from models import lenet5
from sklearn.neural_network import MLPClassifier

from minidl.callbacks import TimeLimit
from minidl.datasets import DatasetUnavailable, load_mnist
from minidl.estimators import SequentialClassifier


def train_sequential(X, y, seconds):
    """Trains LeNet-5, which scales its own inputs, until the time is over."""
    limit = TimeLimit(seconds)
    net = SequentialClassifier(lenet5(), batch_size=64, epochs=10_000, tol=None, callbacks=[limit], random_state=0)
    return net.fit(X, y)


def train_mlp_classifier(X, y, seconds):
    """Trains hidden layers of 256 and 128 units on scaled inputs; checks the time after each thirtieth of an epoch."""
    net, rng = MLPClassifier((256, 128), batch_size=64, random_state=0), np.random.default_rng(0)
    began = time.perf_counter()
    while True:
        for portion in np.array_split(rng.permutation(len(X)), 30):
            net.partial_fit(X[portion], y[portion], classes=range(10))
            if time.perf_counter() - began > seconds:
                return net


def main():
    """Trains and tests both; prints accuracies and times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20, help="for each of the two")
    seconds = parser.parse_args().seconds
    try:
        data = load_mnist()
    except DatasetUnavailable as error:
        raise SystemExit(f"{error}") from None

    X, X_test = (images.reshape(len(images), -1) for images in (data.X_train, data.X_test))
    scaled, scaled_test = (rows.astype("float32") / 255 for rows in (X, X_test))
    for name, train, train_on, test_on in (
        ("SequentialClassifier, LeNet-5", train_sequential, X, X_test),
        ("MLPClassifier, 784-256-128-10", train_mlp_classifier, scaled, scaled_test),
    ):
        began = time.perf_counter()
        net = train(train_on, data.y_train, seconds)
        took = time.perf_counter() - began
        accuracy = net.score(test_on, data.y_test)
        print(f"{name}: test accuracy {accuracy:.2%} after {took:.1f} s", flush=True)


if __name__ == "__main__":
    main()
