"""SoftmaxCrossEntropy: the loss of classifiers of examples, or of the positions of a signal or an image."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from minidl.losses.class_weights import Weights, as_weights, by_channel
from minidl.losses.label_loss import LabelLoss
from minidl.utils.constructors import readonly_argument
from minidl.utils.hints import answers
from minidl.utils.validation import Shape, check_real
from minidl_c.losses.softmax_cross_entropy import SoftmaxCrossEntropyOp


@answers({})
class SoftmaxCrossEntropy(LabelLoss):
    """Cross-entropy of classes, which includes a softmax: the loss of classifiers.

    Computes `-log(p[y])` with `p = softmax(x)`, for logits x and labels y from 0 to classes - 1, or
    `-sum y[k] log(p[k])` for probabilities y of the classes. It stays finite for large logits.

    Outputs have the shape (classes,), with a label for each example, or (classes, length), (classes, h, w) and so on,
    with a label for each position. The loss of an example is the mean over its positions. There are at least two
    classes; a single score is for `BinaryCrossEntropy`.

    Targets are integer or bool labels (n,), (n, length), (n, h, w); uint8 and bool labels of positions are read without
    a copy. Or they are numbers of the shape of the outputs, (n, classes), (n, classes, h, w): probabilities of the
    classes, which need not add up to 1. They are finite and at least 0.

    Parameters
    ----------
    label_smoothing : float, default 0.0
        Fraction of every target, from 0 to 1, that is spread over all classes.
    ignore_index : int or None, default None
        Label of positions that are left out. Probabilities are then refused. The loss and the gradient of an example
        without any other label are 0, and it does not count as an example: neither in a step nor in a mean of losses.
    weight : sequence of float or None, default None
        A number for each class, at least 0, which multiplies its term: `-weight[y] log(p[y])`, or
        `-sum weight[k] y[k] log(p[k])`, with y after smoothing. The divisor remains the number of positions. None:
        ones.

    Raises
    ------
    TypeError, ValueError
        For a `label_smoothing` outside [0, 1], an `ignore_index` that is not an int64, or a `weight` that is not finite
        (float32); and with a model of another number of classes.

    Notes
    -----
    As gradients are those of single examples, the mean over a batch is one of means: an example with few positions that
    count has as much weight as any other. `torch.nn.CrossEntropyLoss` divides by the number of such positions in the
    batch; the two are equal if it is the same in all examples. A `sample_weight` of that number for each counts every
    position equally. With weights it divides by the sum of the weights of the labels: to change a loss only by a factor
    for rare classes, choose weights with a mean of about 1 over all positions.

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

    def __init__(self, label_smoothing: float = 0.0, ignore_index: int | None = None, weight: Weights = None) -> None:
        super().__init__(ignore_index)
        self._label_smoothing = check_real("label_smoothing", label_smoothing)
        if not 0 <= self._label_smoothing <= 1:
            raise ValueError(f"label_smoothing: expected a number in [0, 1], got {label_smoothing!r}")
        self._weight = as_weights("weight", weight)

    label_smoothing = readonly_argument("label_smoothing")
    weight = readonly_argument("weight")

    def op(self, shape: Shape, dtype: str) -> SoftmaxCrossEntropyOp:
        weight = by_channel("weight", self.weight, shape)
        return SoftmaxCrossEntropyOp(shape, self.label_smoothing, dtype, self.ignore_index, weight)

    def targets(self, y: Any, shape: Shape, dtype: str) -> NDArray[Any]:
        if shape[0] == 1:
            raise ValueError(
                f"loss: expected at least two classes for {self!r}, got outputs {shape}, whose softmax is always 1: "
                f"binary_cross_entropy takes a single score"
            )
        by_channel("weight", self.weight, shape)
        return super().targets(y, shape, dtype)
