"""Rescale: a linear change of units, such as pixels to [0, 1]."""

from __future__ import annotations

from minidl.layers.base import Layer
from minidl.utils.validation import Shape, check_real
from minidl_c.kernels.rescale import RescaleOp


class Rescale(Layer):
    """y = x * scale + offset, for any shape: Rescale(1 / 255) maps pixels of 0..255 to 0..1.

    Raises TypeError or ValueError in build unless scale and offset are finite numbers.
    """

    def __init__(self, scale: float, offset: float = 0.0) -> None:
        self.scale = scale
        self.offset = offset

    def build(self, in_shape: Shape) -> Shape:
        scale, offset = check_real("scale", self.scale, self.dtype), check_real("offset", self.offset, self.dtype)
        self.op = RescaleOp(in_shape, scale, offset, self.dtype)
        return in_shape
