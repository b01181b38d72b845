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
from minidl.onnx.graph import DATA_TYPES, Graph, Node, UnsupportedNodeError
from minidl.utils.arrays import Array

ROOT_OPS = {"Add", "Div", "Log", "Mul", "Neg", "Sub", "Where"}  # last nodes of activations
PARTS = {  # nodes of activations
    *(*ROOT_OPS, "Abs", "Cast", "Clip", "Elu", "Erf", "Greater", "HardSigmoid", "Less", "LessOrEqual", "Or", "Pow"),
    *("Relu", "Sigmoid", "Softplus", "Sqrt", "Tanh"),
}
MAX_DEPTH = 10  # nodes from x to the output of an activation
MAX_TERMS = 5  # of a sum or product

Expression = Any  # "x", a number, or a tuple of an operator and its operands


@dataclass
class ActivationNode(Node):
    """Nodes that together are one activation, in place of the last of them. rank: the most axes of their constants."""

    layer: Layer = field(kw_only=True)
    rank: int = field(kw_only=True)


@dataclass
class Candidate:
    """A value as an expression of another one: its longest path in nodes, and the most axes of its numbers."""

    expression: Expression
    depth: int = 0
    rank: int = 0


def fuse_activations(graph: Graph, constants: Mapping[str, Array]) -> Graph:
    """Returns the graph with one node for each activation that is written as several; the others stay as they are.

    A value is an expression of few others, each of which is one of the next, so that the time is linear.
    """
    known: dict[str, dict[str, Candidate]] = {}
    nodes = []
    for node in graph.nodes:
        if node.outputs and not node.domain and node.op in PARTS and node.outputs[0] not in constants:
            found = known[node.outputs[0]] = _expand(node, known, constants)
            node = _fuse(node, found) if node.op in ROOT_OPS else node
        nodes.append(node)
    return replace(graph, nodes=nodes)


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
        case (
            "Add",
            ("Mul", ("HardSigmoid", "x", 0.5, 0.5), ("HardSigmoid", "x", 0.5, 0.5)),
            ("Relu", ("Add", "x", -1.0)),
        ):
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


def _fuse(root: Node, found: Mapping[str, Candidate]) -> Node:
    """Returns the activation that ends in a node, or the node itself."""
    for start, candidate in found.items():
        if (layer := match_activation(candidate.expression)) is not None:
            inputs, rank = [start], candidate.rank
            return ActivationNode(root.op, root.name, inputs, root.outputs, {}, root.doc, layer=layer, rank=rank)
    return root


def _expand(
    node: Node, known: Mapping[str, dict[str, Candidate]], constants: Mapping[str, Array]
) -> dict[str, Candidate]:
    """Returns the output of a node by the values that it is an expression of, the nearest first."""
    operands = list[Candidate | dict[str, Candidate]]()
    for name in filter(None, node.inputs):
        if name not in constants:
            operands.append({name: Candidate("x"), **known.get(name, {})})
        elif (number := _number(name, constants)) is not None:
            operands.append(number)
        else:
            return {}
    values = [operand for operand in operands if isinstance(operand, dict)]
    found = dict[str, Candidate]()
    for start in values[0] if values else ():
        if all(start in value for value in values):
            parts = [operand[start] if isinstance(operand, dict) else operand for operand in operands]
            depth, rank = 1 + max(part.depth for part in parts), max(part.rank for part in parts)
            expression = _simplify(node, [part.expression for part in parts]) if depth <= MAX_DEPTH else None
            if expression is not None:
                found[start] = Candidate(expression, depth, rank)
    return found


def _number(name: str, constants: Mapping[str, Array]) -> Candidate | None:
    """Returns a constant that is one real number."""
    try:
        array = constants[name]
    except UnsupportedNodeError:  # not foldable, or not yet
        return None
    is_real = array.size == 1 and array.dtype.kind == "f"
    return Candidate(float(str(array.reshape(()))), rank=array.ndim) if is_real else None


def _simplify(node: Node, operands: list[Expression]) -> Expression:
    """Returns a node as an expression, with one form for all that is a sum with, or a product by, a number."""
    match node.op, operands:
        case "Cast", [operand]:
            return operand if node.attributes.get("to") == DATA_TYPES["bool"] else None
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
