"""ReLU: max(x, 0)."""

from __future__ import annotations

from minidl.layers.base import Layer
from minidl.utils.validation import Shape
from minidl_c.kernels.relu import ReLUOp


class ReLU(Layer):
    """y = max(x, 0), for any shape. NaN stays NaN; the gradient at 0 is 0."""

    def build(self, in_shape: Shape) -> Shape:
        self.op = ReLUOp(in_shape, self.dtype)
        return in_shape
