"""NativeLoss: a loss whose arithmetic is a kernel, so that it runs inside the training plan."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidl.utils.arguments import constructor_repr
from minidl.utils.arrays import Array, as_array, as_dtype, as_floats, check_array
from minidl.utils.validation import Shape
from minidl_c.op import Op
from minidl_c.runtime.single_op import loss_batch


class NativeLoss:
    """A loss that brings an op. Ours derive from it, and so may yours, whose kernel is in a .pyx of your own.

    `op` is what it has to write; `targets`, where its targets are anything but one number for each output. An op of
    `n_target` 0 (minidl_c/op.h) gets labels, any other so many numbers for each example. From these two the plan
    trains, and calling the loss gives the same bits: the loss of each example and its gradient, unweighted.
    """

    applies = ""  # the layer whose work it does: a model that ends in one would do it twice
    classes = False  # whether integers in y are labels of classes, which a validation split keeps in proportion

    def __repr__(self) -> str:
        return constructor_repr(self)

    def op(self, shape: Shape, dtype: str) -> Op:
        """The loss of outputs of this shape as the last op of a plan."""
        raise NotImplementedError(f"{type(self).__name__}: a native loss writes op(self, shape, dtype)")

    def targets(self, y: Any, shape: Shape, dtype: str) -> NDArray[Any]:
        """y as the op wants it, C-contiguous: numbers (n, *shape) of the dtype; a loss of labels: int64 (n,).

        Raises TypeError or ValueError, naming y, for what the loss cannot learn from. What it returns comes back
        unchanged when it is given again.
        """
        return numbers(y, shape, dtype)

    def __call__(self, scores: Array, y: Array) -> tuple[Array, Array]:
        """The loss of each example (n,), and its gradient (n, *shape). Raises as `targets`."""
        scores, targets = as_floats(scores, "scores"), check_array(y, "y")
        if scores.ndim < 2:
            raise ValueError(f"scores: expected rows of outputs, shape (n, ...), got {scores.shape}")
        if scores.shape[:1] != targets.shape[:1]:
            raise ValueError(f"y: expected a target for each row of scores {scores.shape}, got shape {targets.shape}")
        shape, dtype = scores.shape[1:], scores.dtype.name
        targets = self.targets(targets, shape, dtype)
        losses, dscores = np.empty(len(scores), scores.dtype), np.empty_like(scores)
        loss_batch(self.op(shape, dtype), scores, targets, losses, dscores)
        return losses, dscores


def numbers(y: Any, shape: Shape, dtype: str) -> NDArray[Any]:
    """y as numbers (n, *shape) of the dtype, all finite; of one output, y (n,) will do."""
    array = as_array(y, "y")
    if shape == (1,) and array.ndim == 1:
        array = array[:, np.newaxis]
    if array.shape[1:] != shape:
        expected = f"({', '.join(map(str, ('n', *shape)))}), that of the model's outputs"
        raise ValueError(f"y: expected shape {expected}, got {array.shape}{_hint(array, shape)}")
    found = as_dtype(array, dtype, "y")
    if not np.isfinite(found).all():
        bad = ~np.isfinite(found).reshape(len(found), -1).all(axis=1)
        raise ValueError(f"y: expected finite numbers, got NaN or infinity (first in example {bad.argmax()})")
    return found


def _hint(array: Array, shape: Shape) -> str:
    """What to do about a shape that is wrong in one of the usual ways."""
    if len(shape) == 3 and array.shape[1:] == (*shape[1:], shape[0]):
        return ": channels come first, y.transpose(0, 3, 1, 2)"
    if array.ndim > 1 and array[:1].size == np.prod(shape):
        return f": y.reshape(-1, {', '.join(map(str, shape))})"
    if array.ndim == 1 and array.dtype.kind in "iub" and len(shape) == 1:
        return ": labels are for softmax_cross_entropy"
    return ""
