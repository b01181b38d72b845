"""Pad2D: constant padding of an image."""

from __future__ import annotations

from minidl.layers.base import Layer
from minidl.utils.validation import Padding4, Pair, Shape, check_image_shape, check_real, check_sides
from minidl_c.kernels.pad2d import Pad2DOp


class Pad2D(Layer):
    """Padding of an image with a constant `value`: (c, h, w) -> (c, top + h + bottom, left + w + right).

    padding: pixels on each side, an int, a (vertical, horizontal) pair, or (top, bottom, left, right).

    Raises TypeError or ValueError in build for negative padding, a non-finite value, or an input that is not an image.
    """

    def __init__(self, padding: int | Pair | Padding4, value: float = 0.0) -> None:
        self.padding = padding
        self.value = value

    def build(self, in_shape: Shape) -> Shape:
        sides, value = check_sides("padding", self.padding), check_real("value", self.value, self.dtype)
        self.op = Pad2DOp(check_image_shape(in_shape), sides, value, self.dtype)
        return self.op.out_shape
