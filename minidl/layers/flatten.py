"""Flatten: an image as a vector."""

from __future__ import annotations

from minidl.layer import Layer
from minidl.shapes import Shape
from minidl_c.flatten import FlattenOp


class Flatten(Layer):
    """Any shape becomes a vector, in row-major order: (c, h, w) becomes (c * h * w,)."""

    def build(self, in_shape: Shape) -> Shape:
        self.op = FlattenOp(in_shape, self.dtype)
        return self.op.out_shape
