"""Trains nets, alone or as a rank of a job, and prints a hash of the weights, history and predictions of each."""

import contextlib
import hashlib
import sys
import tempfile

import numpy as np

from minidl import Sequential, Trainer
from minidl.callbacks import CSVLogger, EarlyStopping
from minidl.distributed import MPI
from minidl.layers import (
    BatchNorm1D,
    BatchNorm2D,
    Conv2D,
    Dense,
    Dropout,
    Flatten,
    GlobalAvgPool2D,
    MaxPool2D,
    Outputs,
    RandomCrop,
    RandomFlip,
    RandomRotation,
    ReLU,
    Rescale,
)
from minidl.layers.base import Layer
from minidl.optimizers import SGD, Adam, Muon
from minidl.utils.data import CHUNK


class Inspector:
    """A callback on rank 0 only: inspecting a trainer does not wait for other ranks."""

    rank_zero_only = True

    def __init__(self, case):
        self.case = case

    def on_epoch_end(self, trainer, epoch, logs):
        X, y = images(40, self.case)
        with contextlib.redirect_stdout(None):
            trainer.report()
        trainer.evaluate(X, y)
        in_training = self.case == "noise in NumPy"  # in inference, no gradient passes through such a layer
        trainer.per_example_gradients(X, y, reduce="norm", training=in_training)


class Noise(Layer):
    """A layer in NumPy, so each rank computes whole steps."""

    def forward(self, x, training):
        return x + self.rng.standard_normal(x.shape).astype(x.dtype) if training else x

    def backward(self, dy):
        return dy


def block(channels):
    return [Conv2D(channels, 3, padding=1, use_bias=False), BatchNorm2D(), ReLU()]


def lenet():
    convs = [Rescale(1 / 255), Conv2D(6, 5, padding=2), ReLU(), MaxPool2D(2), Conv2D(16, 5), ReLU(), MaxPool2D(2)]
    return [*convs, Flatten(), Dense(120), ReLU(), Dense(84), ReLU(), Dense(10)]


def vgg():
    stages = [*block(8), *block(8), MaxPool2D(2), *block(16), *block(16), MaxPool2D(2)]
    return [Rescale(1 / 255), *stages, Flatten(), Dense(24), BatchNorm1D(), ReLU(), Dense(10)]


def grouped():
    *layers, last = lenet()
    last.lr_mult, last.decay_mult = {"bias": 8}, {"bias": 0}
    return [*layers, last]


def dropout():
    return [Rescale(1 / 255), Flatten(), Dropout(0.2), Dense(64), ReLU(), Dropout(0.5), Dense(10)]


def noisy():
    return [Rescale(1 / 255), Conv2D(4, 5, stride=3), ReLU(), Noise(), GlobalAvgPool2D(), Dense(10)]


def pixels():
    return [Rescale(1 / 255), RandomFlip(), RandomRotation((90, 90)), RandomCrop(20), Conv2D(10, 3, padding=1)]


def several():
    return [Rescale(1 / 255), Conv2D(4, 5, stride=3), ReLU(), Flatten(), Outputs(digit=Dense(10), light=Dense(1))]


SMALL, SOME = {"batch_size": 20}, {"batch_size": 100, "validation_split": 0.1}
SEVERAL = {
    "loss": {"digit": "softmax_cross_entropy", "light": "mean_squared_error"},
    "metrics": {"digit": ["accuracy"]},
}
CASES = {  # layers, dtype, arguments of the trainer, arguments of fit
    "lenet": (lenet, "float32", {}, SOME),
    "lenet with few tiles": (lenet, "float32", {}, SMALL),
    "vgg": (vgg, "float32", {"optimizer": Adam(0.003)}, SOME),
    "vgg float64": (vgg, "float64", {"clip_norm": 0.5}, SMALL),
    "vgg accumulating": (vgg, "float32", {}, {"batch_size": 16, "gradient_accumulation_steps": 2}),
    "parameter groups": (grouped, "float32", {"optimizer": SGD(0.02, momentum=0.9, weight_decay=0.1)}, SMALL),
    "muon": (grouped, "float32", {"optimizer": Muon(0.02)}, SMALL),
    "dropout": (dropout, "float32", {}, SOME),
    "examples clipped": (dropout, "float64", {"per_example_clip_norm": 0.1}, SMALL),
    "pixels": (pixels, "float32", {}, {"batch_size": 20}),
    "several outputs": (several, "float32", SEVERAL, {"batch_size": 20, "validation_split": 0.1}),
    "noise in NumPy": (noisy, "float32", {}, SMALL),
}


def images(n, case=""):
    """Of ten classes, that differ in their brightness: small nets learn something. y: as the case takes it."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, n)
    X = (rng.integers(0, 60, (n, 1, 28, 28)) + 15 * y[:, None, None, None]).astype(np.uint8)
    if case == "several outputs":
        return X, {"digit": y, "light": y[:, None] / 10}
    return X, X[:, 0] // 20 if case == "pixels" else y


def some(y, rows):
    return {name: values[rows] for name, values in y.items()} if isinstance(y, dict) else y[rows]


def trained(case, comm):
    layers, dtype, options, arguments = CASES[case]
    options = {"loss": "softmax_cross_entropy", "metrics": ["accuracy"], **options}
    options = {"optimizer": SGD(0.02, momentum=0.9), **options}
    X, y = images(237, case)
    weights = np.random.default_rng(1).integers(0, 3, len(X)) / 2.0 if "clipped" in case or case == "dropout" else None
    if case == "dropout":
        many = np.arange(2 * CHUNK + 1) % len(X)  # with two ranks, one evaluates a block more than the other
        arguments = {"batch_size": 100, "validation_data": (X[many], y[many])}
        X = X.astype(np.float16)  # converted as it is read
    model = Sequential(layers(), (1, 28, 28), seed=1, dtype=dtype)
    trainer = Trainer(model, seed=2, distributed=comm, **options)
    with tempfile.TemporaryDirectory() as folder:  # CSVLogger is an observer: only rank 0 writes
        callbacks = [CSVLogger(f"{folder}/log.csv"), EarlyStopping("loss", patience=2), Inspector(case)]
        trainer.fit(X, y, epochs=2, sample_weight=weights, callbacks=callbacks, verbose=0, **arguments)
    for start in (0, 33):
        trainer.train_batch(X[start : start + 33], some(y, slice(start, start + 33)))
    found = hashlib.sha256(b"".join(value.tobytes() for value in model.state_dict().values()))
    found.update(repr([(name, trainer.history[name]) for name in trainer.history if "second" not in name]).encode())
    scores = model.predict(X)
    for array in scores.values() if isinstance(scores, dict) else [scores]:
        found.update(array.tobytes())
    return found.hexdigest()


if __name__ == "__main__":
    comm = None if sys.argv[1:] == ["alone"] else MPI()
    for case in CASES if comm is None else sys.argv[1:] or CASES:
        sys.stdout.write(f"{case}: {trained(case, comm)}\n")
