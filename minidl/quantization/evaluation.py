"""Evaluation: the values of a program in NumPy, for the report. Sums are in float64, which holds them exactly."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minidl.quantization import program as p
from minidl.quantization.graph import Doubles
from minidl.quantization.program import HIGH, LOW, Int8
from minidl.utils.arrays import Array


def quantize_input(made: p.QuantizeInput, x: Array) -> Int8:
    """Returns value 0 of a program, (n, c, h, w), for examples x of this shape."""
    steps = np.floor(x.astype(np.float64) * made.factors[:, None, None] + made.offsets[:, None, None])
    return np.clip(steps, LOW, HIGH).astype(np.int8)


def run(program: p.Program, x: Array) -> list[Int8]:
    """Returns all values (n, c, h, w) of a program for examples x."""
    values = [quantize_input(program.input, x)]
    for operation, out in zip(program.operations, program.values[1:], strict=True):
        if isinstance(operation, p.Lookup):
            values.append(operation.table[values[operation.inputs[0]].astype(np.int64) - LOW])
            continue
        centred = [values[k].astype(np.float64) - program.values[k].quantization.zero_point for k in operation.inputs]
        y = RUN[type(operation)](operation, centred, out) + out.quantization.zero_point
        low, high = getattr(operation, "low", LOW), getattr(operation, "high", HIGH)
        values.append(np.clip(y, low, high).astype(np.int8).reshape(len(x), *out.shape))
    return values


def _rescale(sums: Doubles, multipliers: Any, shifts: Any) -> Doubles:
    """Returns rescale(sums): see program. Products are in int64."""
    shifts = np.asarray(shifts, np.int64)
    products = sums.astype(np.int64) * multipliers + (np.int64(1) << (shifts - 1))
    return (products >> shifts).astype(np.float64)


def _sum_of_products(o: p.SumOfProducts, x: Sequence[Doubles], out: p.Value) -> Doubles:
    top, bottom, left, right = o.padding
    n, (outputs, height, width) = len(x[0]), out.shape
    padded = np.pad(x[0], ((0, 0), (0, 0), (top, bottom), (left, right)))
    groups = padded.reshape(n, o.groups, -1, *padded.shape[2:])
    weights = o.weights.astype(np.float64).reshape(o.groups, outputs // o.groups, *o.weights.shape[1:])
    sums = np.zeros((n, o.groups, outputs // o.groups, height, width))
    for i, j in itertools.product(*map(range, o.weights.shape[2:])):
        rows, columns = (slice(k * e, None, s) for k, e, s in zip((i, j), o.dilation, o.stride, strict=True))
        taps = groups[..., rows, columns][..., :height, :width].reshape(n, o.groups, -1, height * width)
        factors = weights[..., i, j]
        sums += (factors @ taps if factors.shape[2] > 1 else factors * taps).reshape(sums.shape)
    sums = sums.reshape(n, outputs, height, width) + o.biases[:, None, None]
    return _rescale(sums, o.multipliers[:, None, None], o.shifts[:, None, None])


def _max_pool(o: p.MaxPool, x: Sequence[Doubles], out: p.Value) -> Doubles:
    return _windows(o, x[0], out, o.steps, lambda window, i, j: window.max(axis=(2, 3)))


def _average_pool(o: p.AveragePool, x: Sequence[Doubles], out: p.Value) -> Doubles:
    def average(window: Doubles, i: int, j: int) -> Doubles:
        return _rescale(window.sum(axis=(2, 3)), *o.factors[o.row_counts[i] * o.column_counts[j]])

    return _windows(o, x[0], out, (1, 1), average)


def _windows(
    o: p.MaxPool | p.AveragePool,
    x: Doubles,
    out: p.Value,
    steps: tuple[int, int],
    function: Callable[[Doubles, int, int], Doubles],
) -> Doubles:
    y = np.empty((len(x), *out.shape))
    for (i, (top, bottom)), (j, (left, right)) in itertools.product(enumerate(o.rows), enumerate(o.columns)):
        y[:, :, i, j] = function(x[:, :, top : bottom : steps[0], left : right : steps[1]], i, j)
    return y


def _add(o: p.Add, x: Sequence[Doubles], out: p.Value) -> Doubles:
    return _rescale(np.sum([one * m for one, m in zip(x, o.multipliers, strict=True)], axis=0), 1, o.shift)


def _multiply(o: p.Multiply, x: Sequence[Doubles], out: p.Value) -> Doubles:
    return _rescale(x[0] * x[1], o.multiplier, o.shift)


def _rearrange(o: p.Rearrange, x: Sequence[Doubles], out: p.Value) -> Doubles:
    flat = [one.reshape(len(one), -1) for one in x]
    return np.concatenate([*flat, np.zeros((len(flat[0]), 1))], axis=1)[:, o.index]


RUN: dict[type[p.Operation], Callable[[Any, Sequence[Doubles], p.Value], Doubles]] = {
    p.Add: _add,
    p.AveragePool: _average_pool,
    p.MaxPool: _max_pool,
    p.Multiply: _multiply,
    p.Rearrange: _rearrange,
    p.SumOfProducts: _sum_of_products,
}
