"""Conversion: from the graph and the ranges of its values to a program of integers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from minidl.quantization import program as p
from minidl.quantization.graph import (
    Average,
    Copy,
    Doubles,
    Function,
    Gate,
    Input,
    Maximum,
    Node,
    Product,
    Sum,
    named_errors,
)
from minidl.quantization.program import HIGH, LOW, Quantization
from minidl.quantization.ranges import dequantized, quantization, quantized
from minidl.quantization.rescaling import rescaling, rescaling_of_sum
from minidl.quantization.weights import quantize_product, split

Interval = tuple[float, float]
LEAST_STEP = float(np.finfo(np.float32).tiny)  # of outputs
MOST_STEP = float(np.finfo(np.float32).max) / (HIGH - LOW + 1)


def groups_of(nodes: Sequence[Node]) -> dict[Node, Node]:
    """Returns a node for each node's group, whose values have one quantization: maxima and copies keep it."""
    parent = {node: node for node in nodes}  # of a tree for each group

    def root(node: Node) -> Node:
        while parent[node] is not node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for node in nodes:
        for x in node.inputs if isinstance(node, (Maximum, Copy)) else ():
            parent[root(x)] = root(node)
    return {node: root(node) for node in nodes}


def read_nodes(nodes: Sequence[Node], groups: Mapping[Node, Node]) -> list[Node]:
    """Returns the nodes that operations outside of their groups read, and the output."""
    read = {x for node in nodes for x in node.inputs if groups[x] is not groups[node]} | {nodes[-1]}
    return [node for node in nodes if node in read]


def quantizations_of(
    nodes: Sequence[Node], ranges: Mapping[Node, Interval], rounding: str = "FakeQuantize"
) -> dict[Node, Quantization]:
    """Returns the quantization of each node: its group's, from a FakeQuantize, or from the ranges of `read_nodes`.

    Numbers that no maximum chooses, and no copy keeps, need no place in the range. rounding: what a FakeQuantize is
    called in errors.
    """
    groups, found = groups_of(nodes), dict[Node, Quantization]()
    read = read_nodes(nodes, groups)
    for node in nodes:
        with named_errors(node):
            if node.made is not None and (first := found.setdefault(groups[node], node.made)) != node.made:
                raise ValueError(f"expected a {rounding} as before, {first}, for copied numbers, got {node.made}")
    for group in dict.fromkeys(groups.values()):
        intervals = [ranges[node] for node in read if groups[node] is group and node in ranges]
        with named_errors(group, "X" if ranges else "the input"):
            if group not in found and not intervals:
                raise ValueError(f"expected a {rounding} after it, got none")
            if group not in found:
                found[group] = quantization(min(low for low, _ in intervals), max(high for _, high in intervals))
    return {node: found[groups[node]] for node in nodes}


class Conversion:
    """A program that grows, value by value."""

    def __init__(self, made: Mapping[Node, Quantization], means: Mapping[Node, Doubles]) -> None:
        self.made, self.means = made, means
        self.values: list[p.Value] = []
        self.operations: list[p.Operation] = []
        self.places: dict[Node, int] = {}  # the index of each node's value

    def scale(self, node: Node) -> float:
        """The step of a node's value."""
        return self.made[node].scale

    def inputs(self, node: Node) -> tuple[int, ...]:
        """The indices of the values that a node reads."""
        return tuple(self.places[x] for x in node.inputs)

    def bounds(self, node: Product | Sum) -> dict[str, int]:
        """The clip of a node in its own numbers."""
        ends = {}
        for name, limit, end in (("low", node.low, LOW), ("high", node.high, HIGH)):
            ends[name] = int(quantized(np.array(limit), self.made[node])) if math.isfinite(limit) else end
        return ends


def convert(
    nodes: Sequence[Node], made: Mapping[Node, Quantization], means: Mapping[Node, Doubles]
) -> tuple[p.Program, dict[Node, int]]:
    """Returns the program of nodes in order, and the index of each node's value in it.

    means: of the values that products read, to correct their biases. Raises ValueError, naming the layer, for scales
    that do not fit together.
    """
    first, run = nodes[0], Conversion(made, means)
    assert isinstance(first, Input)
    run.values.append(p.Value(first.shape, made[first]))
    run.places[first] = 0
    with named_errors(nodes[-1]):
        if not LEAST_STEP <= (scale := run.scale(nodes[-1])) <= MOST_STEP:
            raise ValueError(f"expected outputs whose range float32 can hold, got steps of {scale:g}")
    for node in nodes[1:]:
        with named_errors(node):
            operations = CONVERT[type(node)](run, node)
        if _changes_nothing(operations, run) and node is not nodes[-1]:
            run.places[node] = run.places[node.inputs[0]]
            continue
        for operation, value in operations:
            run.operations.append(operation)
            run.values.append(value)
        run.places[node] = len(run.operations)
    scale, zero_point = made[first].scale, made[first].zero_point
    quantize = p.QuantizeInput(first.gain / scale, first.shift / scale + zero_point + 0.5)
    return p.Program(quantize, tuple(run.values), tuple(run.operations)), run.places


Written = list[tuple[p.Operation, p.Value]]  # operations, each with the value that it writes


def _changes_nothing(written: Written, run: Conversion) -> bool:
    """True for a table that is its own index, and whose numbers stand for the same as before."""
    (operation, value), *others = written
    is_same = isinstance(operation, p.Lookup) and np.array_equal(operation.table, np.arange(LOW, HIGH + 1))
    return is_same and not others and run.values[operation.inputs[0]] == value


def _convert_product(run: Conversion, node: Product) -> Written:
    """One operation; given weights of 9 bits have a copy before it, of the channels that are read again."""
    (x,) = node.inputs
    arrays = quantize_product(node, run.made[x], run.scale(node), run.means[x])
    arrays["weights"], channels = split(arrays["weights"], node.groups)
    geometry = {"stride": node.stride, "padding": node.padding, "dilation": node.dilation, "groups": node.groups}
    made: Any = {**arrays, **geometry, **run.bounds(node)}
    if len(channels) == x.shape[0]:
        return _one(run, node, p.SumOfProducts(node.label, run.inputs(node), **made))
    pixels = np.arange(math.prod(x.shape), dtype=np.int32).reshape(x.shape)
    again = p.Rearrange(node.label, run.inputs(node), pixels[list(channels)].reshape(-1))
    value = p.Value((len(channels), *x.shape[1:]), run.made[x])
    product = p.SumOfProducts(node.label, (len(run.operations) + 1,), **made)
    return [(again, value), *_one(run, node, product)]


def _convert_sum(run: Conversion, node: Sum) -> Written:
    multipliers, shift = rescaling_of_sum([run.scale(x) / run.scale(node) for x in node.inputs])
    return _one(run, node, p.Add(node.label, run.inputs(node), multipliers, shift, **run.bounds(node)))


def _convert_gate(run: Conversion, node: Gate) -> Written:
    a, b = node.inputs
    factor = rescaling(run.scale(a) * run.scale(b) / run.scale(node))
    return _one(run, node, p.Multiply(node.label, run.inputs(node), *factor))


def _convert_maximum(run: Conversion, node: Maximum) -> Written:
    return _one(run, node, p.MaxPool(node.label, run.inputs(node), node.rows, node.columns, node.steps))


def _convert_average(run: Conversion, node: Average) -> Written:
    factor = run.scale(node.inputs[0]) / run.scale(node)
    divisors = {rows * columns for rows in node.row_counts for columns in node.column_counts}
    factors = {divisor: rescaling(factor / divisor) for divisor in sorted(divisors)}
    windows = (node.rows, node.columns, node.row_counts, node.column_counts)
    return _one(run, node, p.AveragePool(node.label, run.inputs(node), *windows, factors))


def _convert_function(run: Conversion, node: Function) -> Written:
    """The table of 256 results. A number without one, as the root of a negative number, stands for 0."""
    numbers = dequantized(np.arange(LOW, HIGH + 1), run.made[node.inputs[0]])
    with np.errstate(all="ignore"):
        results = np.nan_to_num(np.asarray(node.function(numbers), np.float64), posinf=np.inf, neginf=-np.inf)
    return _one(run, node, p.Lookup(node.label, run.inputs(node), quantized(results, run.made[node])))


def _convert_copy(run: Conversion, node: Copy) -> Written:
    """A border of other numbers than 0 is the zero point of a quantization that only the copy has."""
    index, made = node.index.astype(np.int32), run.made[node]
    if node.fill == 0 or (index >= 0).all():
        return _one(run, node, p.Rearrange(node.label, run.inputs(node), index))
    shifted = Quantization(made.scale, int(quantized(np.array(node.fill), made)))
    same = np.arange(LOW, HIGH + 1).astype(np.int8)
    written: Written = []
    for x in node.inputs:
        written.append((p.Lookup(node.label, (run.places[x],), same), p.Value(x.shape, shifted)))
    end = len(run.operations) + len(written)
    inputs = tuple(range(len(run.operations) + 1, end + 1))
    written.append((p.Rearrange(node.label, inputs, index), p.Value(node.shape, shifted)))
    return [*written, (p.Lookup(node.label, (end + 1,), same), p.Value(node.shape, made))]


def _one(run: Conversion, node: Node, operation: p.Operation) -> Written:
    return [(operation, p.Value(node.shape, run.made[node]))]


CONVERT: dict[type[Node], Callable[[Conversion, Any], Written]] = {
    Average: _convert_average,
    Copy: _convert_copy,
    Function: _convert_function,
    Gate: _convert_gate,
    Maximum: _convert_maximum,
    Product: _convert_product,
    Sum: _convert_sum,
}
