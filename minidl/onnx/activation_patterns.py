"""Activations that exporters write as several nodes, such as x * Sigmoid(x): found as expressions of one value x."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from minidl.layers import (
    CELU,
    GELU,
    Hardshrink,
    Hardswish,
    LogSigmoid,
    Mish,
    SiLU,
    Softplus,
    Softshrink,
    Softsign,
    SparsePlus,
    Squareplus,
    Tanhshrink,
    Threshold,
)
from minidl.layers.base import Layer
from minidl.onnx.graph import Graph, Node, UnsupportedNodeError
from minidl.utils.arrays import Array

ROOT_OPS = {"Add", "Div", "Log", "Mul", "Neg", "Sub", "Where"}  # last nodes of activations
PARTS = {  # nodes of activations
    *(*ROOT_OPS, "Abs", "Cast", "Clip", "Elu", "Erf", "Greater", "HardSigmoid", "Less", "LessOrEqual", "Or", "Pow"),
    *("Relu", "Sigmoid", "Softplus", "Sqrt", "Tanh"),
}
MAX_DEPTH = 10  # nodes from x to the output of an activation
MAX_VALUES = 24  # values that are tried as x
MAX_TERMS = 5  # of a sum or product
BOOL = 9  # TensorProto.DataType

Expression = Any  # "x", a number, or a tuple of an operator and its operands


@dataclass
class ActivationNode(Node):
    """Nodes that together are one activation, in place of the last of them."""

    layer: Layer = field(kw_only=True)


def fuse_activations(graph: Graph, constants: Mapping[str, Array]) -> Graph:
    """Returns the graph with one node for each activation that is written as several; the others stay as they are."""
    producers = {node.outputs[0]: node for node in graph.nodes if node.outputs and not node.domain}
    return replace(graph, nodes=[_fuse(node, producers, constants) for node in graph.nodes])


def match_activation(expression: Expression) -> Layer | None:
    """Returns the layer that computes an expression, or None. Sums and products are those of `_combine`."""
    match expression:
        case ("Mul", "x", ("Sigmoid", "x")):
            return SiLU()
        case ("Mul", "x", ("Tanh", ("Softplus", "x"))):
            return Mish()
        case ("Mul", "x", ("HardSigmoid", "x", a, 0.5)) if _near(a, 1 / 6):
            return Hardswish()
        case ("Mul", "x", ("Clip", ("Add", "x", 3.0), 0.0, 6.0), a) if _near(a, 1 / 6):
            return Hardswish()
        case ("Mul", "x", ("Add", ("Erf", ("Mul", "x", a)), 1.0), 0.5) if _near(a, math.sqrt(1 / 2)):
            return GELU()
        case ("Mul", "x", ("Add", ("Tanh", ("Mul", ("Add", "x", ("Mul", "x", "x", "x", c)), a)), 1.0), 0.5) if _near(
            a, math.sqrt(2 / math.pi)
        ) and _near(c, 0.044715):
            return GELU("tanh")
        case ("Mul", ("Softplus", ("Mul", "x", float(beta))), a) if beta > 0 and _near(a, 1 / beta):
            return Softplus(beta)
        case ("Mul", ("Elu", ("Mul", "x", a), 1.0), float(alpha)) if alpha > 0 and _near(a, 1 / alpha):
            return CELU(alpha)
        case ("Log", ("Sigmoid", "x")) | ("Mul", ("Softplus", ("Mul", "x", -1.0)), -1.0):
            return LogSigmoid()
        case ("Sub", "x", ("Tanh", "x")):
            return Tanhshrink()
        case ("Div", "x", ("Add", ("Abs", "x"), 1.0)):
            return Softsign()
        case ("Mul", ("Add", "x", ("Sqrt", ("Add", ("Mul", "x", "x"), float(b)))), 0.5):
            return Squareplus(b)
        case ("Add", ("Mul", h, other), ("Relu", ("Add", "x", -1.0))) if h == other == ("HardSigmoid", "x", 0.5, 0.5):
            return SparsePlus()
        case ("Where", ("LessOrEqual", "x", float(a)), float(value), "x"):
            return Threshold(a, value)
        case ("Where", ("Greater", "x", float(a)), "x", float(value)):
            return Threshold(a, value)
        case ("Where", ("Or", ("Greater", "x", float(a)), ("Less", "x", float(b))), "x", 0.0) if a == -b:
            return Hardshrink(a)
        case (
            "Add",
            ("Where", ("Greater", "x", float(a)), ("Add", "x", float(b)), 0.0),
            ("Where", ("Less", "x", float(c)), ("Add", "x", float(d)), 0.0),
        ) if a == -b == -c == d:
            return Softshrink(a)
    return None


def _near(number: Expression, expected: float) -> bool:
    """True if it is a number that a rounding to float32 may have changed."""
    return isinstance(number, float) and math.isclose(number, expected, rel_tol=1e-6)


def _fuse(root: Node, producers: Mapping[str, Node], constants: Mapping[str, Array]) -> Node:
    """Returns the activation that ends in a node, or the node itself."""
    if root.op not in ROOT_OPS or root.domain or not root.outputs or root.outputs[0] in constants:
        return root
    for start in _find_values(root, producers, constants):
        expression = _Expander(start, producers, constants).expand(root.outputs[0], MAX_DEPTH)
        if (layer := match_activation(expression)) is not None:
            return ActivationNode(root.op, root.name, [start], root.outputs, {}, root.doc, layer=layer)
    return root


def _find_values(root: Node, producers: Mapping[str, Node], constants: Mapping[str, Array]) -> list[str]:
    """Returns the values that a node may be an activation of, the nearest first."""
    found = list[str]()
    nodes = [root]
    for node in nodes:
        for name in node.inputs:
            if name and name not in constants and name not in found and len(found) < MAX_VALUES:
                found.append(name)
                if (producer := producers.get(name)) is not None and producer.op in PARTS:
                    nodes.append(producer)
    return found


class _Expander:
    """Expressions of the value `start`."""

    def __init__(self, start: str, producers: Mapping[str, Node], constants: Mapping[str, Array]) -> None:
        self.producers, self.constants = producers, constants
        self.known: dict[tuple[str, int], Expression] = {(start, depth): "x" for depth in range(MAX_DEPTH + 1)}

    def expand(self, name: str, depth: int) -> Expression:
        """Returns the expression of a value, at most `depth` nodes deep; None if it depends on other values."""
        if (name, depth) not in self.known:
            self.known[name, depth] = self._number(name) if name in self.constants else self._expand_node(name, depth)
        return self.known[name, depth]

    def _expand_node(self, name: str, depth: int) -> Expression:
        node = self.producers.get(name)
        if node is None or node.op not in PARTS or depth == 0:
            return None
        operands = [self.expand(operand, depth - 1) for operand in node.inputs if operand]
        return None if any(operand is None for operand in operands) else _simplify(node, operands)

    def _number(self, name: str) -> float | None:
        try:
            array = self.constants[name]
        except UnsupportedNodeError:  # not foldable, or not yet
            return None
        return float(str(array.reshape(()))) if array.size == 1 and array.dtype.kind == "f" else None


def _simplify(node: Node, operands: list[Expression]) -> Expression:
    """Returns a node as an expression, with one form for all that is a sum with, or a product by, a number."""
    match node.op, operands:
        case "Cast", [operand]:
            return operand if node.attributes.get("to") == BOOL else None
        case "Elu", [operand]:
            return "Elu", operand, node.attributes.get("alpha", 1.0)
        case "HardSigmoid", [operand]:
            return "HardSigmoid", operand, node.attributes.get("alpha", 0.2), node.attributes.get("beta", 0.5)
        case "Mul", _:
            return _combine("Mul", operands, 1.0, float.__mul__)
        case "Neg", [operand]:
            return _combine("Mul", [operand, -1.0], 1.0, float.__mul__)
        case "Div", [operand, float(number)] if number:
            return _combine("Mul", [operand, 1 / number], 1.0, float.__mul__)
        case "Pow", [operand, 2.0 | 3.0 as number]:
            return _combine("Mul", [operand] * int(number), 1.0, float.__mul__)
        case "Add", _:
            return _combine("Add", operands, 0.0, float.__add__)
        case "Sub", [operand, float(number)]:
            return _combine("Add", [operand, -number], 0.0, float.__add__)
    return node.op, *operands


def _combine(
    op: str, operands: list[Expression], neutral: float, combine: Callable[[float, float], float]
) -> Expression:
    """Returns a sum or product of any number of terms: x first, then expressions by operator, last one number."""
    terms, number = list[Expression](), neutral
    for operand in operands:
        nested = isinstance(operand, tuple) and operand[0] == op
        for term in operand[1:] if nested else [operand]:
            if isinstance(term, float):
                number = combine(number, term)
            else:
                terms.append(term)
    terms.sort(key=lambda term: "" if term == "x" else term[0])
    if number != neutral:
        terms.append(number)
    return None if len(terms) > MAX_TERMS else terms[0] if len(terms) == 1 else (op, *terms)
