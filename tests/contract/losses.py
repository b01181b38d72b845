"""Cases of losses: random arguments, outputs and targets, and their counterparts in PyTorch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from contract.case import any_shape, functional

from minidl.losses import (
    BinaryCrossEntropy,
    Dice,
    Huber,
    MeanAbsoluteError,
    MeanSquaredError,
    NativeLoss,
    Pinball,
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


def pinball(rng):
    """One quantile or several, and a target for all of them, as (n,) or (n, 1)."""
    levels = np.sort(rng.uniform(0.01, 0.99, int(rng.integers(1, 8)))).tolist()
    given = levels[0] if len(levels) == 1 and rng.integers(2) else levels

    def targets(rng, n):
        y = real(rng, (n, 1))
        return y[:, 0] if rng.integers(2) else y

    def torch(scores, y):
        missing, q = y.reshape(-1, 1).to(scores) - scores, scores.new_tensor(levels)
        return (q * missing).maximum((q - 1) * missing)

    return LossCase(Pinball(given), (len(levels),), targets, torch)


def mean_over_labels(losses, counts):
    """Returns PyTorch's losses (n, m), of which the mean over m is that of the labels that count."""
    return losses * losses.shape[1] / counts.sum(axis=1).clamp(min=1)[:, None]


def binary_cross_entropy(rng):
    """Some with weights: a number, or one for each channel; some with targets that are ignored."""
    shape = any_shape(rng)
    ignored = [None, 255, -1][rng.integers(3)]

    def weights(least):
        given = [None, float(rng.uniform(least, 3)), rng.uniform(least, 3, shape[0]).tolist()][rng.integers(3)]
        return given, np.ones(shape[0]) * (1 if given is None else given)

    (pos_weight, positive), (output_weight, outputs) = weights(0), weights(0)

    def torch(scores, y):
        t, columns = y.reshape(scores.shape).to(scores), (-1, *[1] * (len(shape) - 1))
        weight, pos = (scores.new_tensor(one).reshape(columns) for one in (outputs, positive))
        counts = t != (-7 if ignored is None else ignored)
        t = t.where(counts, t.new_zeros(()))
        losses = functional().binary_cross_entropy_with_logits(scores, t, weight, reduction="none", pos_weight=pos)
        return mean_over_labels((losses * counts).reshape(len(t), -1), counts.reshape(len(t), -1))

    def targets(rng, n):
        y = zeros_and_ones(rng, (n, *shape))
        if ignored is not None:
            y = np.where(rng.random(y.shape) < 0.3, ignored, y.astype(float))
        return y[:, 0] if shape[0] == 1 and rng.integers(2) else y

    return LossCase(BinaryCrossEntropy(pos_weight, output_weight, ignored), shape, targets, torch)


def softmax_cross_entropy(rng):
    """Labels of examples or positions, some of them ignored, or probabilities; some with weights of classes."""
    classes, smoothing = int(rng.integers(2, 20)), float(rng.choice([0.0, 0.1, 1.0]))
    positions = tuple(int(n) for n in rng.integers(1, 6, rng.integers(0, 3)))
    ignored = [None, -100, 255, 0][rng.integers(4)]
    weight = [None, rng.uniform(0, 3, classes).tolist()][rng.integers(2)]

    def labels(rng, n):
        y = rng.integers(0, classes, (n, *positions))
        return y if ignored is None else np.where(rng.random(y.shape) < 0.3, ignored, y)

    def probabilities(rng, n):
        return rng.random((n, classes, *positions)) * rng.choice([0, 1, 2], (n, 1, *positions))

    def torch(scores, y):
        w = None if weight is None else scores.new_tensor(weight)
        options = {"weight": w, "reduction": "none", "label_smoothing": smoothing}
        if y.is_floating_point():
            return functional().cross_entropy(scores, y, **options)
        nothing = -1 if ignored is None else ignored
        losses = functional().cross_entropy(scores, y, ignore_index=nothing, **options)
        return mean_over_labels(losses.reshape(len(y), -1), (y != nothing).reshape(len(y), -1))

    draw = probabilities if ignored is None and rng.integers(2) else labels
    return LossCase(SoftmaxCrossEntropy(smoothing, ignored, weight), (classes, *positions), draw, torch)


def dice(rng):
    """Labels of pixels, some of them ignored, or probabilities; of a single score the labels 0 and 1."""
    classes, smooth = int(rng.integers(1, 6)), float(rng.choice([0.1, 1.0, 10.0]))
    positions = tuple(int(n) for n in rng.integers(1, 8, rng.integers(1, 3)))
    ignored = [None, -100, 255][rng.integers(3)]

    def labels(rng, n):
        y = rng.integers(0, max(2, classes), (n, *positions))
        y = y if ignored is None else np.where(rng.random(y.shape) < 0.3, ignored, y)
        return y[:, np.newaxis] if classes == 1 and rng.integers(2) else y

    def probabilities(rng, n):
        return rng.random((n, classes, *positions))

    def torch(scores, y):
        counts = (y.reshape(len(y), 1, *positions) if y.numel() == scores[:, 0].numel() else y) != ignored
        if y.is_floating_point():
            t = y
        else:
            own = scores.new_tensor([1] if classes == 1 else range(classes)).reshape(-1, *[1] * len(positions))
            t = (y.reshape(len(y), 1, *positions) == own).to(scores)
        p = (scores.sigmoid() if classes == 1 else scores.softmax(1)) * counts
        both, all_of = ((one * counts).flatten(2).sum(2) for one in (p * t, p + t))
        return (1 - (2 * both + smooth) / (all_of + smooth)).mean(1)

    draw = probabilities if ignored is None and rng.integers(2) else labels
    return LossCase(Dice(smooth, ignored), (classes, *positions), draw, torch)


DRAWS = {
    "BinaryCrossEntropy": binary_cross_entropy,
    "Dice": dice,
    "Huber": huber,
    "MeanAbsoluteError": regression_case(MeanAbsoluteError(), "l1_loss", real),
    "MeanSquaredError": regression_case(MeanSquaredError(), "mse_loss", real),
    "Pinball": pinball,
    "Poisson": regression_case(Poisson(), "poisson_nll_loss", counts),
    "SoftmaxCrossEntropy": softmax_cross_entropy,
}
