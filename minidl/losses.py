"""Losses: functions of scores and targets that return the loss of each example, and its gradient.

`loss(scores, y) -> (losses (n,), dscores)`, row i of dscores being the gradient of losses[i]; nothing is averaged, and
weights are not a loss's business. Any function of that kind is a loss; one that also brings an op (`op`, `targets`)
runs inside the training plan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidl.arrays import Array, as_array, as_dtype, as_floats, unmasked
from minidl.layer import Shape
from minidl_c.op import Op
from minidl_c.softmax_cross_entropy import (
    SoftmaxCrossEntropyOp,
    softmax,
    softmax_cross_entropy_backward,
    softmax_cross_entropy_forward,
)

Loss = Callable[[Array, Array], tuple[Array, Array]]


class SoftmaxCrossEntropy:
    """Cross-entropy of softmax(scores) with integer labels, from logits: finite for scores of any finite size.

    scores (n, classes) float32 or float64; y (n,) integers from 0 to classes - 1.

    >>> losses, dscores = softmax_cross_entropy(np.zeros((1, 2)), np.array([0]))
    >>> round(losses[0], 4), dscores.tolist()
    (np.float64(0.6931), [[-0.5, 0.5]])
    """

    def __call__(self, scores: Array, y: Array) -> tuple[Array, Array]:
        """The loss of each example (n,), and its gradient (n, classes). Raises as `targets`."""
        scores = as_floats(scores, "scores")
        labels = unmasked(y, "y")
        if scores.shape[:1] != labels.shape[:1]:
            raise ValueError(f"y: expected a label for each row of scores {scores.shape}, got shape {labels.shape}")
        labels = self.targets(labels, scores.shape[1:])
        losses, dscores = np.empty(len(scores), scores.dtype), np.empty_like(scores)
        softmax_cross_entropy_forward(scores, labels, losses)
        softmax_cross_entropy_backward(scores, labels, None, dscores)
        return losses, dscores

    def op(self, shape: Shape, dtype: str) -> Op:
        """The loss as the last op of a plan."""
        return SoftmaxCrossEntropyOp(shape, dtype)

    def targets(self, y: Any, shape: Shape) -> NDArray[np.int64]:
        """y as int64 labels of scores of this shape; raises TypeError or ValueError for anything else."""
        if len(shape) != 1:
            raise ValueError(f"softmax_cross_entropy: expected a model with outputs (classes,), got {shape}")
        array = unmasked(y, "y")
        if array.dtype.kind not in "iu":
            hint = "y.astype(int)" if array.dtype.kind in "bf" else "np.unique(y, return_inverse=True)[1]"
            raise TypeError(f"y: expected integer labels, got dtype {array.dtype}; perhaps {hint}")
        if array.ndim != 1:
            one_hot = ": of one-hot rows, y.argmax(axis=1)" if array.shape[1:] == shape else ""
            raise ValueError(f"y: expected one label an example, shape (n,), got {array.shape}{one_hot}")
        if array.size and (array.min() < 0 or array.max() >= shape[0]):
            shifted = ": y - 1 counts from 0" if array.min() == 1 and array.max() == shape[0] else ""
            raise ValueError(
                f"y: expected labels from 0 to {shape[0] - 1} (the model has {shape[0]} outputs), "
                f"got labels from {array.min()} to {array.max()}{shifted}"
            )
        return np.require(array, np.int64, ["C_CONTIGUOUS", "ALIGNED"])


softmax_cross_entropy = SoftmaxCrossEntropy()

NAMES: dict[str, Loss] = {"softmax_cross_entropy": softmax_cross_entropy}


def get(loss: str | Loss) -> Loss:
    """The loss of that name, or the function itself; raises ValueError or TypeError for anything else."""
    if isinstance(loss, str):
        if loss not in NAMES:
            raise ValueError(f"loss: expected one of {sorted(NAMES)} or a function, got {loss!r}")
        return NAMES[loss]
    if not callable(loss):
        raise TypeError(f"loss: expected a name or a function, got {loss!r}")
    return loss


def checked_loss(loss: Loss, scores: Array, targets: Array) -> tuple[Array, Array]:
    """What a loss returns for scores that it must not write into; raises TypeError or ValueError for anything else."""
    seen = scores.view()
    seen.flags.writeable = False
    returned = loss(seen, targets)
    if not isinstance(returned, (tuple, list)) or len(returned) != 2:
        raise TypeError(f"loss: expected it to return (losses, dscores), got {type(returned).__name__}")
    losses, dscores = as_array(returned[0], "loss: losses"), as_array(returned[1], "loss: dscores")
    if losses.shape != scores.shape[:1] or dscores.shape != scores.shape:
        raise ValueError(
            f"loss: expected losses of shape {scores.shape[:1]} and dscores of shape {scores.shape}, "
            f"got {losses.shape} and {dscores.shape}"
        )
    return losses, as_dtype(dscores, scores.dtype.name, "loss: dscores")


def probabilities(scores: Array) -> Array:
    """softmax(scores), row by row: (n, classes), in the dtype of scores."""
    scores = as_floats(scores, "scores")
    if scores.ndim != 2:
        raise ValueError(f"scores: expected shape (n, classes), got {scores.shape}")
    out = np.empty_like(scores)
    softmax(scores, out)
    return out
