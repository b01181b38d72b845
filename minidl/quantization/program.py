"""Program: the arithmetic of a quantized net, a list of operations on int8 values.

A value of shape (c, h, w), or a vector (c, 1, 1), has one `Quantization`: its number q stands for the real number
`scale * (q - zero_point)`. Value 0 is the quantized input, and operation k writes value k + 1. All sums are exact in
32 bits, so their order is free. What rounds is `rescale`, of a sum s by a multiplier m and a shift n:

    rescale(s, m, n) = floor((s * m + 2**(n - 1)) / 2**n)

with 64-bit products: m / 2**n is a real factor, and a half is rounded up. It is the single rounding of TensorFlow Lite.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

Int8 = NDArray[np.int8]
Int32 = NDArray[np.int32]
Range = tuple[int, int]  # from the first to before the last

LOW, HIGH = -128, 127  # of a value
LARGEST_WEIGHT = 127  # so that a weight and its negative both exist
SUM_LIMIT = 2**31 - 1  # of the absolute value of a sum


@dataclass(frozen=True)
class Quantization:
    """What the numbers of a value stand for."""

    scale: float
    zero_point: int


@dataclass(frozen=True)
class Value:
    """An int8 value: of (c, h, w) elements for each example."""

    shape: tuple[int, int, int]
    quantization: Quantization


@dataclass(frozen=True, eq=False)
class QuantizeInput:
    """q = clip(floor(x * factors[c] + offsets[c])), of a real input x, in float64; zero points are in the offsets."""

    factors: NDArray[np.float64]  # (c,)
    offsets: NDArray[np.float64]  # (c,)


@dataclass(frozen=True, eq=False)
class Operation:
    """What computes a value from others.

    label: the layers that it comes from, such as "3, Conv2D". inputs: indices of values.
    """

    kind: ClassVar[str]
    label: str
    inputs: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class SumOfProducts(Operation):
    """A convolution, grouped or not, or a dense layer, whose kernel is as large as its input.

    y[o] = clip(zero_point of y + rescale(biases[o] + sum of (x - zero_point of x) * weights[o], ...), low, high)

    Beyond the image, x is its zero point.
    """

    kind = "sum of products"
    weights: Int8  # (out, channels / groups, height, width)
    biases: Int32  # (out,)
    multipliers: Int32  # (out,), from 0
    shifts: Int32  # (out,), from 1 to 62
    stride: tuple[int, int]
    padding: tuple[int, int, int, int]  # top, bottom, left, right
    dilation: tuple[int, int]
    groups: int
    low: int
    high: int


@dataclass(frozen=True, eq=False)
class MaxPool(Operation):
    """The maximum of each window: of rows[i] and columns[j], with steps between its cells, in output (i, j)."""

    kind = "maximum"
    rows: tuple[Range, ...]
    columns: tuple[Range, ...]
    steps: tuple[int, int]  # between the cells of a window: the dilation


@dataclass(frozen=True, eq=False)
class AveragePool(Operation):
    """y = clip(zero_point of y + rescale(sum of (x - zero_point of x) in the window, *factors[divisor])).

    The divisor of output (i, j) is row_counts[i] * column_counts[j]: the cells of its window, or with those of the
    padding.
    """

    kind = "average"
    rows: tuple[Range, ...]
    columns: tuple[Range, ...]
    row_counts: tuple[int, ...]
    column_counts: tuple[int, ...]
    factors: Mapping[int, tuple[int, int]]  # divisor: multiplier and shift


@dataclass(frozen=True, eq=False)
class Add(Operation):
    """y = clip(zero_point of y + rescale(sum of (x_k - zero_point of x_k) * multipliers[k], 1, shift), low, high).

    The sum is over the inputs k. The products and their sum fit 32 bits. All x_k have the shape of y.
    """

    kind = "sum"
    multipliers: tuple[int, ...]
    shift: int  # from 1 to 30
    low: int
    high: int


@dataclass(frozen=True, eq=False)
class Multiply(Operation):
    """y = clip(zero_point of y + rescale((a - zero_point of a) * (b - zero_point of b), multiplier, shift)).

    b has the shape of a and y, or one pixel for each channel: (c, 1, 1).
    """

    kind = "product"
    multiplier: int
    shift: int


@dataclass(frozen=True, eq=False)
class Lookup(Operation):
    """y = table[x + 128]: an activation, or another quantization of the same number."""

    kind = "table"
    table: Int8  # (256,)


@dataclass(frozen=True, eq=False)
class Rearrange(Operation):
    """y[i] = x[index[i]], or the zero point for the index -1, in row-major order: padding, concatenation, flattening.

    Several inputs, all of one quantization, which is that of y too, are one vector.
    """

    kind = "copy"
    index: Int32  # (elements of y,)


@dataclass(frozen=True, eq=False)
class Program:
    """The whole arithmetic. The last value is the output; values[k + 1] is that of operations[k]."""

    input: QuantizeInput
    values: tuple[Value, ...]
    operations: tuple[Operation, ...]

    @property
    def multiply_adds(self) -> int:
        """The products of all sums of products, for one example."""
        return sum(map(multiply_adds, self.operations, self.values[1:]))


def multiply_adds(operation: Operation, value: Value) -> int:
    """Returns the products of an operation that writes a value, for one example: those of sums of products."""
    return operation.weights[0].size * math.prod(value.shape) if isinstance(operation, SumOfProducts) else 0
