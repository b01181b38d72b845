"""A custom loss, metric, optimizer and initializer
===================================================

Three functions and a class that minidl does not have train a net. The run is interrupted, and resumed from a
checkpoint, which holds their state, too.

Run it with: `python examples/custom_parts.py`
"""

import tempfile
from pathlib import Path

import numpy as np

from minidl import Sequential, Trainer
from minidl.callbacks import Checkpoint
from minidl.datasets import load_digits
from minidl.layers import Dense, Flatten, ReLU, Rescale

EPOCHS = 8

# %%
# A loss
# ------
# A function of scores and labels, which returns the loss of each example and its gradient.


def squared_hinge(scores, y):
    """Squared hinge loss: the loss of each example, (n,), and its gradient, like the scores; averages nothing.

    Each score should be on the right side of 0, with a margin of 1. (Tang, 2013: "Deep learning using linear support
    vector machines".)
    """
    signs = 2 * np.eye(scores.shape[1], dtype=scores.dtype)[y] - 1  # 1 for the right class, -1 for the others
    hinge = np.maximum(1 - signs * scores, 0)
    return (hinge**2).sum(axis=1), -2 * signs * hinge


# %%
# A metric
# --------
# A function of all labels and scores of an epoch, which returns a number.


def worst_class(y, scores):
    """The lowest recall of all classes."""
    right = scores.argmax(axis=1) == y
    return min(right[y == label].mean() for label in np.unique(y))


# %%
# An optimizer
# ------------
# A class with an attribute `lr` and a method `step(params, lr)`. Its attributes are part of every checkpoint.


class Yogi:
    """Yogi, an Adam whose v changes slowly. (Zaheer et al., 2018: "Adaptive methods for nonconvex optimization".)"""

    def __init__(self, lr=0.01, betas=(0.9, 0.999), eps=0.001):
        self.lr, self.betas, self.eps = lr, betas, eps
        self.steps, self.m, self.v = {}, {}, {}  # by the name of a parameter, as some may be frozen at first

    def step(self, params, lr):
        beta1, beta2 = self.betas
        for name, p in params.items():
            self.steps[name] = t = self.steps.get(name, 0) + 1
            m, v, square = self.m.get(name, 0), self.v.get(name, 0), p.grad**2
            self.m[name] = m = beta1 * m + (1 - beta1) * p.grad
            self.v[name] = v = v - (1 - beta2) * np.sign(v - square) * square
            m, v = m / (1 - beta1**t), v / (1 - beta2**t)
            p.value -= lr * m / (np.sqrt(v) + self.eps)


# %%
# An initializer
# --------------
# A function of a random generator and a shape, which returns an array of that shape.


def sparse(rng, shape):
    """Sparse initializer: each output starts with weights for at most 15 inputs.

    (Martens, 2010: "Deep learning via Hessian-free optimization".)
    """
    n = min(15, shape[1])
    weights = np.zeros(shape)
    for row in weights:
        row[rng.choice(shape[1], n, replace=False)] = rng.normal(0, np.sqrt(2 / n), n)
    return weights


# %%
# All of them in a run
# --------------------
# A checkpoint has the names of these parts. `custom_objects` tells `Trainer.resume` what they are.


def make_trainer():
    """Returns a trainer that uses all of these parts."""
    layers = [Rescale(1 / 16), Flatten(), Dense(64, kernel_initializer=sparse), ReLU(), Dense(10)]
    model = Sequential(layers, input_shape=(1, 8, 8), seed=0)
    return Trainer(model, squared_hinge, Yogi(), metrics=["accuracy", worst_class], seed=0)


class PowerCut:
    """A callback that interrupts the run halfway."""

    def on_epoch_end(self, trainer, epoch, logs):
        if epoch == EPOCHS // 2:
            raise KeyboardInterrupt


def main():
    """Trains; trains again, interrupts and resumes from the checkpoint: both runs end with the same weights."""
    data = load_digits()
    trainer = make_trainer()
    trainer.fit(data.X_train, data.y_train, epochs=EPOCHS)
    print("On test images:", trainer.evaluate(data.X_test, data.y_test))

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "parts.safetensors")
        try:
            make_trainer().fit(
                data.X_train, data.y_train, epochs=EPOCHS, callbacks=[Checkpoint(path), PowerCut()], verbose=0
            )
        except KeyboardInterrupt:
            print("\nInterrupted. Resuming from the checkpoint:")
        custom = {part.__name__: part for part in (squared_hinge, worst_class, Yogi, sparse)}
        resumed = Trainer.resume(path, custom_objects=custom)
    resumed.fit(data.X_train, data.y_train, epochs=EPOCHS)
    same = all(
        np.array_equal(value, resumed.model.state_dict()[name]) for name, value in trainer.model.state_dict().items()
    )
    print(f"\nThe weights are those of the uninterrupted run, to the last bit: {same}")


if __name__ == "__main__":
    main()
