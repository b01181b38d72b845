"""NativeLoss: a loss with a kernel, which runs inside the training plan."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidl.utils.arrays import Array, as_array, as_dtype, as_floats, check_array
from minidl.utils.constructors import constructor_repr
from minidl.utils.validation import Shape
from minidl_c.array_args import is_readable
from minidl_c.op import Op
from minidl_c.runtime.single_op import loss_batch


class NativeLoss:
    """Base class of losses with an op: the built-in ones, and your own with a kernel in your .pyx.

    A subclass implements `op`, and also `targets` unless there is one number as target for each output. The plan trains
    with these two. Calling a loss, `loss(scores, y)`, returns the same bits: the loss of each example (n,) and its
    gradient `(n, *shape)`, unweighted.

    Attributes
    ----------
    applies : str
        Name of the layer that the loss includes: "Softmax" or "Sigmoid", by which `predict_proba` of a Trainer makes
        probabilities of scores; "" if there is none. A model must not end in it as well.
    classes : bool
        Whether whole numbers and one-hot rows in y are class labels, by which a validation split is stratified.

    Notes
    -----
    An op with `n_target` 0 (minidl_c/op.h) takes labels, any other op `n_target` numbers per example, or `n_labels`
    labels.

    Examples
    --------
    A loss with the op of another one, and targets that are limited to the interval from 0 to 1:

    >>> import numpy as np
    >>> from minidl.losses import MeanSquaredError, NativeLoss
    >>> class ClippedError(NativeLoss):
    ...     def op(self, shape, dtype):
    ...         return MeanSquaredError().op(shape, dtype)
    ...     def targets(self, y, shape, dtype):
    ...         return np.clip(super().targets(y, shape, dtype), 0, 1)
    >>> losses, dscores = ClippedError()(np.zeros((2, 1)), np.array([0.5, 100.0]))
    >>> losses.tolist(), dscores.tolist()
    ([0.25, 1.0], [[-1.0], [-2.0]])
    """

    applies = ""  # the layer that the loss includes, and that makes probabilities of scores
    classes = False  # whether whole numbers and one-hot rows in y are class labels

    def __repr__(self) -> str:
        return constructor_repr(self)

    def op(self, shape: Shape, dtype: str) -> Op:
        """Returns the loss of outputs of one shape, as the last op of a plan.

        Parameters
        ----------
        shape : tuple of int
            Shape of the model's output, without the batch axis.
        dtype : "float32" or "float64"
            The model's dtype.

        Returns
        -------
        minidl_c.op.Op
            A new op.
        """
        raise NotImplementedError(f"{type(self).__name__}: a native loss must define op(self, shape, dtype)")

    def targets(self, y: Any, shape: Shape, dtype: str) -> NDArray[Any]:
        """Returns targets as the op takes them.

        Valid results are returned unchanged when they are passed again.

        Parameters
        ----------
        y : array of shape (n, ...)
            Targets as the user passed them.
        shape : tuple of int
            Shape of the model's output, without the batch axis.
        dtype : "float32" or "float64"
            The model's dtype.

        Returns
        -------
        array
            C-contiguous values `(n, *shape)` of the dtype, or int64 or uint8 labels (n, ...).

        Raises
        ------
        TypeError, ValueError
            For invalid targets; the message names `y`.
        """
        return as_float_targets(y, shape, dtype)

    def labels(self, targets: Array, shape: Shape) -> Array:
        """Returns targets as the metric "accuracy" takes them.

        Parameters
        ----------
        targets : array of shape (n, ...)
            What `targets` returned for outputs of this shape.
        shape : tuple of int
            Shape of the model's output, without the batch axis.

        Returns
        -------
        array of shape (n, ...)
            Labels, if the targets are those of classes; otherwise the targets themselves.
        """
        return targets

    def numbers(self, targets: Array, shape: Shape) -> Array:
        """Returns targets as numbers of which a mean has a meaning.

        Parameters
        ----------
        targets : array of shape (n, ...)
            What `targets` returned for outputs of this shape.
        shape : tuple of int
            Shape of the model's output, without the batch axis.

        Returns
        -------
        array of shape (n, ...)
            Numbers `(n, *shape)`: the targets themselves, unless they are labels.
        """
        return targets

    def __call__(self, scores: Array, y: Array) -> tuple[Array, Array]:
        """Returns the loss of each example and its gradient.

        Parameters
        ----------
        scores : array of shape (n, ...)
            Outputs of a model, float32 or float64.
        y : array of shape (n, ...)
            Targets.

        Returns
        -------
        losses : array of shape (n,)
            The loss of each example, unweighted.
        dscores : array of the shape of scores
            Row i is the gradient of `losses[i]`.

        Raises
        ------
        TypeError, ValueError
            For invalid scores, and as `targets`.
        """
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
    """Returns y as finite values (n, *shape) of the dtype; for a single score, (1, ...), y may have shape (n, ...)."""
    array = as_array(y, "y")
    if shape[:1] == (1,) and array.ndim and array.shape[1:] == shape[1:]:
        array = array[:, np.newaxis]
    if array.shape[1:] != shape:
        expected = f"({', '.join(map(str, ('n', *shape)))}), that of the model's outputs"
        raise ValueError(f"y: expected shape {expected}, got {array.shape}{_shape_hint(array, shape)}")
    if is_readable(array, dtype):  # what most calls have: nothing is left to check
        return array.astype(dtype, copy=False)
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
