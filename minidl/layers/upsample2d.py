"""Upsample2D: nearest-neighbour upsampling."""

from __future__ import annotations

from minidl.layers.base import Layer
from minidl.utils.validation import Pair, Shape, check_image_shape, check_pair
from minidl_c.kernels.upsample2d import Upsample2DOp


class Upsample2D(Layer):
    """Nearest-neighbour upsampling: (c, h, w) -> (c, h * scale, w * scale). Each pixel becomes a block of equal ones.

    scale: an int or a (vertical, horizontal) pair.

    Raises TypeError or ValueError in build for scales below 1 or an input that is not an image.
    """

    def __init__(self, scale: int | Pair) -> None:
        self.scale = scale

    def build(self, in_shape: Shape) -> Shape:
        self.op = Upsample2DOp(check_image_shape(in_shape), check_pair("scale", self.scale), self.dtype)
        return self.op.out_shape
