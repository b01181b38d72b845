"""Pad2D: constant padding of an image."""

from __future__ import annotations

from minidl.layers.base import Layer
from minidl.utils.validation import Padding4, Pair, Shape, check_image_shape, check_real, check_sides
from minidl_c.kernels.pad2d import Pad2DOp


class Pad2D(Layer):
    """Padding of an image with a constant.

    Maps (c, h, w) to (c, top + h + bottom, left + w + right).

    Parameters
    ----------
    padding : int, (int, int) or (int, int, int, int)
        Pixels on each side: an int, a (vertical, horizontal) pair, or (top, bottom, left, right).
    value : float, default 0.0
        Value of the added pixels.

    Raises
    ------
    TypeError, ValueError
        In `build`, for negative padding, a non-finite value, or an input that is not an image.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential
    >>> from minidl.layers import Pad2D
    >>> row = np.array([[[[1, 2]]]])
    >>> Sequential([Pad2D((0, 1, 0, 2), value=-1)], input_shape=(1, 1, 2)).predict(row).tolist()
    [[[[1.0, 2.0, -1.0, -1.0], [-1.0, -1.0, -1.0, -1.0]]]]
    """

    takes_images = True

    def __init__(self, padding: int | Pair | Padding4, value: float = 0.0) -> None:
        self.padding = padding
        self.value = value

    def build(self, in_shape: Shape) -> Shape:
        sides, value = check_sides("padding", self.padding), check_real("value", self.value, self.dtype)
        self.op = Pad2DOp(check_image_shape(in_shape), sides, value, self.dtype)
        return self.op.out_shape
