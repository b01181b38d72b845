"""How much a loss says: what it is for the best constant answer, and what for the right ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidl.losses import CLASSES, BinaryCrossEntropy, Loss, Poisson, SoftmaxCrossEntropy, checked_loss
from minidl.utils.arrays import Array

TINY = 1e-6  # probabilities and rates that are 0 have no logarithm

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Baseline:
    """The loss of one answer for all examples, that their mean suggests, and the loss of right answers."""

    guess: float
    right: float

    @property
    def span(self) -> float:
        """How far they are apart: what there is to learn."""
        return self.guess - self.right

    def learned(self, loss: float) -> float:
        """How far a loss is on the way: 0 says no more than guessing, 1 all there is to say."""
        return (self.guess - loss) / self.span


def guessing(loss: Loss, targets: Array, weights: Doubles | None, shape: tuple[int, ...]) -> Baseline | None:
    """That of targets as `loss` takes them, for outputs of this shape.

    None: of a loss of a user's, or where all targets are one.
    """
    if not isinstance(loss, CLASSES):
        return None
    wanted = _wanted(loss, targets, shape)
    mean = np.average(wanted, axis=0, weights=weights)
    guess, right = (
        float(np.average(checked_loss(loss, _scores(loss, numbers), targets)[0], weights=weights))
        for numbers in (np.broadcast_to(mean, wanted.shape), wanted)
    )
    return Baseline(guess, right) if guess - right > TINY * abs(guess) else None


def _wanted(loss: Loss, targets: Array, shape: tuple[int, ...]) -> Doubles:
    """What the model should say: probabilities of classes, or the targets themselves."""
    if not isinstance(loss, SoftmaxCrossEntropy):
        return targets.astype(np.float64)
    one_hot = np.eye(shape[0])[targets]
    return (1 - loss.label_smoothing) * one_hot + loss.label_smoothing / shape[0]


def _scores(loss: Any, numbers: Doubles) -> Doubles:
    """The scores that say these numbers."""
    if isinstance(loss, SoftmaxCrossEntropy):
        return np.log(np.maximum(numbers, TINY))
    if isinstance(loss, BinaryCrossEntropy):
        clipped = np.clip(numbers, TINY, 1 - TINY)
        return np.log(clipped / (1 - clipped))
    if isinstance(loss, Poisson):
        return np.log(np.maximum(numbers, TINY))
    return np.ascontiguousarray(numbers)
