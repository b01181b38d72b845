"""NativeLoss: a loss with a kernel, which runs inside the training plan."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidl.utils.arrays import Array, as_array, as_dtype, as_floats, check_array
from minidl.utils.constructors import constructor_repr
from minidl.utils.validation import Shape
from minidl_c.op import Op
from minidl_c.runtime.single_op import loss_batch


class NativeLoss:
    """Base class of losses with an op: the built-in ones, and your own with a kernel in your .pyx.

    A subclass implements `op`, and also `targets` unless there is one number as target for each output. An op with
    `n_target` 0 (minidl_c/op.h) takes labels, any other op `n_target` numbers per example, or `n_labels` labels. The
    plan trains with these two. Calling the loss returns the same bits: the loss of each example and its gradient,
    unweighted.
    """

    applies = ""  # the layer that the loss includes: a model must not end in it as well
    classes = False  # whether integers in y are class labels, by which a validation split is stratified

    def __repr__(self) -> str:
        return constructor_repr(self)

    def op(self, shape: Shape, dtype: str) -> Op:
        """Returns the loss of outputs of this shape, as the last op of a plan."""
        raise NotImplementedError(f"{type(self).__name__}: a native loss must define op(self, shape, dtype)")

    def targets(self, y: Any, shape: Shape, dtype: str) -> NDArray[Any]:
        """Returns y for the op, C-contiguous: values (n, *shape) of the dtype, or int64 or uint8 labels (n, ...).

        Raises TypeError or ValueError, naming y, for invalid targets. Valid results are returned unchanged when they
        are passed again.
        """
        return as_float_targets(y, shape, dtype)

    def labels(self, targets: Array, shape: Shape) -> Array:
        """Returns targets, as `targets` returned them for outputs of this shape, as "accuracy" takes them."""
        return targets

    def numbers(self, targets: Array, shape: Shape) -> Array:
        """Returns targets, as `targets` returned them, as numbers (n, *shape), of which a mean has a meaning."""
        return targets

    def __call__(self, scores: Array, y: Array) -> tuple[Array, Array]:
        """Returns the loss of each example (n,), and its gradient (n, *shape). Raises as `targets`."""
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


def as_float_targets(y: Any, shape: Shape, dtype: str) -> NDArray[Any]:
    """Returns y as finite values (n, *shape) of the dtype; for a single output, y may have shape (n,)."""
    array = as_array(y, "y")
    if shape == (1,) and array.ndim == 1:
        array = array[:, np.newaxis]
    if array.shape[1:] != shape:
        expected = f"({', '.join(map(str, ('n', *shape)))}), that of the model's outputs"
        raise ValueError(f"y: expected shape {expected}, got {array.shape}{_shape_hint(array, shape)}")
    targets = as_dtype(array, dtype, "y")
    if not np.isfinite(targets).all():
        bad = ~np.isfinite(targets).reshape(len(targets), -1).all(axis=1)
        raise ValueError(f"y: expected finite values, got NaN or infinity (first in example {bad.argmax()})")
    return targets


def _shape_hint(array: Array, shape: Shape) -> str:
    """Returns the remedy for a common mistake in the shape, or an empty string."""
    if len(shape) == 3 and array.shape[1:] == (*shape[1:], shape[0]):
        return ": channels come first, y.transpose(0, 3, 1, 2)"
    if array.ndim > 1 and array[:1].size == np.prod(shape):
        return f": y.reshape(-1, {', '.join(map(str, shape))})"
    if array.ndim == 1 and array.dtype.kind in "iub" and len(shape) == 1:
        return ": labels are for softmax_cross_entropy"
    return ""
