"""Flatten and Reshape: the same numbers in another shape."""

from __future__ import annotations

import math

from minidl.layers.base import Layer
from minidl.utils.validation import Shape, check_int
from minidl_c.kernels.flatten import FlattenOp


class Flatten(Layer):
    """Any shape becomes a vector, in row-major order: (c, h, w) becomes (c * h * w,)."""

    def build(self, in_shape: Shape) -> Shape:
        self.op = FlattenOp(in_shape, self.dtype)
        return self.op.out_shape


class Reshape(Layer):
    """Any shape becomes `shape`, in row-major order: Reshape((16, 7, 7)) makes an image of a vector of 784.

    shape: sizes without the batch axis; one of them may be -1, which is then what is left.

    Raises TypeError or ValueError in build if it is no shape, or one of another number of numbers.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    def build(self, in_shape: Shape) -> Shape:
        out_shape = _completed(self.shape, math.prod(in_shape))
        if math.prod(out_shape) != math.prod(in_shape):
            raise ValueError(f"shape: expected {math.prod(in_shape)} numbers, got {self.shape}")
        self.op = FlattenOp(in_shape, self.dtype)
        return out_shape


def _completed(shape: Shape, numbers: int) -> Shape:
    """`shape` with what is left of so many numbers in place of a -1."""
    if not isinstance(shape, (tuple, list)) or not shape:
        raise TypeError(f"shape: expected a tuple such as (16, 7, 7), got {shape!r}")
    if [check_int("shape", size, least=-1) for size in shape].count(-1) > 1:
        raise ValueError(f"shape: expected at most one -1, got {shape}")
    known = math.prod(check_int("shape", size) for size in shape if size != -1)
    if -1 in shape and numbers % known:
        raise ValueError(f"shape: expected sizes that divide {numbers}, got {shape}")
    return tuple(numbers // known if size == -1 else int(size) for size in shape)
