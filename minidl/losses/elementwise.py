"""Losses that compare outputs with targets number by number. An example's loss is the mean over all of its outputs.

Outputs have any shape: (1,), (k,), or (c, h, w) of an autoencoder. Targets y are finite real numbers of that shape, of
any dtype; for outputs (1,) also of shape (n,). The mean over a batch is PyTorch's loss of that name, rounding apart.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from minidl.losses.native import NativeLoss, numbers
from minidl.utils.arguments import readonly_argument
from minidl.utils.arrays import Array
from minidl.utils.validation import Shape, check_normal_float
from minidl_c.losses.elementwise_losses import ElementwiseLossOp


class MeanSquaredError(NativeLoss):
    """(x - y)^2, the mean over an example's outputs x.

    >>> import numpy as np
    >>> losses, dscores = MeanSquaredError()(np.array([[1.0, 2.0]]), np.array([[0, 0]]))
    >>> losses.tolist(), dscores.tolist()
    ([2.5], [[1.0, 2.0]])
    """

    def op(self, shape: Shape, dtype: str) -> ElementwiseLossOp:
        return ElementwiseLossOp(shape, "mean_squared_error", dtype=dtype)


class MeanAbsoluteError(NativeLoss):
    """|x - y|, the mean over an example's outputs x. Its slope is 0 where x equals y."""

    def op(self, shape: Shape, dtype: str) -> ElementwiseLossOp:
        return ElementwiseLossOp(shape, "mean_absolute_error", dtype=dtype)


class Huber(NativeLoss):
    """d^2 / 2 for errors |d| = |x - y| up to delta, beyond it delta (|d| - delta / 2) (Huber, 1964).

    The mean over an example's outputs x; an outlier pulls no harder than an error of delta.

    Raises TypeError or ValueError for a delta that is not a number above 0, as float32 has it: at least 1.2e-38.
    """

    def __init__(self, delta: float = 1.0) -> None:
        self._delta = check_normal_float("delta", delta, "float64")

    delta = readonly_argument("delta")

    def op(self, shape: Shape, dtype: str) -> ElementwiseLossOp:
        return ElementwiseLossOp(shape, "huber", self.delta, dtype)


class BinaryCrossEntropy(NativeLoss):
    """-y log(p) - (1 - y) log(1 - p) with p = sigmoid(x), the mean over an example's logits x: finite for all of them.

    y: labels 0 and 1 (or False and True), or probabilities; for outputs (k,) of k independent questions, (n, k).
    """

    classes = True
    applies = "Sigmoid"

    def op(self, shape: Shape, dtype: str) -> ElementwiseLossOp:
        return ElementwiseLossOp(shape, "binary_cross_entropy", dtype=dtype)

    def targets(self, y: Any, shape: Shape, dtype: str) -> NDArray[Any]:
        found = numbers(y, shape, dtype)
        least, most = _ends(found)
        if least < 0 or most > 1:
            hints = {(-1.0, 1.0): ": (y + 1) / 2", (1.0, 2.0): ": y - 1", (0.0, 255.0): ": y / 255"}
            got = f"got numbers from {least:g} to {most:g}{hints.get((least, most), '')}"
            raise ValueError(f"y: expected labels 0 and 1, or probabilities from 0 to 1, {got}")
        return found


class Poisson(NativeLoss):
    """exp(x) - y x, for counts y, the mean over an example's outputs x, which are logarithms of rates.

    It is -log(likelihood) without log(y!), which does not depend on x. y: numbers of at least 0.
    """

    def op(self, shape: Shape, dtype: str) -> ElementwiseLossOp:
        return ElementwiseLossOp(shape, "poisson", dtype=dtype)

    def targets(self, y: Any, shape: Shape, dtype: str) -> NDArray[Any]:
        found = numbers(y, shape, dtype)
        if _ends(found)[0] < 0:
            raise ValueError(f"y: expected counts, numbers of at least 0, got {_ends(found)[0]:g}")
        return found


def _ends(values: Array) -> tuple[float, float]:
    """The least and the largest number; 0 and 0 of none."""
    return (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
