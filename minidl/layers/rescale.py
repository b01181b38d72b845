"""Rescale: other units for the numbers that come in."""

from __future__ import annotations

import math

import numpy as np

from minidl.layer import Layer
from minidl.shapes import Shape
from minidl_c.rescale import RescaleOp


class Rescale(Layer):
    """y = x * scale + offset, for any shape: Rescale(1 / 255) takes pixels of 0..255 to 0..1.

    Raises TypeError or ValueError in build if scale or offset is not a finite number.
    """

    def __init__(self, scale: float, offset: float = 0.0) -> None:
        self.scale = scale
        self.offset = offset

    def build(self, in_shape: Shape) -> Shape:
        for name, value in (("scale", self.scale), ("offset", self.offset)):
            if isinstance(value, bool) or not isinstance(value, (int, float, np.floating, np.integer)):
                raise TypeError(f"{name}: expected a number, got {value!r}")
            if not math.isfinite(value):
                raise ValueError(f"{name}: expected a finite number, got {value}")
        self.op = RescaleOp(in_shape, self.scale, self.offset, self.dtype)
        return in_shape
