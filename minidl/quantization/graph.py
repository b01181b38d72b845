"""Graph: the float net as operations that integers can compute, before anything is rounded.

A node is an operation and its output, of which an example is an image (c, h, w). Its `evaluate` has the numbers of the
model's own layers, and is what integers are compared with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from minidl.quantization.program import Quantization, Range
from minidl.utils.arrays import Array
from minidl.utils.errors import kind_of
from minidl.utils.validation import Padding4, Pair, Shape

Image = tuple[int, int, int]
Doubles = NDArray[np.float64]
Evaluate = Callable[..., Array]  # from the values (n, c, h, w) of the inputs to that of the node


@dataclass(eq=False, kw_only=True)
class Node:
    """A value of the net, and what computes it.

    label: the layers that it comes from. is_shared: whether several operations read it, so that no other layer can
    become part of it. made: its quantization, if a FakeQuantize says it.
    """

    label: str
    shape: Image
    inputs: tuple[Node, ...] = ()
    evaluate: Evaluate
    is_shared: bool = False
    made: Quantization | None = None


@dataclass(eq=False, kw_only=True)
class Input(Node):
    """The examples x as they come: a channel's value is x * gain + shift."""

    gain: Doubles
    shift: Doubles


@dataclass(frozen=True, eq=False)
class Integers:
    """Weights and biases of a product that are integers already: weight / scales, and biases.

    biases: in steps of the sum; None if they are real numbers.
    """

    scales: Doubles  # (out,)
    biases: NDArray[np.int64] | None = None  # (out,)


@dataclass(eq=False, kw_only=True)
class Product(Node):
    """A sum of products, clipped to [low, high]: see program.SumOfProducts. integers: None, if they are to be found."""

    weight: Doubles  # (out, channels / groups, height, width)
    bias: Doubles
    stride: Pair = (1, 1)
    padding: Padding4 = (0, 0, 0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1
    low: float = -math.inf
    high: float = math.inf
    integers: Integers | None = None


@dataclass(eq=False, kw_only=True)
class Sum(Node):
    """The sum of values of one shape, clipped to [low, high]."""

    low: float = -math.inf
    high: float = math.inf


@dataclass(eq=False, kw_only=True)
class Gate(Node):
    """The product of two values, of which the second may have one pixel for each channel."""


@dataclass(eq=False, kw_only=True)
class Maximum(Node):
    """See program.MaxPool."""

    rows: tuple[Range, ...]
    columns: tuple[Range, ...]
    steps: Pair


@dataclass(eq=False, kw_only=True)
class Average(Node):
    """See program.AveragePool."""

    rows: tuple[Range, ...]
    columns: tuple[Range, ...]
    row_counts: Shape
    column_counts: Shape


@dataclass(eq=False, kw_only=True)
class Function(Node):
    """A function of each number: `function` maps 256 of them."""

    function: Callable[[Array], Array]


@dataclass(eq=False, kw_only=True)
class Copy(Node):
    """y[i] = x[index[i]], or `fill` for the index -1: see program.Rearrange."""

    index: NDArray[np.int64]
    fill: float = 0.0


@contextmanager
def named_errors(node: Node, first: str = "X") -> Iterator[None]:
    """Returns a context in which messages of ValueErrors begin with the layers of a node; of the input: `first`."""
    try:
        yield
    except ValueError as error:
        name = f"layer {node.label}" if node.label else first
        raise kind_of(error)(f"{name}: {error}") from error


def image_of(shape: Shape) -> Image:
    """Returns the shape of a value in the graph: a vector has one pixel, a signal one row."""
    if len(shape) == 1:
        return shape[0], 1, 1
    return (shape[0], 1, shape[1]) if len(shape) == 2 else (shape[0], math.prod(shape[1:-1]), shape[-1])


def in_order(output: Node) -> list[Node]:
    """Returns the output and what it depends on, each node after its inputs; the input of the net is the first."""
    found: dict[Node, None] = {}
    waiting = [output]
    while waiting:
        missing = [x for x in waiting[-1].inputs if x not in found]
        waiting += missing[:1]
        if not missing:
            found[waiting.pop()] = None
    return list(found)


def evaluate(nodes: Sequence[Node], x: Array) -> Mapping[Node, Array]:
    """Returns the values (n, c, h, w) of nodes in order, for examples x of the net."""
    values: dict[Node, Array] = {}
    for node in nodes:
        arguments = [values[one] for one in node.inputs] or [x]
        values[node] = node.evaluate(*arguments).reshape(len(x), *node.shape)
    return values
