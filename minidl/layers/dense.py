"""Dense: every output sees every input."""

from __future__ import annotations

from minidl.initializers import he_uniform, zeros
from minidl.layer import Layer
from minidl.shapes import Shape, whole
from minidl_c.dense import DenseOp


class Dense(Layer):
    """y = weight x + bias: (inputs,) becomes (units,).

    Parameters: weight (units, inputs), He-uniform; bias (units,), zero.
    Raises TypeError or ValueError in build for units below 1 or an input that is not a vector (put a Flatten in front).
    """

    def __init__(self, units: int) -> None:
        self.units = units

    def build(self, in_shape: Shape) -> Shape:
        units = whole("units", self.units)
        if len(in_shape) != 1:
            raise ValueError(f"expected (inputs,), got {in_shape}: put a Flatten() in front")
        self.op = DenseOp(in_shape, units, self.dtype)
        self.weight = self.param("weight", (units, in_shape[0]), he_uniform, order="F")
        self.bias = self.param("bias", (units,), zeros)
        return (units,)
