"""Losses: random arguments, outputs and targets for each, and what PyTorch has in its place."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from contract.case import any_shape, functional

from minidl.losses import (
    BinaryCrossEntropy,
    Huber,
    MeanAbsoluteError,
    MeanSquaredError,
    NativeLoss,
    Poisson,
    SoftmaxCrossEntropy,
)


@dataclass(frozen=True)
class LossCase:
    """A loss of outputs of a shape.

    targets(rng, n): y of n examples. torch(scores, y): PyTorch's losses, reduction="none", as (n, ...) of any shape.
    """

    loss: NativeLoss
    shape: tuple[int, ...]
    targets: Callable[[np.random.Generator, int], np.ndarray]
    torch: Callable[..., Any]

    def scores(self, rng, n):
        """Outputs of n examples, on both sides of every kink, and in the flat parts."""
        return 3 * rng.standard_normal((n, *self.shape))


def of_numbers(loss, name, draw, **options):
    """A draw of a case; draw(rng, shape): targets; name and options: of the function in torch.nn.functional."""

    def case(rng):
        shape = any_shape(rng)

        def torch(scores, y):
            return getattr(functional(), name)(scores, y.reshape(scores.shape).to(scores), reduction="none", **options)

        def targets(rng, n):
            y = draw(rng, (n, *shape))
            return y[:, 0] if shape == (1,) and rng.integers(2) else y

        return LossCase(loss, shape, targets, torch)

    return case


def real(rng, shape):
    return 3 * rng.standard_normal(shape)


def zeros_and_ones(rng, shape):
    """Labels as bools, as integers, or probabilities."""
    kind = rng.integers(3)
    return rng.random(shape) if kind == 0 else rng.integers(0, 2, shape).astype([None, bool, "u1"][kind])


def counts(rng, shape):
    return rng.integers(0, 20, shape)


def huber(rng):
    delta = float(rng.choice([0.3, 1.0, 2.5]))
    return of_numbers(Huber(delta), "huber_loss", real, delta=delta)(rng)


def softmax_cross_entropy(rng):
    classes, smoothing = int(rng.integers(1, 20)), float(rng.choice([0.0, 0.1, 1.0]))

    def torch(scores, y):
        return functional().cross_entropy(scores, y, reduction="none", label_smoothing=smoothing)

    loss = SoftmaxCrossEntropy(smoothing)
    return LossCase(loss, (classes,), lambda rng, n: rng.integers(0, classes, n), torch)


DRAWS = {
    "BinaryCrossEntropy": of_numbers(BinaryCrossEntropy(), "binary_cross_entropy_with_logits", zeros_and_ones),
    "Huber": huber,
    "MeanAbsoluteError": of_numbers(MeanAbsoluteError(), "l1_loss", real),
    "MeanSquaredError": of_numbers(MeanSquaredError(), "mse_loss", real),
    "Poisson": of_numbers(Poisson(), "poisson_nll_loss", counts),
    "SoftmaxCrossEntropy": softmax_cross_entropy,
}
