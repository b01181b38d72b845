"""How a container joins the outputs of its branches: shapes, values, and the gradient of each branch's output."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from minidl.utils.arrays import Array
from minidl.utils.validation import Shape

ADD, CONCAT, MULTIPLY = "add", "concat", "multiply"
FLATTEN = "flatten"  # of `Outputs`: flattened, then concatenated
JOINS = (ADD, CONCAT, MULTIPLY)
RULES = {
    ADD: "of equal shapes",
    CONCAT: "that differ in the first axis only",
    MULTIPLY: "of equal shapes, or with a size of 1 in all axes but the first",
}


def is_gate(shape: Shape) -> bool:
    """True if a shape has one number per channel, as (c, 1, 1)."""
    return all(size == 1 for size in shape[1:])


def joined_shape(join: str, shapes: Mapping[str, Shape]) -> Shape:
    """Returns the shape of the joined outputs of branches, by name; raises ValueError if their shapes do not match."""
    if join == FLATTEN:
        return (sum(map(math.prod, shapes.values())),)
    first = next(iter(shapes.values()))
    if join == MULTIPLY:
        first = next((shape for shape in shapes.values() if not is_gate(shape)), first)
    if not all(_fits(join, shape, first) for shape in shapes.values()):
        got = ", ".join(f"{name} returns {shape}" for name, shape in shapes.items())
        raise ValueError(f"expected branches with outputs {RULES[join]}: {got}")
    return (sum(shape[0] for shape in shapes.values()), *first[1:]) if join == CONCAT else first


def _fits(join: str, shape: Shape, first: Shape) -> bool:
    if join == CONCAT:
        return len(shape) == len(first) and shape[1:] == first[1:]
    return shape == first or (join == MULTIPLY and len(shape) == len(first) and shape[0] == first[0] and is_gate(shape))


def join_outputs(join: str, outputs: Sequence[Array]) -> Array:
    """Returns the joined outputs of the branches: (n, ...)."""
    if join == FLATTEN:
        outputs = [output.reshape(len(output), -1) for output in outputs]
    if join in (CONCAT, FLATTEN):
        return np.concatenate(outputs, axis=1)
    total = outputs[0]
    for output in outputs[1:]:
        total = total * output if join == MULTIPLY else total + output
    return total


def join_gradients(join: str, dy: Array, outputs: Sequence[Array]) -> list[Array]:
    """Returns the gradient of each branch's output (n, ...) from dy, that of the joined outputs."""
    if join == ADD:
        return [dy] * len(outputs)
    if join == CONCAT:
        return np.split(dy, np.cumsum([output.shape[1] for output in outputs])[:-1], axis=1)
    if join == FLATTEN:
        parts = np.split(dy, np.cumsum([math.prod(output.shape[1:]) for output in outputs])[:-1], axis=1)
        return [part.reshape(output.shape) for part, output in zip(parts, outputs, strict=True)]
    gradients = []  # ((a b) c) d: that of d first, then of c ...
    for i in range(len(outputs) - 1, 0, -1):
        before = join_outputs(MULTIPLY, outputs[:i])
        gradients.append(_sum_like(outputs[i], dy * before))
        dy = _sum_like(before, dy * outputs[i])
    return [dy, *reversed(gradients)]


def _sum_like(output: Array, gradient: Array) -> Array:
    """Sums a gradient over the axes along which the output was broadcast."""
    axes = tuple(i for i, (a, b) in enumerate(zip(output.shape, gradient.shape, strict=True)) if a != b)
    return gradient.sum(axis=axes, keepdims=True) if axes else gradient
