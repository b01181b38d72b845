"""Trainers of several kinds and helpers that interrupt their fits: for tests of checkpoints and of resuming."""

import numpy as np
import pytest

from minidl import Layer, Sequential, Trainer
from minidl.callbacks import Checkpoint
from minidl.layers import BatchNorm2D, Conv2D, Dense, Dropout, Flatten, ReLU
from minidl.metrics import accuracy
from minidl.optimizers import SGD

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(90, 1, 6, 6)).astype("float32"), RNG.integers(0, 3, 90)
WEIGHTS = RNG.uniform(0, 2, 90)
FIT = {"epochs": 4, "batch_size": 7, "verbose": 0}


class NoiseLayer(Layer):
    """A NumPy layer with a parameter and random numbers."""

    def build(self, in_shape):
        self.gain = self.param("gain", (), lambda rng, shape: np.ones(shape))
        return in_shape

    def forward(self, x, training):
        self.noisy = x * (1 + self.rng.normal(size=x.shape).astype(x.dtype)) if training else x
        return self.noisy * self.gain.value

    def backward(self, dy):
        self.gain.grad[...] = (dy * self.noisy).sum()
        return dy


class PythonAdam:
    """A Python optimizer that keeps its state by parameter name and has no state_dict."""

    def __init__(self, lr):
        self.lr, self.t, self.m, self.v = lr, 0, {}, {}

    def step(self, params, lr):
        self.t += 1
        for name, p in params.items():
            m = self.m[name] = 0.9 * self.m.get(name, 0) + 0.1 * p.grad
            v = self.v[name] = 0.999 * self.v.get(name, 0) + 0.001 * p.grad**2
            p.value -= lr * (m / (1 - 0.9**self.t)) / (np.sqrt(v / (1 - 0.999**self.t)) + 1e-8)


class Schedule:
    """A learning-rate schedule as an object with arguments."""

    def __init__(self, first, every):
        self.first, self.every = first, every

    def __call__(self, step):
        return self.first * 0.9 ** (step // self.every)


class StepCounter:
    """A callback whose state affects training."""

    def __init__(self):
        self.steps, self.losses = 0, []

    def on_step_end(self, trainer, step, loss):
        self.steps, self.losses = self.steps + 1, [*self.losses[-3:], loss]
        if self.steps % 11 == 0:
            trainer.optimizer.lr *= float(np.clip(np.mean(self.losses), 0.5, 0.9))

    def state_dict(self):
        return {"steps": self.steps, "losses": np.array(self.losses)}

    def load_state_dict(self, state):
        self.steps, self.losses = state["steps"], state["losses"].tolist()


def squares(scores, y):
    error = scores - np.eye(3, dtype=scores.dtype)[y]
    return (error**2).sum(axis=1), 2 * error


def largest(y, scores):
    return scores.max()


CUSTOM = {c.__name__: c for c in (NoiseLayer, PythonAdam, Schedule, squares, largest)}


def native_trainer(dtype="float32"):
    layers = [Conv2D(4, 3), ReLU(), Dropout(0.3), Flatten(), Dense(6), ReLU(), Dense(3)]
    model = Sequential(layers, (1, 6, 6), seed=2, dtype=dtype)
    return Trainer(model, "softmax_cross_entropy", SGD(0.1, momentum=0.9, nesterov=True), ["accuracy"], seed=5)


def python_trainer(dtype="float32"):
    model = Sequential([Conv2D(2, 3), NoiseLayer(), Flatten(), Dense(3)], (1, 6, 6), dtype=dtype)
    return Trainer(model, squares, PythonAdam(Schedule(0.01, 9)), [accuracy, largest])


def mixed_trainer(dtype="float32"):
    """A NumPy layer with a built-in optimizer."""
    model = Sequential([NoiseLayer(), Flatten(), Dense(3)], (1, 6, 6), dtype=dtype)
    return Trainer(model, "softmax_cross_entropy", SGD(0.05, momentum=0.5))


def batchnorm_trainer(dtype="float32"):
    """A net with running statistics, and a learning rate at which the loss goes up and down."""
    layers = [Conv2D(4, 3), BatchNorm2D(), ReLU(), Flatten(), Dense(3)]
    model = Sequential(layers, (1, 6, 6), seed=2, dtype=dtype)
    return Trainer(model, "softmax_cross_entropy", SGD(0.2, momentum=0.9), ["accuracy"], seed=1)


MAKERS = {maker.__name__: maker for maker in (native_trainer, python_trainer, mixed_trainer)}


def full_state(trainer):
    history = {k: np.array(v).tobytes() for k, v in trainer.history.items() if k != "images_per_second"}
    weights = {k: v.tobytes() for k, v in trainer.model.state_dict().items()}
    return weights, history, trainer.step, trainer.epoch, trainer.model.predict(X).tobytes()


class InterruptAfter:
    """Interrupts the fit after a step, once all preceding callbacks have seen and saved it."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, trainer, step, loss):
        """Defined so that every step ends a chunk."""

    def on_save(self, trainer):
        if trainer.step == self.step + 1:
            raise KeyboardInterrupt


def interrupt_fit(trainer, step, **fit):
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(X, Y, **{**FIT, **fit, "callbacks": [*fit.get("callbacks", []), InterruptAfter(step)]})
    return trainer


def interrupt_and_complete(make, step, callbacks, path, **fit):
    """Returns a trainer whose fit was interrupted and completed from its checkpoint, and the callbacks of that fit.

    `callbacks()` makes new ones, as a restarted program does.
    """
    fit = {**FIT, **fit}
    interrupt_fit(make(), step, **fit, callbacks=[Checkpoint(path, every_n_steps=step + 1), *callbacks()])
    trainer, again = Trainer.resume(path, custom_objects=CUSTOM), callbacks()
    assert trainer.step == step + 1
    trainer.fit(X, Y, **fit, callbacks=again)
    return trainer, again


def comparable(state):
    """Returns a callback's state with arrays replaced by their bytes, for exact comparison."""
    if isinstance(state, dict):
        return {name: comparable(value) for name, value in state.items()}
    return (state.dtype, state.shape, state.tobytes()) if isinstance(state, np.ndarray) else state
