"""Element-wise losses of outputs and targets. The loss of an example is the mean over all of its outputs.

Outputs have any shape: (1,), (k,), or (c, h, w) of an autoencoder. Targets y are finite real numbers of that shape and
any dtype; for outputs (1,) also of shape (n,). The mean over a batch is PyTorch's loss of that name, up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidl.losses.native import NativeLoss, as_float_targets
from minidl.utils.arrays import Array
from minidl.utils.constructors import readonly_argument
from minidl.utils.validation import Shape, check_non_negative, check_normal_float
from minidl_c.losses.elementwise_losses import ElementwiseLossOp

Weights = float | Sequence[float] | None


class MeanSquaredError(NativeLoss):
    """(x - y)^2, averaged over an example's outputs x.

    >>> import numpy as np
    >>> losses, dscores = MeanSquaredError()(np.array([[1.0, 2.0]]), np.array([[0, 0]]))
    >>> losses.tolist(), dscores.tolist()
    ([2.5], [[1.0, 2.0]])
    """

    def op(self, shape: Shape, dtype: str) -> ElementwiseLossOp:
        return ElementwiseLossOp(shape, "mean_squared_error", dtype=dtype)


class MeanAbsoluteError(NativeLoss):
    """|x - y|, averaged over an example's outputs x. The derivative is 0 where x equals y."""

    def op(self, shape: Shape, dtype: str) -> ElementwiseLossOp:
        return ElementwiseLossOp(shape, "mean_absolute_error", dtype=dtype)


class Huber(NativeLoss):
    """d^2 / 2 for errors |d| = |x - y| up to delta, and delta (|d| - delta / 2) beyond (Huber, 1964).

    Averaged over an example's outputs x. The gradient of an outlier is no larger than that of an error of delta.

    Raises TypeError or ValueError unless delta is a number above 0, large enough for float32: at least 1.2e-38.
    """

    def __init__(self, delta: float = 1.0) -> None:
        self._delta = check_normal_float("delta", delta, "float64")

    delta = readonly_argument("delta")

    def op(self, shape: Shape, dtype: str) -> ElementwiseLossOp:
        return ElementwiseLossOp(shape, "huber", self.delta, dtype)


class BinaryCrossEntropy(NativeLoss):
    """-y log(p) - (1 - y) log(1 - p) with p = sigmoid(x), averaged over an example's logits x; finite for all of them.

    y: labels 0 and 1 (or False and True), or probabilities. For outputs (k,), k independent labels: (n, k).
    pos_weight: multiplies the first term, for rare labels 1; above 1 it raises recall (torch.nn.BCEWithLogitsLoss).
    output_weight: multiplies the losses of an output; the divisor of the mean remains the number of outputs.
    Both: one number for all outputs, or a sequence with one for each: for outputs (c, h, w), one for each channel.

    Raises TypeError or ValueError for weights that are not finite numbers of at least 0 (float32), and with a model
    whose outputs have another number of channels.
    """

    classes = True
    applies = "Sigmoid"

    def __init__(self, pos_weight: Weights = None, output_weight: Weights = None) -> None:
        self._pos_weight = _check_weights("pos_weight", pos_weight)
        self._output_weight = _check_weights("output_weight", output_weight)

    pos_weight = readonly_argument("pos_weight")
    output_weight = readonly_argument("output_weight")

    def op(self, shape: Shape, dtype: str) -> ElementwiseLossOp:
        positive, weight = self.by_channel("pos_weight", shape), self.by_channel("output_weight", shape)
        return ElementwiseLossOp(shape, "binary_cross_entropy", dtype=dtype, pos_weight=positive, weight=weight)

    def by_channel(self, name: str, shape: Shape) -> tuple[float, ...] | None:
        """Returns pos_weight or output_weight with a number for each channel of outputs of this shape; None: ones.

        Raises ValueError if their number is another.
        """
        weights = getattr(self, name)
        if isinstance(weights, float):
            return (weights,) * shape[0]
        if weights is not None and len(weights) != shape[0]:
            raise ValueError(f"{name}: expected a number, or {shape[0]} for outputs {shape}, got {len(weights)}")
        return None if weights is None else tuple(weights)

    def targets(self, y: Any, shape: Shape, dtype: str) -> NDArray[Any]:
        for name in ("pos_weight", "output_weight"):
            self.by_channel(name, shape)
        targets = as_float_targets(y, shape, dtype)
        minimum, maximum = _min_max(targets)
        if minimum < 0 or maximum > 1:
            hints = {(-1.0, 1.0): ": (y + 1) / 2", (1.0, 2.0): ": y - 1", (0.0, 255.0): ": y / 255"}
            got = f"got values from {minimum:g} to {maximum:g}{hints.get((minimum, maximum), '')}"
            raise ValueError(f"y: expected labels 0 and 1, or probabilities from 0 to 1, {got}")
        return targets


class Poisson(NativeLoss):
    """exp(x) - y x, for counts y, averaged over an example's outputs x, which are logarithms of rates.

    This is the negative log-likelihood without log(y!), which does not depend on x. y: values of at least 0.
    """

    def op(self, shape: Shape, dtype: str) -> ElementwiseLossOp:
        return ElementwiseLossOp(shape, "poisson", dtype=dtype)

    def targets(self, y: Any, shape: Shape, dtype: str) -> NDArray[Any]:
        targets = as_float_targets(y, shape, dtype)
        minimum, _ = _min_max(targets)
        if minimum < 0:
            raise ValueError(f"y: expected counts of at least 0, got {minimum:g}")
        return targets


def _check_weights(name: str, weights: Any) -> Weights:
    """Returns a number, or several as a tuple; raises TypeError or ValueError unless all are finite and at least 0."""
    if weights is None:
        return None
    if isinstance(weights, np.ndarray) and weights.ndim == 1:
        weights = weights.tolist()
    if not isinstance(weights, (tuple, list)):
        return check_non_negative(name, weights, "float32")
    if not weights:
        raise ValueError(f"{name}: expected at least one number, got none")
    return tuple(check_non_negative(name, weight, "float32") for weight in weights)


def _min_max(values: Array) -> tuple[float, float]:
    """Returns the smallest and the largest value; 0 and 0 if there are none."""
    return (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
