"""A loss, a metric, an optimizer and first weights of one's own, and a run with them that breaks off and goes on.

Run it with: python examples/custom_parts.py
"""

import tempfile
from pathlib import Path

import numpy as np

from minidl import Sequential, Trainer
from minidl.callbacks import Checkpoint
from minidl.datasets import load_digits
from minidl.layers import Dense, Flatten, ReLU, Rescale

EPOCHS = 8


def squared_hinge(scores, y):
    """A loss: that of each example, (n,), and its gradient, of the shape of the scores. Nothing is averaged here.

    Each score should be on its side of 0, beyond a margin of 1. (Tang, 2013: "Deep learning using linear support vector
    machines".)
    """
    sides = 2 * np.eye(scores.shape[1], dtype=scores.dtype)[y] - 1  # 1 for the right class, -1 for the others
    missing = np.maximum(1 - sides * scores, 0)
    return (missing**2).sum(axis=1), -2 * sides * missing


def worst_class(y, scores):
    """A metric: one number, from all examples of an epoch. Here the share of the class that is read worst."""
    right = scores.argmax(axis=1) == y
    return min(right[y == label].mean() for label in np.unique(y))


class Yogi:
    """An optimizer: `lr` and step(params, lr). Its attributes are part of every checkpoint.

    Adam, whose v changes slowly. (Zaheer et al., 2018: "Adaptive methods for nonconvex optimization".)
    """

    def __init__(self, lr=0.01, betas=(0.9, 0.999), eps=0.001):
        self.lr, self.betas, self.eps = lr, betas, eps
        self.steps, self.m, self.v = 0, {}, {}

    def step(self, params, lr):
        self.steps += 1
        beta1, beta2 = self.betas
        for name, p in params.items():
            m, v, square = self.m.get(name, 0), self.v.get(name, 0), p.grad**2
            self.m[name] = m = beta1 * m + (1 - beta1) * p.grad
            self.v[name] = v = v - (1 - beta2) * np.sign(v - square) * square
            m, v = m / (1 - beta1**self.steps), v / (1 - beta2**self.steps)
            p.value -= lr * m / (np.sqrt(v) + self.eps)


def sparse(rng, shape):
    """First weights: a function of a generator and a shape. Each output begins with a few of its inputs.

    (Martens, 2010: "Deep learning via Hessian-free optimization".)
    """
    few = min(15, shape[1])
    weights = np.zeros(shape)
    for row in weights:
        row[rng.choice(shape[1], few, replace=False)] = rng.normal(0, np.sqrt(2 / few), few)
    return weights


def new_trainer():
    """A net with such first weights, and all the rest."""
    layers = [Rescale(1 / 16), Flatten(), Dense(64, kernel_initializer=sparse), ReLU(), Dense(10)]
    model = Sequential(layers, input_shape=(1, 8, 8), seed=0)
    return Trainer(model, squared_hinge, Yogi(), metrics=["accuracy", worst_class], seed=0)


class PowerCut:
    """A callback that ends the run in the middle."""

    def on_epoch_end(self, trainer, epoch, logs):
        if epoch == EPOCHS // 2:
            raise KeyboardInterrupt


def main():
    """Train; train again, break off, and go on from the checkpoint: both runs end with the same weights."""
    data = load_digits()
    trainer = new_trainer()
    trainer.fit(data.X_train, data.y_train, epochs=EPOCHS)
    print("On test images:", trainer.evaluate(data.X_test, data.y_test))

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "parts.safetensors")
        try:
            new_trainer().fit(
                data.X_train, data.y_train, epochs=EPOCHS, callbacks=[Checkpoint(path), PowerCut()], verbose=0
            )
        except KeyboardInterrupt:
            print("\nThe power is gone. Going on with what the file knows, and with the names in it given a meaning:")
        mine = {part.__name__: part for part in (squared_hinge, worst_class, Yogi, sparse)}
        resumed = Trainer.resume(path, custom_objects=mine)
    resumed.fit(data.X_train, data.y_train, epochs=EPOCHS)
    same = all(
        np.array_equal(value, resumed.model.state_dict()[name]) for name, value in trainer.model.state_dict().items()
    )
    print(f"\nThe weights are those of the run that was not broken off, to the last bit: {same}")


if __name__ == "__main__":
    main()
