"""Mistakes of one rank, each of which every rank must refuse, and a valid fit after them. Prints each rank's errors."""

import os
import sys

import numpy as np
from mpi.nets import images

from minidl import Sequential, Trainer
from minidl.callbacks import EarlyStopping
from minidl.distributed import MPI
from minidl.distributed.communicator import SINGLE_PROCESS
from minidl.layers import Dense, Flatten, Rescale
from minidl.layers.base import Layer
from minidl.optimizers import SGD

comm = MPI() if __name__ == "__main__" else SINGLE_PROCESS
X, y = images(64)
odd = comm.rank == comm.size - 1  # True on the rank that makes the mistake


class Unseeded(Layer):
    """A layer that draws different numbers on each rank."""

    def forward(self, x, training):
        return x + np.random.default_rng().standard_normal(x.shape).astype(x.dtype) if training else x

    def backward(self, dy):
        return dy


class Failing:
    """A callback that fails on one rank."""

    def on_step_end(self, trainer, step, loss):
        if odd and step == 2:
            raise OSError("no space left")


class OddName:
    """Fails on one rank, about a file whose name is not text."""

    def on_fit_begin(self, trainer):
        if odd:
            raise OSError(os.fsdecode(b"no file caf\xe9"))


class RateChanger:
    """Changes the learning rate on one rank, after the last step that it affects."""

    def on_step_end(self, trainer, step, loss):
        if odd and step == 3:
            trainer.optimizer.lr = 0.5


def failing_metric(y, scores):
    """A metric that fails on one rank."""
    if odd:
        raise KeyError("no such class")
    return 1.0


def failing_rate(step):
    """A learning rate schedule that fails on one rank."""
    if odd and step == 2:
        raise OSError("no table of rates")
    return 0.1


def every(n):
    """Returns a callback for every n-th step."""
    made = RateChanger()
    made.every_n_steps = n
    return made


def trainer(layers=(), seed=0, dtype="float32", **options):
    model = Sequential([Rescale(1 / 255), Flatten(), *layers, Dense(10)], (1, 28, 28), seed=seed, dtype=dtype)
    options = {"optimizer": SGD(0.1), **options}
    return Trainer(model, "softmax_cross_entropy", distributed=comm, **options)


def fit(made=None, X=X, y=y, **arguments):
    (made or trainer()).fit(X, y, **{"epochs": 2, "batch_size": 16, "verbose": 0, **arguments})


def other(usual, different):
    return different if odd else usual


def changed(made):
    param = made.model.params["2.weight"]
    param.value = param.value + other(0, 1)
    return made


def pushed(made):
    made.steps().update.state["velocity"][:] = other(0, 1)
    return made


def train_batch(n, steps=0):
    made = trainer()
    made.step = steps
    made.train_batch(X[:n], y[:n])


CASES = {
    "X": lambda: fit(X=other(X, X[::-1])),
    "y": lambda: fit(y=other(y, y[::-1])),
    "fewer rows": lambda: fit(X=other(X, X[:-1]), y=other(y, y[:-1])),
    "sample_weight": lambda: fit(sample_weight=other(None, np.full(64, 2.0))),
    "validation_data": lambda: fit(validation_data=other((X, y), (X[:9], y[:9]))),
    "epochs": lambda: fit(epochs=other(2, 3)),
    "batch_size": lambda: fit(batch_size=other(16, 17)),
    "callbacks": lambda: fit(callbacks=other([], [EarlyStopping("loss")])),
    "seed": lambda: fit(trainer(seed=other(0, 1))),
    "weights": lambda: fit(changed(trainer())),
    "layers": lambda: fit(trainer([Dense(other(10, 11))])),
    "dtype": lambda: fit(trainer(dtype=other("float32", "float64"))),
    "optimizer": lambda: fit(trainer(optimizer=SGD(other(0.1, 0.2)))),
    "clip": lambda: fit(trainer(clip_norm=other(None, 1.0))),
    "shuffle": lambda: fit(shuffle=other(True, False)),
    "validation_split": lambda: fit(validation_split=other(0.2, 0.3)),
    "gradient_accumulation_steps": lambda: fit(gradient_accumulation_steps=other(1, 2)),
    "velocity": lambda: fit(pushed(trainer(optimizer=SGD(0.1, momentum=0.9)))),
    "steps": lambda: train_batch(20, steps=other(0, 3)),
    "rate": lambda: fit(callbacks=[RateChanger()]),
    "called": lambda: train_batch(20) if odd else fit(),
    "wrong epochs": lambda: fit(epochs=other(2, -1)),
    "wrong y": lambda: fit(y=other(y, y + 1)),
    "wrong X": lambda: fit(X=other(X, X[:, :, :5])),
    "unseeded": lambda: fit(trainer([Unseeded()])),
    "callback": lambda: fit(callbacks=[Failing()]),
    "odd name": lambda: fit(callbacks=[OddName()]),
    "metric": lambda: fit(trainer(metrics=[failing_metric])),
    "failing rate": lambda: fit(trainer(optimizer=SGD(failing_rate))),
    "every": lambda: fit(callbacks=[every(other(2, 3))]),
    "infinite": lambda: fit(trainer([Dense(10)], optimizer=SGD(1e30))),
    "batch": lambda: train_batch(other(20, 21)),
    "timeout": lambda: MPI(timeout=other(5, 6)),
    "wrong batch": lambda: train_batch(other(20, 0)),
}


def main():
    for name, case in CASES.items():
        try:
            case()
            message = "nothing"
        except Exception as error:
            message = f"{type(error).__name__}: {error}".encode(errors="replace").decode()
        sys.stdout.write(f"{comm.rank} {name} | {message}\n")
    fit()
    sys.stdout.write(f"{comm.rank} end | fine\n")


if __name__ == "__main__":
    main()
