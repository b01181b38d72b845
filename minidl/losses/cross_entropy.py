"""SoftmaxCrossEntropy: the loss of classifiers of examples, or of the positions of a signal or an image."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidl.losses.native import NativeLoss, as_float_targets
from minidl.utils.arrays import Array, check_array
from minidl.utils.constructors import readonly_argument
from minidl.utils.validation import MAX_INT64, Shape, check_int, check_real
from minidl_c.array_args import are_labels
from minidl_c.losses.softmax_cross_entropy import SoftmaxCrossEntropyOp


class SoftmaxCrossEntropy(NativeLoss):
    """Cross-entropy of classes, which includes a softmax: the loss of classifiers.

    Computes `-log(p[y])` with `p = softmax(x)`, for logits x and labels y from 0 to classes - 1, or
    `-sum y[k] log(p[k])` for probabilities y of the classes. It stays finite for large logits.

    Outputs have the shape (classes,), with a label for each example, or (classes, length), (classes, h, w) and so on,
    with a label for each position. The loss of an example is the mean over its positions. There are at least two
    classes; a single score is for `BinaryCrossEntropy`.

    Targets are integer labels (n,), (n, length), (n, h, w); uint8 labels of positions are read without a copy. Or they
    are numbers of the shape of the outputs, (n, classes), (n, classes, h, w): probabilities of the classes, which need
    not add up to 1. They are finite and at least 0.

    Parameters
    ----------
    label_smoothing : float, default 0.0
        Fraction of every target, from 0 to 1, that is spread over all classes.
    ignore_index : int or None, default None
        Label of positions that are left out. The loss and the gradient of an example without any other label are 0, and
        a step is not divided by it; in the mean of losses it counts as 0.

    Raises
    ------
    TypeError, ValueError
        For a `label_smoothing` outside [0, 1], or an `ignore_index` that is not an int64.

    Notes
    -----
    As gradients are those of single examples, the mean over a batch is one of means: an example with few positions that
    count has as much weight as any other. `torch.nn.CrossEntropyLoss` divides by the number of such positions in the
    batch; the two are equal if it is the same in all examples. A `sample_weight` of that number for each counts every
    position equally.

    References
    ----------
    Szegedy et al., "Rethinking the Inception Architecture for Computer Vision" (2016), arXiv:1512.00567: label
    smoothing.

    Examples
    --------
    Two equal scores make a loss of log(2); the gradient is the softmax minus 1 for the label's class:

    >>> import numpy as np
    >>> from minidl.losses import SoftmaxCrossEntropy
    >>> losses, dscores = SoftmaxCrossEntropy()(np.zeros((1, 2)), np.array([0]))
    >>> losses.round(4).tolist(), dscores.tolist()
    ([0.6931], [[-0.5, 0.5]])

    Three pixels, of which the last one is not labelled:

    >>> loss = SoftmaxCrossEntropy(ignore_index=255)
    >>> loss(np.zeros((1, 2, 3)), np.array([[0, 1, 255]]))[1].tolist()
    [[[-0.25, 0.25, 0.0], [0.25, -0.25, 0.0]]]
    """

    classes = True
    applies = "Softmax"

    def __init__(self, label_smoothing: float = 0.0, ignore_index: int | None = None) -> None:
        self._label_smoothing = check_real("label_smoothing", label_smoothing)
        if not 0 <= self._label_smoothing <= 1:
            raise ValueError(f"label_smoothing: expected a number in [0, 1], got {label_smoothing!r}")
        self._ignore_index = None if ignore_index is None else check_int("ignore_index", ignore_index, -MAX_INT64 - 1)

    label_smoothing = readonly_argument("label_smoothing")
    ignore_index = readonly_argument("ignore_index")

    def op(self, shape: Shape, dtype: str) -> SoftmaxCrossEntropyOp:
        return SoftmaxCrossEntropyOp(shape, self.label_smoothing, dtype, self.ignore_index)

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
            For anything else, where the message names `y`; and for outputs of a single class.
        """
        array = check_array(y, "y")
        if shape[0] == 1:
            raise ValueError(
                f"loss: expected at least two classes for {self!r}, got outputs {shape}, whose softmax is always 1: "
                f"binary_cross_entropy takes a single score"
            )
        if array.ndim and array.shape[1:] == shape and array.dtype.kind in "biuf":
            return _as_probabilities(array, shape, dtype)
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
        is_shaped = array.ndim == len(shape) and array.shape[1:] == shape[1:]
        if is_shaped and array.dtype == (np.int64 if len(shape) == 1 else np.uint8) and are_labels(array, shape[0]):
            return array  # what most calls have: nothing is left to check
        if array.dtype.kind not in "iu" and (is_shaped or array.dtype.kind not in "bf"):
            hint = "y.astype(int)" if array.dtype.kind in "bf" else "np.unique(y, return_inverse=True)[1]"
            raise TypeError(f"y: expected integer labels, got dtype {array.dtype}; perhaps {hint}")
        if not is_shaped:
            one = "example" if len(shape) == 1 else "position"
            labels, numbers = _batch_of(shape[1:]), _batch_of(shape)
            expected = f"expected one label per {one}, shape {labels}, or probabilities of classes {numbers}"
            raise ValueError(f"y: {expected}, got {array.shape}{_hint(array, shape)}")
        self._check_range(array, shape[0])
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
        return targets.argmax(axis=1) if targets.dtype.kind == "f" else targets

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
        classes = np.arange(shape[0]).reshape(-1, *[1] * (len(shape) - 1))
        numbers: Array = targets[:, np.newaxis] == classes
        return numbers if self.ignore_index is None else numbers & (targets != self.ignore_index)[:, np.newaxis]

    def _check_range(self, labels: Array, classes: int) -> None:
        """Raises ValueError unless all labels are those of classes, or ignored."""
        if labels.size and (labels.min() < 0 or labels.max() >= classes):
            used = labels if self.ignore_index is None else labels[labels != self.ignore_index]
            if not used.size or (used.min() >= 0 and used.max() < classes):
                return
            ignored = "" if self.ignore_index is None else f", or {self.ignore_index}"
            hint = ": y - 1 counts from 0" if used.min() == 1 and used.max() == classes else ""
            if self.ignore_index is None and labels.ndim > 1:
                hint = ": SoftmaxCrossEntropy(ignore_index=...) leaves out the positions of one label"
            raise ValueError(
                f"y: expected labels from 0 to {classes - 1} (the model has {classes} outputs){ignored}, "
                f"got labels from {used.min()} to {used.max()}{hint}"
            )


def _as_probabilities(array: Array, shape: Shape, dtype: str) -> NDArray[Any]:
    """Returns y as numbers of the dtype; raises ValueError unless they are finite and not negative."""
    targets = as_float_targets(array, shape, dtype)
    if targets.size and targets.min() < 0:
        raise ValueError(f"y: expected probabilities of at least 0, got {targets.min():g}")
    return targets


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
