"""Folding: layers that become part of the operation before them, so that they cost nothing and round nothing.

Each function appends a step to a node and returns the node of the result: a changed copy of the node, or a new one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from minidl.quantization.graph import (
    Copy,
    Doubles,
    Evaluate,
    Function,
    Image,
    Input,
    Integers,
    Maximum,
    Node,
    Product,
    Sum,
)
from minidl.quantization.program import Quantization
from minidl.utils.arrays import Array

N = TypeVar("N", bound=Node)


def then(first: Evaluate, second: Evaluate) -> Evaluate:
    """Returns the function that applies two in turn."""
    return lambda *x: second(first(*x))


def joined(*labels: str) -> str:
    """Returns the label of an operation that comes from several layers."""
    return " + ".join(label for label in labels if label)


def affine(x: Node, gain: Doubles, shift: Doubles, label: str, evaluate: Evaluate) -> Node:
    """Appends x * gain + shift, with a factor for each channel.

    It is folded into the input of the net, or into the sum of products before it. Else it is a table, if all factors
    are one, or a product of its own.
    """
    if not x.is_shared and isinstance(x, Input):
        label, total = joined(x.label, label), x.shift * gain + shift
        return dataclasses.replace(x, gain=x.gain * gain, shift=total, label=label, evaluate=then(x.evaluate, evaluate))
    if not x.is_shared and isinstance(x, Product) and not np.isfinite([x.low, x.high]).any():
        weight, bias = x.weight * gain[:, None, None, None], x.bias * gain + shift
        label, evaluate = joined(x.label, label), then(x.evaluate, evaluate)
        integers = x.integers and Integers(x.integers.scales * np.where(gain == 0, 1.0, np.abs(gain)))
        return dataclasses.replace(x, weight=weight, bias=bias, label=label, evaluate=evaluate, integers=integers)
    if len(np.unique(gain)) == len(np.unique(shift)) == 1:
        return applied(x, lambda numbers: numbers * gain[0] + shift[0], evaluate, label)
    weight = gain[:, None, None, None]
    return Product(
        label=label, shape=x.shape, inputs=(x,), evaluate=evaluate, weight=weight, bias=shift, groups=len(gain)
    )


def clipped(x: Node, low: float, high: float, label: str) -> Node:
    """Appends min(max(x, low), high): to the sum before it, also before a pool or a copy of that sum, or as a table."""

    def clip(array: Array) -> Array:
        return np.clip(array, low, high)

    if not x.is_shared:
        if isinstance(x, (Product, Sum)):
            inner_low, inner_high = (min(max(bound, low), high) for bound in (x.low, x.high))
            label, evaluate = joined(x.label, label), then(x.evaluate, clip)
            return dataclasses.replace(x, low=inner_low, high=inner_high, label=label, evaluate=evaluate)
        if isinstance(x, Maximum) or (isinstance(x, Copy) and len(x.inputs) == 1 and clip(np.array(x.fill)) == x.fill):
            inner = clipped(x.inputs[0], low, high, label)
            if not isinstance(inner, Function):
                return dataclasses.replace(x, inputs=(inner,))
    return applied(x, clip, clip, label)


def applied(x: Node, function: Evaluate, evaluate: Evaluate, label: str) -> Node:
    """Appends a function of each number; two of them are one table. evaluate: the same for a whole value."""
    if not x.is_shared and isinstance(x, Function):
        label, both = joined(x.label, label), then(x.function, function)
        return dataclasses.replace(x, label=label, function=both, evaluate=then(x.evaluate, evaluate))
    return Function(label=label, shape=x.shape, inputs=(x,), evaluate=evaluate, function=function)


def copied(inputs: Sequence[Node], index: Array, shape: Image, label: str, fill: float = 0.0) -> Node:
    """Returns the numbers of the inputs at these indices, or `fill` for -1: copies of copies are one copy."""
    sources: list[Node] = []
    places = []  # of each number of the inputs, in all numbers of the sources
    size = 0
    for x in inputs:
        inner = isinstance(x, Copy) and not x.is_shared and (x.fill == fill or (x.index >= 0).all())
        parts = x.inputs if inner else (x,)
        place = x.index if isinstance(x, Copy) and inner else np.arange(np.prod(x.shape))
        label = joined(x.label, label) if inner else label
        places.append(np.where(place < 0, -1, place + size))
        size += sum(int(np.prod(part.shape)) for part in parts)
        sources += parts
    index = np.append(np.concatenate(places), -1)[index.reshape(-1)]
    if len(sources) == 1 and shape == sources[0].shape and np.array_equal(index, np.arange(size)):
        return sources[0]
    if len(sources) > 1:
        sources = _of_one_quantization(sources, label)

    def evaluate(*values: Array) -> Array:
        flat = [value.reshape(len(value), -1) for value in values]
        filled = np.concatenate([*flat, np.full((len(flat[0]), 1), fill, flat[0].dtype)], axis=1)
        return filled[:, index]

    return Copy(label=label, shape=shape, inputs=tuple(sources), evaluate=evaluate, index=index, fill=fill)


def _of_one_quantization(sources: Sequence[Node], label: str) -> list[Node]:
    """Returns the sources, with a table after each that cannot take the quantization of the result."""
    tables: dict[Node, Node] = {}
    for x in sources:
        if not _is_free(x) and x not in tables:
            tables[x] = applied(x, same, same, label)
    return [tables.get(x, x) for x in sources]


def quantization_before(x: Node) -> Quantization | None:
    """Returns the quantization that x has from a FakeQuantize, or from what it copies; None if there is none."""
    if x.made is None and isinstance(x, (Copy, Maximum)):
        return next((made for source in x.inputs if (made := quantization_before(source))), None)
    return x.made


def _is_free(x: Node) -> bool:
    """True if the quantization of x, which is that of what it copies, matters to no other operation."""
    if x.is_shared or isinstance(x, Input):
        return False
    return _is_free(x.inputs[0]) if isinstance(x, (Copy, Maximum)) and len(x.inputs) == 1 else True


def same(x: Array) -> Array:
    """Returns a value as it is, for a table that gives it another quantization."""
    return x
