"""Mixup: each batch of a fit is mixed with a permutation of itself (Zhang et al. 2018, arXiv:1710.09412).

A step's share lambda ~ Beta(alpha, alpha) and its permutation depend on the trainer's seed and the number of the step
alone, so they are the same for any number of threads and ranks, and after a resume.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidl.engine.network import Network
from minidl.losses import Loss
from minidl.training.steps import StepBatches
from minidl.utils.arrays import Array
from minidl.utils.data import ArraySource, Index
from minidl.utils.optional import needs
from minidl.utils.validation import Shape

STREAM = (
    1  # with seed and step: other random numbers than those of the order of an epoch, which has a seed of two numbers
)
GRID = 2.0**24  # a share is a multiple of 1 / GRID, which float32 holds exactly, and 1 - share as well


def draw(alpha: float, seed: int, step: int, size: int) -> tuple[float, Index]:
    """Returns the share of each example of a step in its mixture, at least 1/2, and its partner's position.

    Beta(alpha, alpha) is symmetric, and the inverse of a permutation is as probable: with the larger of lambda and
    1 - lambda, mixtures are as probable as with lambda, and each example dominates its own. NumPy may change its
    algorithm for beta variates, so the share is the quantile of a uniform number; rounded, it does not show
    the last bits of betaincinv, in which versions of SciPy may differ.
    """
    from scipy.special import betaincinv  # not before it is needed

    rng = np.random.default_rng([seed, step, STREAM])
    share = float(np.round(betaincinv(alpha, alpha, rng.random()) * GRID)) / GRID
    return max(share, 1 - share), rng.permutation(size)


def _steps(n: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def mixed(b: StepBatches, loss: Loss, shape: Shape, alpha: float, seed: int) -> StepBatches:
    """Returns these batches with mixed examples, targets and weights; shape: the shape of the model's outputs.

    A mixture has the weight W = share * weight_a + (1 - share) * weight_b, and the target that is the mean of both by
    these two terms: W times its loss is the sum of theirs with both targets, for a loss that is linear in the target
    (cross-entropies), and up to a constant for squared errors.
    """
    x, y = b.examples.gather_copy(b.rows), as_numbers(loss, b.targets[b.rows], shape)
    y = y.astype(b.losses.dtype if hasattr(loss, "numbers") else y.dtype)
    weights = None if b.weights is None else b.weights[b.rows]
    for k, here in enumerate(_steps(len(b.rows), b.batch_size)):
        share, partner = draw(alpha, seed, int(b.step_counter[0]) + k, b.batch_size)
        x[here] = share * x[here] + (1 - share) * x[here][partner]
        if weights is None:
            y[here] = share * y[here] + (1 - share) * y[here][partner]
        else:
            own, others = share * weights[here], (1 - share) * weights[here][partner]
            weights[here] = own + others
            y[here] = (_column(own, y) * y[here] + _column(others, y) * y[here][partner]) / _column(weights[here], y)
    examples = ArraySource(x, x.shape[1:], b.examples.dtype, missing=b.examples.missing)
    return replace(b, examples=examples, targets=y, weights=weights, rows=np.arange(len(x)))


def _column(numbers: Array, of: Array) -> Array:
    """Returns numbers (n,) in a shape that multiplies the rows of an array."""
    return numbers.reshape(-1, *[1] * (of.ndim - 1))


def mixed_weights(
    weights: NDArray[np.float64], size: int, alpha: float, seed: int, first_step: int
) -> NDArray[np.float64]:
    """Returns the weights of the mixed examples of some steps, which are `size` of the rows each."""
    out = np.empty_like(weights)
    for k, here in enumerate(_steps(len(weights), size)):
        share, partner = draw(alpha, seed, first_step + k, here.stop - here.start)
        out[here] = share * weights[here] + (1 - share) * weights[here][partner]
    return out


def as_numbers(loss: Any, targets: Array, shape: Shape) -> Array:
    """Returns targets as numbers, of which mixtures have a meaning, if the loss has any."""
    return loss.numbers(targets, shape) if hasattr(loss, "numbers") else targets


def check_mixable(network: Network, loss: Any, targets: Array) -> None:
    """Raises TypeError or ValueError unless the model takes mixtures of examples, and the loss those of targets."""
    with needs("scipy", "mixup"):
        import scipy.special  # noqa: F401
    if network.outputs is not None:
        several = ", ".join(network.outputs.shapes)
        raise ValueError(f"mixup: expected a model of one output, got {several}: their targets are not mixed")
    for layer, name in network.named:
        if layer.takes_categories:
            expected = f"expected a model without {type(layer).__name__}"
            raise ValueError(f"mixup: {expected}, got {name}: mixed categories are none")
    if getattr(loss, "ignore_index", None) is not None:
        raise ValueError(f"mixup: expected a loss without ignore_index, got {loss!r}: labels are mixed with others")
    kind = as_numbers(loss, targets[:1], network.out_shape).dtype
    if kind.kind != "f" and not (hasattr(loss, "numbers") and kind.kind == "b"):
        hint = "softmax_cross_entropy, or numbers for y, such as np.eye(classes)[y]"
        raise TypeError(f"mixup: expected a loss of numbers, got {kind} targets for {loss!r}; try {hint}")
