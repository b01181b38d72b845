"""Mixing: each batch of a fit is mixed with a permutation of itself, by mixup or CutMix.

mixup (Zhang et al. 2018, arXiv:1710.09412) adds two examples, CutMix (Yun et al. 2019, arXiv:1905.04899) pastes a box
of one image into another. What a step draws depends on the trainer's seed and the number of the step alone, so it is
the same for any number of threads and ranks, and after a resume.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

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
GRID = 2.0**24  # a lambda is a multiple of 1 / GRID, which float32 holds exactly, and 1 - lambda as well
SWITCH = 0.5  # the probability that a step of a fit with both cuts, as switch_prob of timm


class Mixture(NamedTuple):
    """How the examples of a step are mixed."""

    share: float  # of each example in its own mixture, at least 1/2
    partner: Index  # the position of the other example of each mixture
    kept: NDArray[np.bool_] | None  # (size,) the numbers of X that are the example's own; None: each is a mean of both


@dataclass(frozen=True)
class Mixing:
    """What mixes the examples of a fit.

    mixup, cutmix: alpha of each, 0: without it. seed: that of the trainer. shape: that of an example.
    """

    mixup: float
    cutmix: float
    seed: int
    shape: Shape

    def draw(self, step: int, size: int) -> Mixture:
        """Returns the mixture of the examples of a step.

        Beta(alpha, alpha) is symmetric, and the inverse of a permutation is as probable: where lambda, or the area that
        a box leaves, is less than 1/2, both examples change places. Mixtures are as probable as without that, and each
        example dominates its own. NumPy may change its algorithm for beta variates, so lambda is the quantile of a
        uniform number; rounded, it does not show the last bits of betaincinv, in which versions of SciPy may differ.
        """
        from scipy.special import betaincinv  # not before it is needed

        rng = np.random.default_rng([self.seed, step, STREAM])
        quantile, partner = rng.random(), rng.permutation(size)
        cuts = self.cutmix > 0 and (not self.mixup or rng.random() < SWITCH)
        alpha = self.cutmix if cuts else self.mixup
        share = float(np.round(betaincinv(alpha, alpha, quantile) * GRID)) / GRID
        if not cuts:
            return Mixture(max(share, 1 - share), partner, None)
        kept = _outside_box(1 - share, self.shape[1:], rng.random(len(self.shape) - 1))
        if kept.mean() < 0.5:
            kept = ~kept
        return Mixture(float(kept.mean()), partner, np.broadcast_to(kept, self.shape).reshape(-1))


def _outside_box(area: float, shape: Shape, centre: Array) -> NDArray[np.bool_]:
    """Returns which pixels a box leaves that has a part `area` of an image, if no border cuts it.

    Its sides are even, as in the authors' code and in torchvision. An axis of one pixel is in it as a whole. centre:
    a uniform number for each axis.
    """
    ratio = math.sqrt(area) if min(shape) > 1 and len(shape) > 1 else area
    sides = []
    for n, number in zip(shape, centre, strict=True):
        middle, half = int(number * n), n if n == 1 else int(ratio * n / 2)
        sides.append(slice(max(middle - half, 0), middle + half))
    kept = np.ones(shape, np.bool_)
    kept[tuple(sides)] = False
    return kept


def _steps(n: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def mixed(b: StepBatches, loss: Loss, shape: Shape, mixing: Mixing) -> StepBatches:
    """Returns these batches with mixed examples, targets and weights; shape: the shape of the model's outputs.

    A mixture has the weight W = share * weight_a + (1 - share) * weight_b, and the target that is the mean of both by
    these two terms: W times its loss is the sum of theirs with both targets, for a loss that is linear in the target
    (cross-entropies), and up to a constant for squared errors.
    """
    x, y = b.examples.gather_copy(b.rows), as_numbers(loss, b.targets[b.rows], shape)
    y = y.astype(b.losses.dtype if hasattr(loss, "numbers") else y.dtype)
    weights = None if b.weights is None else b.weights[b.rows]
    for k, here in enumerate(_steps(len(b.rows), b.batch_size)):
        share, partner, kept = mixing.draw(int(b.step_counter[0]) + k, b.batch_size)
        other = x[here][partner]
        x[here] = share * x[here] + (1 - share) * other if kept is None else np.where(kept, x[here], other)
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


def mixed_weights(weights: NDArray[np.float64], size: int, mixing: Mixing, first_step: int) -> NDArray[np.float64]:
    """Returns the weights of the mixed examples of some steps, which are `size` of the rows each."""
    out = np.empty_like(weights)
    for k, here in enumerate(_steps(len(weights), size)):
        share, partner, _ = mixing.draw(first_step + k, here.stop - here.start)
        out[here] = share * weights[here] + (1 - share) * weights[here][partner]
    return out


def as_numbers(loss: Any, targets: Array, shape: Shape) -> Array:
    """Returns targets as numbers, of which mixtures have a meaning, if the loss has any."""
    return loss.numbers(targets, shape) if hasattr(loss, "numbers") else targets


def check_mixable(name: str, network: Network, loss: Any, targets: Array) -> None:
    """Raises TypeError or ValueError unless the model takes mixtures of examples, and the loss those of targets.

    name: of the argument, in errors.
    """
    with needs("scipy", name):
        import scipy.special  # noqa: F401
    if network.outputs is not None:
        several = ", ".join(network.outputs.shapes)
        raise ValueError(f"{name}: expected a model of one output, got {several}: their targets are not mixed")
    for layer, where in network.named:
        if layer.takes_categories:
            expected = f"expected a model without {type(layer).__name__}"
            raise ValueError(f"{name}: {expected}, got {where}: mixed categories are none")
    if getattr(loss, "ignore_index", None) is not None:
        raise ValueError(f"{name}: expected a loss without ignore_index, got {loss!r}: labels are mixed with others")
    kind = as_numbers(loss, targets[:1], network.out_shape).dtype
    if kind.kind != "f" and not (hasattr(loss, "numbers") and kind.kind == "b"):
        hint = "softmax_cross_entropy, or numbers for y, such as np.eye(classes)[y]"
        raise TypeError(f"{name}: expected a loss of numbers, got {kind} targets for {loss!r}; try {hint}")


def check_cuttable(shape: Shape, out_shape: Shape) -> None:
    """Raises ValueError unless boxes can be cut from examples of this shape, and their outputs have no pixels."""
    narrowest = min((n for n in shape[1:] if n > 1), default=1)
    if len(shape) not in (2, 3) or narrowest < 3:  # a box of an even number of pixels less than 2 is none
        kinds = "images (channels, height, width) or signals (channels, length)"
        sides = "sides of at least three pixels (one may have one)"
        raise ValueError(f"cutmix: expected {kinds} with {sides}, got examples of shape {shape}")
    if len(out_shape) > 1:
        expected = "expected a model of one axis of outputs"
        raise ValueError(f"cutmix: {expected}, got outputs of shape {out_shape}: targets of pixels are not cut")
