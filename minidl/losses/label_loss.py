"""LabelLoss: the base class of losses of labels, or of probabilities, at the positions of an example."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidl.losses.native import NativeLoss, as_float_targets
from minidl.utils.arrays import Array, check_array
from minidl.utils.constructors import readonly_argument
from minidl.utils.validation import MAX_INT64, Shape, check_int
from minidl_c.array_args import are_labels


class LabelLoss(NativeLoss):
    """A loss of outputs (classes, *positions), whose targets are labels or probabilities of the classes.

    A single score, (1, *positions), stands for the labels 0 and 1. See `SoftmaxCrossEntropy` and `Dice`.
    """

    classes = True
    applies = "Softmax"

    def __init__(self, ignore_index: int | None) -> None:
        self._ignore_index = check_ignored(ignore_index)

    ignore_index = readonly_argument("ignore_index")

    def targets(self, y: Any, shape: Shape, dtype: str) -> NDArray[Any]:
        """Returns targets as the op takes them: int64 or uint8 labels, or probabilities of the dtype.

        Parameters
        ----------
        y : array of shape (n, ...)
            Integer labels, one for each example or position, or numbers of the shape of the outputs.
        shape : tuple of int
            Shape of the model's output, without the batch axis.
        dtype : "float32" or "float64"
            The model's dtype.

        Returns
        -------
        array
            C-contiguous labels `(n, *shape[1:])` or probabilities `(n, *shape)`.

        Raises
        ------
        TypeError, ValueError
            For anything else, where the message names `y`; also for probabilities if labels are ignored.
        """
        array = check_array(y, "y")
        if array.ndim and array.shape[1:] == shape and array.dtype.kind in "biuf":
            if shape[0] > 1 or array.dtype.kind == "f":
                return self._as_probabilities(array, shape, dtype)
            array = array[:, 0]
        elif shape[0] == 1 and array.dtype.kind == "f":
            return self._as_probabilities(array, shape, dtype)
        return self.as_labels(array, shape)

    def as_labels(self, array: Array, shape: Shape) -> NDArray[Any]:
        """Returns y as int64 or uint8 labels of outputs of this shape.

        Parameters
        ----------
        array : array of shape (n, ...)
            Integer labels, one for each example or position.
        shape : tuple of int
            Shape of the model's output, without the batch axis.

        Returns
        -------
        array
            C-contiguous labels `(n, *shape[1:])`.

        Raises
        ------
        TypeError, ValueError
            For anything else; the message names `y`.
        """
        is_shaped, classes = array.ndim == len(shape) and array.shape[1:] == shape[1:], max(2, shape[0])
        if is_shaped and array.dtype == (np.int64 if len(shape) == 1 else np.uint8) and are_labels(array, classes):
            return array  # what most calls have: nothing is left to check
        if array.dtype == np.bool_:
            array = array.view(np.uint8)
        if array.dtype.kind not in "iu" and (is_shaped or array.dtype.kind != "f"):
            hint = "y.astype(int)" if array.dtype.kind == "f" else "np.unique(y, return_inverse=True)[1]"
            raise TypeError(f"y: expected integer labels, got dtype {array.dtype}; perhaps {hint}")
        if not is_shaped:
            one = "example" if len(shape) == 1 else "position"
            labels, numbers = _batch_of(shape[1:]), _batch_of(shape)
            expected = f"expected one label per {one}, shape {labels}, or probabilities of classes {numbers}"
            raise ValueError(f"y: {expected}, got {array.shape}{_hint(array, shape)}")
        self._check_range(array, classes)
        kind = np.uint8 if array.dtype == np.uint8 and len(shape) > 1 else np.int64
        return np.require(array, kind, ["C_CONTIGUOUS", "ALIGNED"])

    def labels(self, targets: Array, shape: Shape) -> Array:
        """Returns labels themselves; for probabilities, the classes of the highest one.

        Parameters
        ----------
        targets : array of shape (n, ...)
            What `targets` returned for outputs of this shape.
        shape : tuple of int
            Shape of the model's output, without the batch axis.

        Returns
        -------
        array of int
            One label for each example or position.
        """
        if targets.dtype.kind != "f":
            return targets
        return targets.argmax(axis=1) if shape[0] > 1 else (targets[:, 0] > 0.5).astype(np.int64)

    def numbers(self, targets: Array, shape: Shape) -> Array:
        """Returns probabilities themselves; for a label, 1 for its class and 0 for others; for one ignored, zeros.

        Parameters
        ----------
        targets : array of shape (n, ...)
            What `targets` returned for outputs of this shape.
        shape : tuple of int
            Shape of the model's output, without the batch axis.

        Returns
        -------
        array of shape (n, classes, ...)
            Numbers of the shape of the outputs.
        """
        if targets.dtype.kind == "f":
            return targets
        classes = np.arange(shape[0]) if shape[0] > 1 else np.ones(1, int)
        numbers: Array = targets[:, np.newaxis] == classes.reshape(-1, *[1] * (len(shape) - 1))
        return numbers if self.ignore_index is None else numbers & (targets != self.ignore_index)[:, np.newaxis]

    def _check_range(self, labels: Array, classes: int) -> None:
        """Raises ValueError unless all labels are those of classes, or ignored."""
        if labels.size and (labels.min() < 0 or labels.max() >= classes):
            used = labels if self.ignore_index is None else labels[labels != self.ignore_index]
            if not used.size or (used.min() >= 0 and used.max() < classes):
                return
            ignored = "" if self.ignore_index is None else f", or {self.ignore_index}"
            raise ValueError(
                f"y: expected labels from 0 to {classes - 1} (the model has {classes} outputs){ignored}, "
                f"got labels from {used.min()} to {used.max()}{self._range_hint(labels, used, classes)}"
            )

    def _range_hint(self, labels: Array, used: Array, classes: int) -> str:
        """Returns the remedy for labels that are not those of classes."""
        if used.min() == 0 and used.max() == 255 and np.isin(used, (0, 255)).all():
            return ": a mask of 0 and 255? perhaps y // 255"
        if used.min() == 1 and used.max() == classes:
            return ": y - 1 counts from 0"
        if self.ignore_index is None and labels.ndim > 1:
            return f": {type(self).__name__}(ignore_index=...) leaves out the positions of one label"
        return ""

    def _as_probabilities(self, array: Array, shape: Shape, dtype: str) -> NDArray[Any]:
        """Returns y as numbers of the dtype; raises ValueError unless they are finite and not negative."""
        targets = as_float_targets(array, shape, dtype)
        if self.ignore_index is not None:
            expected = f"expected labels with ignore_index={self.ignore_index}, {_batch_of(shape[1:])}"
            raise ValueError(f"y: {expected}, got probabilities {array.shape}, of which none is ignored")
        if targets.size and targets.min() < 0:
            raise ValueError(f"y: expected probabilities of at least 0, got {targets.min():g}")
        return targets


def check_ignored(ignore_index: Any) -> int | None:
    """Returns an int64, or None; raises TypeError or ValueError for anything else."""
    return None if ignore_index is None else check_int("ignore_index", ignore_index, -MAX_INT64 - 1)


def _batch_of(shape: Shape) -> str:
    """Returns the shape of a batch, with n examples, in words."""
    return f"({', '.join(map(str, ('n', *shape)))}{'' if shape else ','})"


def _hint(array: Array, shape: Shape) -> str:
    """Returns the remedy for a common mistake in the shape of labels, or an empty string."""
    if array.ndim == 2 and array.shape[1] == len(shape) == 1:
        return ": y.ravel()"
    if len(shape) > 1 and array.shape[1:] == (1, *shape[1:]):
        return ": y[:, 0]"
    if len(shape) > 1 and array.shape[1:] == (*shape[1:], shape[0]):
        return ": channels come first, np.moveaxis(y, -1, 1)"
    return ""
