"""Quantized nets in the format QDQ: operators of floats between DequantizeLinear and QuantizeLinear.

A number q of a Program is q + 128 in the graph, as uint8: these and int8 weights are what onnxruntime has the fastest
kernels for. A maximum, a table or a copy is written for bytes, and is exact. Other operations round their real result
to the nearest step, a half to the even one, where a Program rounds it up.

Factors of a program that follow from scales and divisors are left to these; others become a Mul. The scale of a weight
is that of its multiplier and shift.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from minidl.layers.base import Layer
from minidl.onnx.graph import DATA_TYPES
from minidl.onnx.node_reader import ReadFunction
from minidl.onnx.node_writer import NodeWriter, WriteFunction
from minidl.onnx.operators.integer_pools import pool_axis
from minidl.quantization import program as p
from minidl.quantization.integer_net import IntegerNet
from minidl.utils.arrays import Array

UINT8 = 2  # of TensorProto.DataType
STEPS = p.HIGH - p.LOW
NEGLIGIBLE = 2.0**-8  # of a step: what a factor that the scales give may differ by, at most
IMAGE, VECTOR = 4, 2  # axes of a value, with that of the examples


def write_integer_net(writer: NodeWriter, x: str) -> str:
    """Writes the input's quantization, the operations, and one product that makes scores real."""
    program: p.Program = writer["program"]
    values = [_quantized_input(writer.part("input", "the quantized input"), program, x)]
    for k, operation in enumerate(program.operations):
        part = _Part(writer.part(str(k), f"{operation.label}, {operation.kind}"), program.values, values)
        values.append(WRITE[type(operation)](part, operation, program.values[k + 1]))
    last, scores = len(values) - 1, writer.part("scores", "the real scores")
    end = _Part(scores, program.values, values)
    if writer.out_shape == program.values[last].shape:
        y = end.place(last, IMAGE)
    else:
        y = end.place(last, VECTOR)
        if len(writer.out_shape) > 1:
            y = scores.add_node("Reshape", y, scores.add_int_constant("shape", (0, *writer.out_shape)))
    return end.real("x", y, program.values[last].quantization)


def _quantized_input(writer: NodeWriter, program: p.Program, x: str) -> dict[int, str]:
    """Writes floor(x * factors + offsets) + 128 in float64, rounded as in a Program, so that all bytes are equal."""
    channels = (-1, *[1] * (len(writer.in_shape) - 1))
    factors, offsets = (of.reshape(channels) for of in (program.input.factors, program.input.offsets))
    x = writer.add_node("Cast", x, to=DATA_TYPES["float64"])
    x = writer.add_node("Mul", x, writer.add_constant("factors", factors, "float64"))
    x = writer.add_node("Add", x, writer.add_constant("offsets", offsets, "float64"))
    x = writer.add_node("Add", writer.add_node("Floor", x), writer.add_constant("shift", -p.LOW, "float64"))
    bounds = [writer.add_constant(name, of, "float64") for name, of in (("low", 0), ("high", STEPS))]
    x = writer.add_node("Cast", writer.add_node("Clip", x, *bounds), to=UINT8)
    if len(writer.in_shape) == 1:
        return {VECTOR: x}
    if writer.in_shape != program.values[0].shape:
        x = writer.add_node("Reshape", x, writer.add_int_constant("shape", (0, *program.values[0].shape)))
    return {IMAGE: x}


class _Part:
    """What writes one operation. places: the names of each value so far, by its number of axes."""

    def __init__(self, writer: NodeWriter, values: tuple[p.Value, ...], places: list[dict[int, str]]) -> None:
        self.writer, self.values, self.places = writer, values, places

    def place(self, k: int, axes: int) -> str:
        """Returns the name of value k, as bytes (n, c, h, w), or (n, size)."""
        if axes not in self.places[k]:
            shape = self.values[k].shape if axes == IMAGE else (math.prod(self.values[k].shape),)
            to = self.writer.add_int_constant(f"shape_{k}", (0, *shape))
            self.places[k][axes] = self.writer.add_node("Reshape", next(iter(self.places[k].values())), to)
        return self.places[k][axes]

    def real(self, name: str, x: str, made: p.Quantization) -> str:
        """Returns the real numbers that bytes stand for."""
        return self.writer.add_node("DequantizeLinear", x, *self._parameters(name, made))

    def quantized(self, y: str, made: p.Quantization, low: int = p.LOW, high: int = p.HIGH) -> str:
        """Returns the bytes of real numbers, between those of low and high."""
        y = self.writer.add_node("QuantizeLinear", y, *self._parameters("y", made))
        if (low, high) == (p.LOW, p.HIGH):
            return y
        bounds = [self.writer.add_constant(name, of - p.LOW, "uint8") for name, of in (("low", low), ("high", high))]
        return self.writer.add_node("Clip", y, *bounds)

    def real_constant(self, name: str, numbers: Array, dtype: str, scales: Array) -> str:
        """Returns real numbers with a scale for each index of axis 0. onnxruntime's QGemm needs zero points, too."""
        zeros = self.writer.add_constant(f"{name}_zero_point", np.zeros(len(numbers)), dtype)
        constants = self.writer.add_constant(name, numbers, dtype), self.scale(f"{name}_scale", scales), zeros
        return self.writer.add_node("DequantizeLinear", *constants, axis=0)

    def _parameters(self, name: str, made: p.Quantization) -> tuple[str, str]:
        zero_point = self.writer.add_constant(f"{name}_zero_point", made.zero_point - p.LOW, "uint8")
        return self.scale(f"{name}_scale", made.scale), zero_point

    def scale(self, name: str, numbers: Any) -> str:
        """Adds scales; raises ValueError for those that float32 holds as 0 or infinity, or with few digits only."""
        limits = np.finfo(np.float32)
        for number in np.ravel(numbers):
            if not limits.tiny <= number <= limits.max:
                expected = f"expected scales from {limits.tiny:.3g} to {limits.max:.3g}, those of float32"
                raise ValueError(f"operation {self.writer.path.rpartition('.')[2]}: {name}: {expected}, got {number:g}")
        return self.writer.add_constant(name, numbers, "float32")


def write_sum_of_products(part: _Part, o: p.SumOfProducts, y: p.Value) -> dict[int, str]:
    """A Gemm, if the kernel is the whole image, or a Conv."""
    (k,), writer = o.inputs, part.writer
    before, after = part.values[k].quantization, y.quantization
    weights, biases = o.weights, o.biases
    factors = o.multipliers / 2.0**o.shifts
    if not factors.all():  # a scale is above 0
        weights = np.where(factors[:, None, None, None] == 0, np.int8(0), weights)
        biases = np.where(factors == 0, np.int32(0), biases)
    scales = np.where(factors == 0, 1.0, factors * after.scale / before.scale)
    is_dense = o.weights.shape[1:] == part.values[k].shape and not any(o.padding)
    axes = VECTOR if is_dense else IMAGE
    x = part.real("x", part.place(k, axes), before)
    if is_dense:
        weights = weights.reshape(len(weights), -1)
    constants = [
        part.real_constant("weights", weights, "int8", scales),
        part.real_constant("biases", biases, "int32", scales * before.scale),
    ]
    if is_dense:
        found = writer.add_node("Gemm", x, *constants, transB=1)
    else:
        top, bottom, left, right = o.padding
        found = writer.add_node(
            "Conv",
            x,
            *constants,
            kernel_shape=o.weights.shape[2:],
            strides=o.stride,
            pads=(top, left, bottom, right),
            dilations=o.dilation,
            group=o.groups,
        )
    return {axes: part.quantized(found, after, o.low, o.high)}


def _pool_attributes(o: p.MaxPool | p.AveragePool, shape: tuple[int, ...], steps: tuple[int, int]) -> dict[str, Any]:
    """Returns the attributes of a pool's node; none if its windows are no pool that ONNX has."""
    rows, columns = pool_axis(o.rows, shape[1], steps[0]), pool_axis(o.columns, shape[2], steps[1])
    if rows is None or columns is None:
        return {}
    pads = (rows.before, columns.before, rows.after, columns.after)
    return {"kernel_shape": (rows.kernel, columns.kernel), "strides": (rows.stride, columns.stride), "pads": pads}


def write_max_pool(part: _Part, o: p.MaxPool, y: p.Value) -> dict[int, str]:
    """A MaxPool of bytes, or for any windows the maximum of their rows, then of their columns."""
    (k,), writer = o.inputs, part.writer
    x, attributes = part.place(k, IMAGE), _pool_attributes(o, part.values[k].shape, o.steps)
    if attributes:
        return {IMAGE: writer.add_node("MaxPool", x, **attributes, dilations=o.steps)}
    for axis, name, ranges, step in ((2, "rows", o.rows, o.steps[0]), (3, "columns", o.columns, o.steps[1])):
        cells = [list(range(*window, step)) for window in ranges]
        longest = max(map(len, cells))
        index = writer.add_int_constant(name, [one + one[-1:] * (longest - len(one)) for one in cells])
        of = writer.add_int_constant(f"axis_{axis}", [axis + 1])
        x = writer.add_node("ReduceMax", writer.add_node("Gather", x, index, axis=axis), of, keepdims=0)
    return {IMAGE: x}


def write_average_pool(part: _Part, o: p.AveragePool, y: p.Value) -> dict[int, str]:
    """An AveragePool, or for any windows and factors two products with 0 and 1 that add cells, and one of factors."""
    (k,), writer = o.inputs, part.writer
    (_, height, width), before, after = part.values[k].shape, part.values[k].quantization, y.quantization
    x, attributes = part.real("x", part.place(k, IMAGE), before), _average_attributes(o, part.values[k], y)
    if attributes:
        return {IMAGE: part.quantized(writer.add_node("AveragePool", x, **attributes), after)}
    divisors = np.multiply.outer(o.row_counts, o.column_counts)
    factors = np.vectorize(lambda divisor: _ratio(*o.factors[divisor]), otypes=[float])(divisors)
    rows, columns = _membership(o.rows, height), _membership(o.columns, width)
    sums = writer.add_node("MatMul", writer.add_constant("rows", rows), x)
    sums = writer.add_node("MatMul", sums, writer.add_constant("columns", columns.T))
    means = writer.add_node("Mul", sums, writer.add_constant("factors", factors * after.scale / before.scale))
    return {IMAGE: part.quantized(means, after)}


def _average_attributes(o: p.AveragePool, x: p.Value, y: p.Value) -> dict[str, Any]:
    """Returns the attributes of an AveragePool; none if its windows, counts or factors are no pool's that ONNX has."""
    if any(first == end for first, end in (*o.rows, *o.columns)):
        return {}
    attributes, factor = _pool_attributes(o, x.shape, (1, 1)), x.quantization.scale / y.quantization.scale
    if not attributes or any(not _same(_ratio(*f) * divisor, factor) for divisor, f in o.factors.items()):
        return {}
    axes = ((o.rows, o.row_counts), (o.columns, o.column_counts))
    if all(count == end - first for ranges, counts in axes for (first, end), count in zip(ranges, counts, strict=True)):
        return attributes
    kernel = attributes["kernel_shape"]
    of_padding = all({k} == set(counts) for k, (_, counts) in zip(kernel, axes, strict=True))
    return {**attributes, "count_include_pad": 1} if of_padding else {}


def _membership(ranges: tuple[p.Range, ...], size: int) -> Array:
    """Returns for each window which cells it has, as 0 and 1."""
    cells = np.arange(size)
    return np.array([(first <= cells) & (cells < end) for first, end in ranges], np.float32)


def _ratio(multiplier: int, shift: int) -> float:
    return multiplier / 2.0**shift


def _same(a: float, b: float, largest: int = STEPS) -> bool:
    """Whether two factors of a whole number up to the largest give the same, except for a negligible part of a step."""
    return largest * abs(a - b) < NEGLIGIBLE


def write_add(part: _Part, o: p.Add, y: p.Value) -> dict[int, str]:
    """An Add or Sum of the terms, of which some have a Mul with their factor before."""
    axes, terms = _axes(y), list[str]()
    for i, (k, multiplier) in enumerate(zip(o.inputs, o.multipliers, strict=True)):
        before = part.values[k].quantization
        term = part.real(f"x{i}", part.place(k, axes), before)
        terms.append(
            _scaled(part, f"factor{i}", term, _ratio(multiplier, o.shift), before.scale / y.quantization.scale)
        )
    total = part.writer.add_node("Add" if len(terms) == 2 else "Sum", *terms)
    return {axes: part.quantized(total, y.quantization, o.low, o.high)}


def write_multiply(part: _Part, o: p.Multiply, y: p.Value) -> dict[int, str]:
    """A Mul, which broadcasts; and one more of the factor, unless the scales give it."""
    axes, scale = _axes(y), y.quantization.scale
    made = [part.values[k].quantization for k in o.inputs]
    reals = [part.real(name, part.place(k, axes), of) for name, k, of in zip("ab", o.inputs, made, strict=True)]
    product = part.writer.add_node("Mul", *reals)
    of_scales = made[0].scale * made[1].scale / scale
    found = _scaled(part, "factor", product, _ratio(o.multiplier, o.shift), of_scales, STEPS * STEPS)
    return {axes: part.quantized(found, y.quantization)}


def _scaled(part: _Part, name: str, x: str, factor: float, of_scales: float, largest: int = STEPS) -> str:
    """Returns real numbers times what a program's factor is beside that of the scales, if it is another one."""
    if _same(factor, of_scales, largest):
        return x
    return part.writer.add_node("Mul", x, part.writer.add_constant(name, factor / of_scales))


def _axes(y: p.Value) -> int:
    return VECTOR if y.shape[1:] == (1, 1) else IMAGE


def write_lookup(part: _Part, o: p.Lookup, y: p.Value) -> dict[int, str]:
    """A Gather of the table."""
    axes, x = next(iter(part.places[o.inputs[0]].items()))
    index = part.writer.add_node("Cast", x, to=DATA_TYPES["int32"])
    table = part.writer.add_constant("table", o.table.astype(np.int64) - p.LOW, "uint8")
    return {axes: part.writer.add_node("Gather", table, index, axis=0)}


def write_rearrange(part: _Part, o: p.Rearrange, y: p.Value) -> dict[int, str]:
    """A Concat of the inputs, if there are several, and a Gather, unless they keep their order.

    Index -1 is the last element for a Gather: a Pad adds the zero point there.
    """
    writer, shapes = part.writer, [part.values[k].shape for k in o.inputs]
    keeps_order = np.array_equal(o.index, np.arange(sum(map(math.prod, shapes))))
    is_stack = keeps_order and {y.shape[1:]} == {shape[1:] for shape in shapes}
    axes = _axes(y) if is_stack else VECTOR
    names = [part.place(k, axes) for k in o.inputs]
    x = names[0] if len(names) == 1 else writer.add_node("Concat", *names, axis=1)
    if keeps_order:
        return {axes: x}
    if (o.index < 0).any():
        fill = writer.add_constant("fill", y.quantization.zero_point - p.LOW, "uint8")
        x = writer.add_node("Pad", x, writer.add_int_constant("pads", (0, 0, 0, 1)), fill)
    return {VECTOR: writer.add_node("Gather", x, writer.add_int_constant("index", o.index), axis=1)}


WRITE: dict[type[p.Operation], Callable[[_Part, Any, p.Value], dict[int, str]]] = {
    p.Add: write_add,
    p.AveragePool: write_average_pool,
    p.Lookup: write_lookup,
    p.MaxPool: write_max_pool,
    p.Multiply: write_multiply,
    p.Rearrange: write_rearrange,
    p.SumOfProducts: write_sum_of_products,
}
WRITE_FUNCTIONS: dict[type[Layer], WriteFunction] = {IntegerNet: write_integer_net}
READ_FUNCTIONS: dict[str, ReadFunction] = {}
