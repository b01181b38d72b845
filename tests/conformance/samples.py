"""A small checkpoint with every kind of content, for the programs that damage files and interrupt saves."""

import contextlib
from functools import cache
from pathlib import Path

import numpy as np

from minidl import Sequential, Trainer
from minidl.layers import Dense, Dropout, ReLU
from minidl.optimizers import SGD

X, Y = np.arange(24, dtype="float32").reshape(8, 3) / 24, np.arange(8) % 2


class Falling:
    """A learning rate schedule as a user-defined object."""

    def __init__(self, first):
        self.first = first

    def __call__(self, step):
        return self.first / (1 + step)


class Counts:
    """A callback whose state is a number and an array."""

    steps = 0

    def on_step_end(self, trainer, step, loss):
        self.steps = step
        if step == 4:
            raise KeyboardInterrupt

    def state_dict(self):
        return {"steps": self.steps, "squares": np.arange(self.steps) ** 2}

    def load_state_dict(self, state):
        self.steps = state["steps"]


@cache
def trainer(seed):
    """Returns a trainer whose fit was interrupted in the middle of its second epoch."""
    model = Sequential([Dense(2), ReLU(), Dropout(0.5), Dense(2)], input_shape=(3,), seed=seed)
    made = Trainer(model, "softmax_cross_entropy", SGD(Falling(0.1), momentum=0.5), ["accuracy"])
    with contextlib.suppress(KeyboardInterrupt):
        made.fit(X, Y, epochs=3, batch_size=3, callbacks=[Counts()], verbose=0)
    made.history["images_per_second"] = [1.0]  # makes the bytes reproducible
    return made


def save_checkpoint(seed, path: Path):
    """Writes the checkpoint of `trainer(seed)`."""
    trainer(seed).save_checkpoint(path)


def load_checkpoint(path: Path):
    """Resumes a trainer from the checkpoint."""
    return Trainer.resume(path, custom_objects={"Falling": Falling})
