"""Dice: the overlap of predicted and labelled regions as a loss."""

from __future__ import annotations

from minidl.losses.label_loss import LabelLoss
from minidl.utils.constructors import readonly_argument
from minidl.utils.hints import answers
from minidl.utils.validation import Shape, check_non_negative
from minidl_c.losses.dice import DiceOp


@answers({})
class Dice(LabelLoss):
    """Dice loss, for regions of pixels: 1 minus the Dice coefficient of a class, averaged over the classes.

    The coefficient of class k is `(2 sum p[k] t[k] + smooth) / (sum p[k] + sum t[k] + smooth)`, summed over the
    labelled positions of an example, where t[k] is 1 at the label k. The loss includes a softmax, or for a single score
    a sigmoid: then the only class is the foreground, label 1. It is from 0 to 1, however rare a class is.

    Outputs have the shape (classes, h, w), or (1, h, w). Targets are integer or bool labels (n, h, w), for a single
    score also (n, 1, h, w); or probabilities of the classes, in the shape of the outputs.

    Parameters
    ----------
    smooth : float, default 1.0
        Number that is added to both sums, at least 0. Above 0, an example without a class is perfect if none is
        predicted, and the slope stays finite; large numbers favour small regions less.
    ignore_index : int or None, default None
        Label of positions that are left out. Probabilities are then refused. The loss and the gradient of an example
        without any other label are 0, and it does not count as an example: neither in a step nor in a mean of losses.

    Raises
    ------
    TypeError, ValueError
        For a `smooth` that is not a finite number of at least 0 (float32), or an `ignore_index` that is not an int64.

    See Also
    --------
    minidl.metrics.dice : The coefficient of predicted labels, over all examples.

    References
    ----------
    Milletari, Navab and Ahmadi, "V-Net: Fully Convolutional Neural Networks for Volumetric Medical Image Segmentation"
    (2016), arXiv:1606.04797, with sums instead of sums of squares.

    Examples
    --------
    Two pixels with scores of 0, that is p = 1/2, and one of foreground:

    >>> import numpy as np
    >>> from minidl.losses import Dice
    >>> losses, dscores = Dice(smooth=0.0)(np.zeros((1, 1, 1, 2)), np.array([[[0, 1]]]))
    >>> losses.tolist(), dscores.tolist()
    ([0.5], [[[[0.0625, -0.1875]]]])
    """

    def __init__(self, smooth: float = 1.0, ignore_index: int | None = None) -> None:
        super().__init__(ignore_index)
        self._smooth = check_non_negative("smooth", smooth, "float32")

    smooth = readonly_argument("smooth")

    def op(self, shape: Shape, dtype: str) -> DiceOp:
        return DiceOp(shape, self.smooth, dtype, self.ignore_index)
