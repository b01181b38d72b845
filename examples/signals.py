"""Classifying signals
======================

A net of `Conv1D` classifies signals by a shape at an unknown place. It is compared with models of scikit-learn, by
number of training examples.

Run it with: `python examples/signals.py`

The signals are cylinders, bells and funnels: a plateau, a rise or a fall of random beginning, end and height, in noise.
A convolution has the same weights at all places, so that what it learns at one place holds at all of them. The models
of scikit-learn have to learn each place by itself, and need more examples.

All models get the same arrays. Those of scikit-learn choose their settings by cross-validation on the training signals;
the settings of the net are fixed. It takes less than a minute on two cores, and ends with the test accuracy
of the net.
"""

import argparse
from time import perf_counter

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

from minidl.estimators import SequentialClassifier
from minidl.layers import BatchNorm1D, Conv1D, Dense, GlobalAvgPool1D, MaxPool1D, ReLU
from minidl.schedules import Cosine

LENGTH, CLASSES = 128, np.array(["cylinder", "bell", "funnel"])
STEPS, BATCH_SIZE, TEST = 600, 32, 2000


def draw_signals(n, seed):
    """Returns n signals, float32 (n, LENGTH), and the names of their classes.

    (6 + eta) * shape(t) for a <= t <= b, plus noise for each t. shape is 1, (t - a) / (b - a) or (b - t) / (b - a); eta
    and the noise are standard normal; a is an integer from 16 to 32, b - a one from 32 to 96.

    N. Saito: "Local Feature Extraction and Its Applications Using a Library of Bases", PhD thesis, Yale (1994).
    """
    rng = np.random.default_rng(seed)
    y = rng.integers(0, len(CLASSES), n)
    a = rng.integers(16, 33, (n, 1))
    b = a + rng.integers(32, 97, (n, 1))
    t = np.arange(LENGTH)
    rise = (t - a) / (b - a)
    shape = np.choose(y[:, np.newaxis], [np.ones_like(rise), rise, 1 - rise]) * ((a <= t) & (t <= b))
    signals = (6 + rng.standard_normal((n, 1))) * shape + rng.standard_normal((n, LENGTH))
    return signals.astype(np.float32), CLASSES[y]


def net(outputs):
    """Returns three convolutions over time; what they find is averaged over time."""
    return [
        Conv1D(16, 9, padding="same", use_bias=False), BatchNorm1D(), ReLU(), MaxPool1D(2),
        Conv1D(32, 9, padding="same", use_bias=False), BatchNorm1D(), ReLU(), MaxPool1D(2),
        Conv1D(64, 9, padding="same", use_bias=False), BatchNorm1D(), ReLU(), GlobalAvgPool1D(),
        Dense(outputs),
    ]  # fmt: skip


def make_models(n):
    """Returns the models for n training signals, the net last."""
    fixed = {"lr": Cosine(0.003, STEPS), "epochs": STEPS // -(-n // BATCH_SIZE), "batch_size": BATCH_SIZE, "tol": None}
    searches = [
        (LogisticRegression(solver="newton-cholesky"), {"C": [0.001, 0.01, 0.1, 1]}),
        (SVC(), {"C": [0.1, 1, 10, 100], "gamma": ["scale", 1e-4, 1e-3, 1e-2]}),
        (ExtraTreesClassifier(200, random_state=0), {"max_features": ["sqrt", 0.3]}),
    ]
    models = [GridSearchCV(model, grid, cv=5, n_jobs=-1) for model, grid in searches]
    return [*models, SequentialClassifier(net, input_shape=(1, LENGTH), random_state=0, **fixed)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[30, 100, 300, 1000], help="of training sets")
    sizes = parser.parse_args().sizes
    X, y = draw_signals(max(sizes), seed=0)
    X_test, y_test = draw_signals(TEST, seed=1)
    for n in sizes:
        print(f"{n:,} training signals")
        for model in make_models(n):
            start = perf_counter()
            accuracy = model.fit(X[:n], y[:n]).score(X_test, y_test)
            name = type(getattr(model, "estimator", model)).__name__
            print(f"    {name:<22}{accuracy:7.2%}, {perf_counter() - start:4.1f} s", flush=True)
    print(f"\nTest accuracy {accuracy:.2%}")


if __name__ == "__main__":
    main()
