"""How a container joins the outputs of its branches: shapes, values, and the gradient of each branch's output."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np

from minidl.utils.arrays import Array
from minidl.utils.validation import Shape, check_int

ADD, CONCAT, MULTIPLY, DIVIDE, MAXIMUM, MINIMUM = "add", "concat", "multiply", "divide", "maximum", "minimum"
POWER = "power"
FLATTEN = "flatten"  # of `Outputs`: flattened, then concatenated
FUNCTIONS = {  # of two outputs; of more, from the left
    ADD: np.add,
    MULTIPLY: np.multiply,
    DIVIDE: np.divide,
    MAXIMUM: np.maximum,
    MINIMUM: np.minimum,
    POWER: np.power,
}
JOINS = (CONCAT, *FUNCTIONS)


def joined_shape(join: str, shapes: Mapping[str, Shape], axis: int) -> Shape:
    """Returns the shape of the joined outputs of branches, by name; raises ValueError if their shapes do not match."""
    if join == FLATTEN:
        return (sum(map(math.prod, shapes.values())),)
    first, *others = shapes.values()
    if join == CONCAT:
        axis = check_int("axis", axis, minimum=-len(first), maximum=len(first) - 1) % len(first)
        rests = [shape[:axis] + shape[axis + 1 :] for shape in shapes.values()]
        rule, fits = f"that differ in axis {axis} only", all(rest == rests[0] for rest in rests)
        fits = fits and all(len(shape) == len(first) for shape in others)
    else:
        sizes = list(zip(*shapes.values(), strict=False))
        rule, fits = "of equal shapes, or with a size of 1 in some axes", all(len({*n, 1}) <= 2 for n in sizes)
        fits = fits and all(len(shape) == len(first) for shape in others)
    if not fits:
        got = ", ".join(f"{name} returns {shape}" for name, shape in shapes.items())
        raise ValueError(f"expected branches with outputs {rule}: {got}")
    if join == CONCAT:
        return (*first[:axis], sum(shape[axis] for shape in shapes.values()), *first[axis + 1 :])
    return tuple(max(n) for n in sizes)


def join_outputs(join: str, outputs: Sequence[Array], axis: int = 0) -> Array:
    """Returns the joined outputs of the branches: (n, ...)."""
    if join == FLATTEN:
        outputs, axis = [output.reshape(len(output), -1) for output in outputs], 0
    if join in (CONCAT, FLATTEN):
        return np.concatenate(outputs, axis=_with_batch(axis))
    return reduce(FUNCTIONS[join], outputs)


def join_gradients(join: str, dy: Array, outputs: Sequence[Array], axis: int) -> list[Array]:
    """Returns the gradient of each branch's output (n, ...) from dy, that of the joined outputs."""
    if join == CONCAT:
        axis = _with_batch(axis)
        return np.split(dy, np.cumsum([output.shape[axis] for output in outputs])[:-1], axis=axis)
    if join == FLATTEN:
        parts = np.split(dy, np.cumsum([math.prod(output.shape[1:]) for output in outputs])[:-1], axis=1)
        return [part.reshape(output.shape) for part, output in zip(parts, outputs, strict=True)]
    gradients = []  # f(f(a, b), c): that of c first, then of b ...
    for i in range(len(outputs) - 1, 0, -1):
        before = join_outputs(join, outputs[:i], axis)
        first, second = _slopes(join, dy, before, outputs[i])
        gradients.append(_sum_like(outputs[i], second))
        dy = _sum_like(before, first)
    return [dy, *reversed(gradients)]


def _with_batch(axis: int) -> int:
    return axis + 1 if axis >= 0 else axis


def _slopes(join: str, dy: Array, a: Array, b: Array) -> tuple[Array, Array]:
    """Returns the gradients of a and b, before sums over the axes along which they were broadcast."""
    if join == ADD:
        return dy, dy
    if join == MULTIPLY:
        return dy * b, dy * a
    if join == DIVIDE:
        return dy / b, -dy * (a / b / b)
    if join == POWER:
        first = np.where(b == 0, 0, dy * (b * a ** (b - 1)))
        return first, np.where((a == 0) & (b >= 0), 0, dy * (a**b * np.log(a)))
    smaller, larger = (a < b, b < a) if join == MAXIMUM else (b < a, a < b)
    shared = np.where(a == b, dy / 2, dy)
    return np.where(smaller, 0, shared), np.where(larger, 0, shared)


def _sum_like(output: Array, gradient: Array) -> Array:
    """Sums a gradient over the axes along which the output was broadcast."""
    axes = tuple(i for i, (a, b) in enumerate(zip(output.shape, gradient.shape, strict=True)) if a != b)
    return gradient.sum(axis=axes, keepdims=True) if axes else gradient
