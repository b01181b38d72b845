"""The C of the operations of quantized nets."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from textwrap import wrap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidl.c_export.code_writer import WIDTH, CProgram, Tensor
from minidl.c_export.copies import LOOPS, Copy, copies
from minidl.quantization.program import (
    HIGH,
    LOW,
    SUM_LIMIT,
    Add,
    AveragePool,
    Lookup,
    MaxPool,
    Multiply,
    Operation,
    Program,
    Range,
    Rearrange,
    SumOfProducts,
    Value,
)
from minidl.utils.arrays import Array

SEPARATE = 2**40  # between the places of two inputs


class OperationWriter:
    """Adds the C of one operation: its inputs and its output, as values and as tensors, and its constants."""

    def __init__(self, c_program: CProgram, program: Program, number: int) -> None:
        self.c_program, self.operation = c_program, program.operations[number]
        self.inputs = [program.values[k] for k in self.operation.inputs]
        self.output = program.values[number + 1]
        self._prefix = f"{c_program.name}_{number}"

    @property
    def zero(self) -> int:
        """The zero point of the output."""
        return self.output.quantization.zero_point

    @property
    def input_zeros(self) -> list[int]:
        """The zero points of the inputs."""
        return [value.quantization.zero_point for value in self.inputs]

    def table(self, name: str, array: Array) -> str:
        """Returns the name of a table of these integers, which is shared by all operations."""
        for known, other in self.c_program.arrays.items():
            if array.dtype == other.dtype and np.array_equal(array.ravel(), other.ravel()):
                return known
        self.c_program.arrays[f"{self._prefix}_{name}"] = array
        return f"{self._prefix}_{name}"

    def declare(self, kind: str, name: str, fields: Any, size: str = "") -> str:
        """Declares a constant struct, or an array of a size such as "[2]"; returns its name. fields: nested lists."""
        identifier = f"{self._prefix}_{name}"
        lines = wrap(f"static const {kind} {identifier}{size} = {_initializer(fields)};", WIDTH, subsequent_indent="  ")
        self.c_program.declarations.append("\n".join(lines))
        return identifier

    def ranges(self, name: str, ranges: Sequence[Range]) -> str:
        """Declares the cells of the windows along an axis; returns the name."""
        return self.declare("range", name, ranges, f"[{len(ranges)}]")

    def call(self, function: str, *arguments: int | str | Tensor, in_place: bool = False, scratch: int = 0) -> Tensor:
        """Adds a call whose last argument is the output of the operation; see CodeWriter.call."""
        return self.c_program.call(function, arguments, self.output.shape, in_place, scratch)


def write_sum_of_products(writer: OperationWriter, o: SumOfProducts, x: Tensor) -> Tensor:
    """A dense layer, also one for each pixel; filters of one channel each; or a convolution of groups."""
    (channels, height, width), (_, *out_image) = writer.inputs[0].shape, writer.output.shape
    outputs, per_group, *kernel = o.weights.shape
    scale = _declare_scale(writer, o)
    rows = np.ascontiguousarray(o.weights.transpose(0, 2, 3, 1))  # [outputs][height][width][channels]
    is_whole = kernel == [height, width] and out_image == [1, 1]
    is_pixel = kernel == [1, 1] and o.stride == (1, 1)
    if o.groups == 1 and not any(o.padding) and (is_whole or is_pixel):
        inputs, pixels = math.prod(o.weights.shape[1:]), math.prod(out_image)
        return writer.call("dense_int8", pixels, inputs, outputs, f"&{scale}", writer.table("weights", rows), x)
    top, _, left, _ = o.padding
    fields = [height, width, *out_image, o.groups, per_group, outputs // o.groups, *kernel, *o.stride, top, left]
    convolution = writer.declare("convolution_int8", "shape", [*fields, *o.dilation, *writer.input_zeros])
    if per_group == 1 and o.groups > 1:
        weights = writer.table("weights", np.ascontiguousarray(o.weights.transpose(2, 3, 0, 1)))
        name, size = "convolve_channels_int8", math.prod(kernel) * channels
    else:
        weights, name, size = writer.table("weights", rows), "convolve_int8", math.prod(o.weights.shape[1:])
    return writer.call(name, f"&{convolution}", f"&{scale}", weights, x, scratch=size)


def _declare_scale(writer: OperationWriter, o: SumOfProducts) -> str:
    """Declares biases, which contain the zero point of the input, and what rescales sums; returns the name.

    Raises ValueError for sums that may not fit 32 bits.
    """
    weights = o.weights.reshape(len(o.weights), -1).astype(np.int64)
    biases = o.biases - writer.input_zeros[0] * weights.sum(axis=1)
    largest = int((np.abs(biases) - LOW * np.abs(weights).sum(axis=1)).max())
    if largest > SUM_LIMIT:
        raise ValueError(f"expected sums of 32 bits, at most {SUM_LIMIT}, got weights for sums of up to {largest}")
    tables = {"biases": (biases, np.int32), "multipliers": (o.multipliers, np.int32), "shifts": (o.shifts, np.uint8)}
    names = [writer.table(name, array.astype(dtype)) for name, (array, dtype) in tables.items()]
    return writer.declare("output_scale", "scale", [*names, writer.zero, o.low, o.high])


def write_max_pool(writer: OperationWriter, o: MaxPool, x: Tensor) -> Tensor:
    return writer.call("max_pool_int8", f"&{_declare_pool(writer, o)}", *o.steps, x)


def write_average_pool(writer: OperationWriter, o: AveragePool, x: Tensor) -> Tensor:
    counts = [
        writer.declare("integer", name, numbers, f"[{len(numbers)}]")
        for name, numbers in (("row_cells", o.row_counts), ("column_cells", o.column_counts))
    ]
    rows = [(cells, *factor) for cells, factor in sorted(o.factors.items())]
    divisors = writer.declare("divisor", "divisors", rows, f"[{len(rows)}]")
    pool = _declare_pool(writer, o)
    return writer.call("average_pool_int8", f"&{pool}", *counts, divisors, *writer.input_zeros, writer.zero, x)


def _declare_pool(writer: OperationWriter, o: MaxPool | AveragePool) -> str:
    rows = writer.ranges("rows", o.rows)
    columns = rows if o.rows == o.columns else writer.ranges("columns", o.columns)
    channels, _, width = writer.inputs[0].shape
    return writer.declare("pool_int8", "pool", [width, channels, len(o.rows), len(o.columns), rows, columns])


def write_add(writer: OperationWriter, o: Add, *inputs: Tensor) -> Tensor:
    """Raises ValueError for sums that may not fit 32 bits."""
    rows = list(zip(writer.input_zeros, o.multipliers, strict=True))
    largest = sum(max(zero - LOW, HIGH - zero) * abs(multiplier) for zero, multiplier in rows)
    if largest > SUM_LIMIT:
        raise ValueError(f"expected sums of 32 bits, at most {SUM_LIMIT}, got multipliers for sums of up to {largest}")
    terms = writer.declare("term", "terms", rows, f"[{len(rows)}]")
    y = writer.c_program.new_tensor(writer.output.shape)
    numbers = f"{y.size}, {len(inputs)}, {terms}, {o.shift}, {writer.zero}, {o.low}, {o.high}"
    listed = [part for x in inputs for part in (", ", x)][1:]
    parts = ["{ const int8_t *const x[] = {", *listed, f"}}; add_int8({numbers}, x, ", y, "); }"]
    writer.c_program.add(parts, inputs, [y], in_place=True)
    return y


def write_multiply(writer: OperationWriter, o: Multiply, a: Tensor, b: Tensor) -> Tensor:
    zeros = (*writer.input_zeros, o.multiplier, o.shift, writer.zero)
    return writer.call("multiply_int8", a.pixels, b.pixels, a.channels, *zeros, a, b, in_place=True)


def write_lookup(writer: OperationWriter, o: Lookup, x: Tensor) -> Tensor:
    return writer.call("look_up", x.size, writer.table("table", o.table), x, in_place=True)


def write_rearrange(writer: OperationWriter, o: Rearrange, *inputs: Tensor) -> Tensor:
    """Copies from each input, after its zero point is everywhere if a number is that of no input; nothing if y is x."""
    shape = writer.output.shape
    memory = [_memory_places(value.shape) for value in writer.inputs]
    sources = np.concatenate([number * SEPARATE + places for number, places in enumerate(memory)])
    index = o.index[_row_major_places(shape)]
    places = np.where(index < 0, -1, sources[index])  # of each number of y in memory: where it comes from
    if np.array_equal(places, np.arange(inputs[0].size)):
        return Tensor(inputs[0].storage, shape)
    y = writer.c_program.new_tensor(shape)
    if (index < 0).any():
        writer.c_program.add([f"fill_int8({y.size}, {writer.zero}, ", y, ");"], [], [y], in_place=False)
    for number, x in enumerate(inputs):
        to = np.flatnonzero((index >= 0) & (places // SEPARATE == number))
        if len(to):
            found = copies(places[to] - number * SEPARATE, to, shape[0])
            name = _declare_copies(writer, f"copies_{number}", found)
            writer.c_program.add([f"copy_all({name}, ", x, ", ", y, ");"], [x], [y], in_place=False)
    return y


def _declare_copies(writer: OperationWriter, name: str, found: Sequence[Copy]) -> str:
    """Declares copies; returns their number and name, as arguments."""
    once = [(1, 0, 0)] * LOOPS
    rows = [[copy.size, copy.x, copy.y, [*once, *copy.loops][-LOOPS:]] for copy in found]
    return f"{len(rows)}, {writer.declare('copies', name, rows, f'[{len(rows)}]')}"


def _row_major_places(shape: tuple[int, int, int]) -> NDArray[np.int64]:
    """Returns where each number in memory, channels last, is in row-major order."""
    return np.arange(math.prod(shape)).reshape(shape[0], -1).T.ravel()


def _memory_places(shape: tuple[int, int, int]) -> NDArray[np.int64]:
    """Returns where each number in row-major order is in memory, channels last."""
    return np.arange(math.prod(shape)).reshape(-1, shape[0]).T.ravel()


def _initializer(fields: Any) -> str:
    nested = isinstance(fields, (list, tuple))
    return f"{{{', '.join(map(_initializer, fields))}}}" if nested else str(fields)


WRITE: dict[type[Operation], Callable[..., Tensor]] = {
    Add: write_add,
    AveragePool: write_average_pool,
    Lookup: write_lookup,
    MaxPool: write_max_pool,
    Multiply: write_multiply,
    Rearrange: write_rearrange,
    SumOfProducts: write_sum_of_products,
}


def title(operation: Operation, inputs: Sequence[Value], output: Value) -> str:
    """Returns the comment of an operation."""
    shapes = ", ".join(str(value.shape) for value in inputs)
    return f"{operation.label}: {operation.kind}, {shapes} -> {output.shape}"
