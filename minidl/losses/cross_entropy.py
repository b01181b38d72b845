"""SoftmaxCrossEntropy: the loss of classifiers with one label per example."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidl.losses.native import NativeLoss
from minidl.utils.arrays import check_array
from minidl.utils.constructors import readonly_argument
from minidl.utils.validation import Shape, check_real
from minidl_c.losses.softmax_cross_entropy import SoftmaxCrossEntropyOp


class SoftmaxCrossEntropy(NativeLoss):
    """-log(p[y]) with p = softmax(x), for logits x (classes,) and integer labels y (n,) from 0 to classes - 1.

    label_smoothing: the fraction of every label that is spread over all classes (Szegedy et al., 2016).

    Raises TypeError or ValueError for a label_smoothing outside [0, 1].

    >>> losses, dscores = SoftmaxCrossEntropy()(np.zeros((1, 2)), np.array([0]))
    >>> round(losses[0], 4), dscores.tolist()
    (np.float64(0.6931), [[-0.5, 0.5]])
    """

    classes = True
    applies = "Softmax"

    def __init__(self, label_smoothing: float = 0.0) -> None:
        self._label_smoothing = check_real("label_smoothing", label_smoothing)
        if not 0 <= self._label_smoothing <= 1:
            raise ValueError(f"label_smoothing: expected a number in [0, 1], got {label_smoothing!r}")

    label_smoothing = readonly_argument("label_smoothing")

    def op(self, shape: Shape, dtype: str) -> SoftmaxCrossEntropyOp:
        return SoftmaxCrossEntropyOp(shape, self.label_smoothing, dtype)

    def targets(self, y: Any, shape: Shape, dtype: str) -> NDArray[np.int64]:
        """Returns y as int64 labels for scores of this shape; raises TypeError or ValueError for anything else."""
        if len(shape) != 1:
            raise ValueError(f"softmax_cross_entropy: expected a model with outputs (classes,), got {shape}")
        array = check_array(y, "y")
        if array.ndim == 2 and array.dtype.kind in "biuf":
            hint = {shape: ": for one-hot rows, y.argmax(axis=1)", (1,): ": np.ravel(y)"}.get(array.shape[1:], "")
            raise ValueError(f"y: expected one label per example, shape (n,), got {array.shape}{hint}")
        if array.dtype.kind not in "iu":
            hint = "y.astype(int)" if array.dtype.kind in "bf" else "np.unique(y, return_inverse=True)[1]"
            raise TypeError(f"y: expected integer labels, got dtype {array.dtype}; perhaps {hint}")
        if array.ndim != 1:
            raise ValueError(f"y: expected one label per example, shape (n,), got {array.shape}")
        if array.size and (array.min() < 0 or array.max() >= shape[0]):
            hint = ": y - 1 counts from 0" if array.min() == 1 and array.max() == shape[0] else ""
            raise ValueError(
                f"y: expected labels from 0 to {shape[0] - 1} (the model has {shape[0]} outputs), "
                f"got labels from {array.min()} to {array.max()}{hint}"
            )
        return np.require(array, np.int64, ["C_CONTIGUOUS", "ALIGNED"])
