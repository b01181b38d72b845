"""Cases of losses: random arguments, outputs and targets, and their counterparts in PyTorch."""

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
    """A loss and the shape of its outputs.

    targets(rng, n): y of n examples. torch(scores, y): PyTorch's losses, reduction="none", as (n, ...) of any shape.
    """

    loss: NativeLoss
    shape: tuple[int, ...]
    targets: Callable[[np.random.Generator, int], np.ndarray]
    torch: Callable[..., Any]

    def scores(self, rng, n):
        """Draws outputs of n examples, on both sides of every kink and in the saturated ranges."""
        return 3 * rng.standard_normal((n, *self.shape))


def regression_case(loss, name, draw, **options):
    """Returns a drawing function; draw(rng, shape): targets; name, options: of the torch.nn.functional counterpart."""

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
    """Draws labels as bools, as integers or as probabilities."""
    kind = rng.integers(3)
    return rng.random(shape) if kind == 0 else rng.integers(0, 2, shape).astype([None, bool, "u1"][kind])


def counts(rng, shape):
    return rng.integers(0, 20, shape)


def huber(rng):
    delta = float(rng.choice([0.3, 1.0, 2.5]))
    return regression_case(Huber(delta), "huber_loss", real, delta=delta)(rng)


def binary_cross_entropy(rng):
    """Some with weights: a number, or one for each channel."""
    shape = any_shape(rng)

    def weights(least):
        given = [None, float(rng.uniform(least, 3)), rng.uniform(least, 3, shape[0]).tolist()][rng.integers(3)]
        return given, np.ones(shape[0]) * (1 if given is None else given)

    (pos_weight, positive), (output_weight, outputs) = weights(0), weights(0)

    def torch(scores, y):
        t, columns = y.reshape(scores.shape).to(scores), (-1, *[1] * (len(shape) - 1))
        weight, pos = (scores.new_tensor(one).reshape(columns) for one in (outputs, positive))
        return functional().binary_cross_entropy_with_logits(scores, t, weight, reduction="none", pos_weight=pos)

    def targets(rng, n):
        y = zeros_and_ones(rng, (n, *shape))
        return y[:, 0] if shape == (1,) and rng.integers(2) else y

    return LossCase(BinaryCrossEntropy(pos_weight, output_weight), shape, targets, torch)


def softmax_cross_entropy(rng):
    """Labels of examples or positions, some of them ignored, or probabilities."""
    classes, smoothing = int(rng.integers(2, 20)), float(rng.choice([0.0, 0.1, 1.0]))
    positions = tuple(int(n) for n in rng.integers(1, 6, rng.integers(0, 3)))
    ignored = [None, -100, 255, 0][rng.integers(4)]

    def labels(rng, n):
        y = rng.integers(0, classes, (n, *positions))
        return y if ignored is None else np.where(rng.random(y.shape) < 0.3, ignored, y)

    def probabilities(rng, n):
        return rng.random((n, classes, *positions)) * rng.choice([0, 1, 2], (n, 1, *positions))

    def torch(scores, y):
        if y.is_floating_point():
            return functional().cross_entropy(scores, y, reduction="none", label_smoothing=smoothing)
        nothing = -1 if ignored is None else ignored
        losses = (
            functional()
            .cross_entropy(scores, y, reduction="none", label_smoothing=smoothing, ignore_index=nothing)
            .reshape(len(y), -1)
        )
        return losses * losses.shape[1] / (y != nothing).reshape(len(y), -1).sum(axis=1).clamp(min=1)[:, None]

    draw = probabilities if rng.integers(3) == 0 else labels
    return LossCase(SoftmaxCrossEntropy(smoothing, ignored), (classes, *positions), draw, torch)


DRAWS = {
    "BinaryCrossEntropy": binary_cross_entropy,
    "Huber": huber,
    "MeanAbsoluteError": regression_case(MeanAbsoluteError(), "l1_loss", real),
    "MeanSquaredError": regression_case(MeanSquaredError(), "mse_loss", real),
    "Poisson": regression_case(Poisson(), "poisson_nll_loss", counts),
    "SoftmaxCrossEntropy": softmax_cross_entropy,
}
