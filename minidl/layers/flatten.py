"""Flatten and Reshape: the same elements in another shape."""

from __future__ import annotations

import math

from minidl.layers.base import Layer
from minidl.utils.validation import Shape, check_int
from minidl_c.kernels.flatten import FlattenOp


class Flatten(Layer):
    """Flattens any shape to a vector, in row-major order.

    Maps (c, h, w) to (c * h * w,), and any other shape likewise: the last axis varies fastest.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential
    >>> from minidl.layers import Flatten
    >>> images = np.array([[[[1, 2], [3, 4]], [[5, 6], [7, 8]]]])  # one example of two channels
    >>> Sequential([Flatten()], input_shape=(2, 2, 2)).predict(images).tolist()
    [[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]]
    """

    def build(self, in_shape: Shape) -> Shape:
        self.op = FlattenOp(in_shape, self.dtype)
        return self.op.out_shape


class Reshape(Layer):
    """Changes any shape to another one of as many elements, in row-major order.

    Maps any shape to `shape`: `Reshape((16, 7, 7))` turns a vector of 784 elements into an image.

    Parameters
    ----------
    shape : tuple of int
        Sizes without the batch axis. One of them may be -1 and is then inferred.

    Raises
    ------
    TypeError, ValueError
        In `build`, for an invalid shape, or one with another number of elements.

    Examples
    --------
    A generator begins with a vector and continues with images:

    >>> from minidl import Sequential
    >>> from minidl.layers import Dense, Reshape
    >>> Sequential([Dense(784), Reshape((16, 7, -1))], input_shape=(100,)).output_shape
    (16, 7, 7)
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    def build(self, in_shape: Shape) -> Shape:
        out_shape = _resolve_shape(self.shape, math.prod(in_shape))
        if math.prod(out_shape) != math.prod(in_shape):
            raise ValueError(f"shape: expected {math.prod(in_shape)} elements, got {self.shape}")
        self.op = FlattenOp(in_shape, self.dtype, out_shape=out_shape)
        return out_shape


def _resolve_shape(shape: Shape, n_elements: int) -> Shape:
    """Returns `shape` with a -1 replaced by the size that makes `n_elements`."""
    if not isinstance(shape, (tuple, list)) or not shape:
        raise TypeError(f"shape: expected a tuple such as (16, 7, 7), got {shape!r}")
    if [check_int("shape", size, minimum=-1) for size in shape].count(-1) > 1:
        raise ValueError(f"shape: expected at most one -1, got {shape}")
    known = math.prod(check_int("shape", size) for size in shape if size != -1)
    if -1 in shape and n_elements % known:
        raise ValueError(f"shape: expected sizes that divide {n_elements}, got {shape}")
    return tuple(n_elements // known if size == -1 else int(size) for size in shape)
