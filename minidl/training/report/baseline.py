"""Baseline: the loss of the best constant answer, as of scikit-learn's DummyClassifier, and that of right answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidl.losses import CLASSES, BinaryCrossEntropy, Dice, Loss, Pinball, Poisson, SoftmaxCrossEntropy, checked_loss
from minidl.losses.class_weights import by_channel
from minidl.losses.output_losses import OutputLosses
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
        """The difference of the two losses: what there is to learn."""
        return self.guess - self.right

    def learned(self, loss: float) -> float:
        """Returns the share of the span that a loss has reached: 0 for guessing, 1 for right answers."""
        return (self.guess - loss) / self.span


def baseline_of(loss: Loss, targets: Array, weights: Doubles | None, shape: tuple[int, ...]) -> Baseline | None:
    """Returns the baseline of targets as `loss` takes them, for outputs of this shape.

    None for a loss that is not minidl's, for Dice, whose best guess has no formula, or if all targets are equal.
    """
    if isinstance(loss, OutputLosses):
        parts, shapes = loss.split(targets), loss.layout.shapes
        found = {name: baseline_of(own, parts[name], weights, shapes[name]) for name, own in loss.losses.items()}
        known = {name: one for name, one in found.items() if one is not None and loss.weights[name] > 0}
        if len(known) < sum(weight > 0 for weight in loss.weights.values()):
            return None
        shares = [(loss.weights[name], one) for name, one in known.items()]
        guess, right = (
            sum(weight * one.guess for weight, one in shares),
            sum(weight * one.right for weight, one in shares),
        )
        return Baseline(guess, right) if known else None
    if not isinstance(loss, CLASSES) or isinstance(loss, Dice):
        return None
    answers = _right_answers(loss, targets, shape)
    mean = _mean_answer(loss, answers, targets, weights)
    guess, right = (
        float(np.average(checked_loss(loss, _scores(loss, numbers), targets)[0], weights=weights))
        for numbers in (np.broadcast_to(mean, answers.shape), answers)
    )
    return Baseline(guess, right) if guess - right > TINY * abs(guess) else None


def _right_answers(loss: Loss, targets: Array, shape: tuple[int, ...]) -> Doubles:
    """Returns the right answers: probabilities of classes, or the targets themselves."""
    if not isinstance(loss, SoftmaxCrossEntropy):
        return targets.astype(np.float64)
    return (1 - loss.label_smoothing) * loss.numbers(targets, shape) + loss.label_smoothing / shape[0]


def _mean_answer(loss: Loss, answers: Doubles, targets: Array, weights: Doubles | None) -> Doubles:
    """Returns the mean of the answers of all examples, at each position of those that have a label there.

    With a Pinball loss, the quantiles of the answers.
    """
    if isinstance(loss, Pinball):
        order = answers[:, 0].argsort()
        below = np.cumsum(np.ones(len(order)) if weights is None else weights[order])
        return answers[order, 0][np.searchsorted(below, np.atleast_1d(loss.quantiles) * below[-1])]
    if not isinstance(loss, BinaryCrossEntropy) or loss.ignore_index is None:
        return np.average(answers, axis=0, weights=weights)  # labels that are ignored have zeros for probabilities
    own = (targets != loss.ignore_index) * (1.0 if weights is None else weights.reshape(-1, *[1] * (targets.ndim - 1)))
    return np.asarray((own * answers).sum(axis=0) / np.maximum(own.sum(axis=0), TINY))


def _scores(loss: Any, numbers: Doubles) -> Doubles:
    """Returns the scores of these answers."""
    if isinstance(loss, SoftmaxCrossEntropy):
        classes = np.array(by_channel("weight", loss.weight, numbers.shape[1:]) or 1.0)
        return np.log(np.maximum(classes.reshape(-1, *[1] * (numbers.ndim - 2)) * numbers, TINY))
    if isinstance(loss, BinaryCrossEntropy):
        clipped, shape = np.clip(numbers, TINY, 1 - TINY), numbers.shape[1:]
        positive = np.array(loss.by_channel("pos_weight", shape) or 1.0).reshape(-1, *[1] * (len(shape) - 1))
        return np.log(np.maximum(positive, TINY) * clipped / (1 - clipped))
    if isinstance(loss, Poisson):
        return np.log(np.maximum(numbers, TINY))
    return np.ascontiguousarray(numbers)
