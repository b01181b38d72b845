"""Activations that exporters write as several nodes, such as x * Sigmoid(x): found as expressions of one value x."""

from __future__ import annotations

import math
from dataclasses import replace

from minidl.layers import (
    CELU,
    GELU,
    Hardshrink,
    Hardswish,
    LogSigmoid,
    Mish,
    Rescale,
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
from minidl.onnx.constant_folding import Constants
from minidl.onnx.graph import Graph, Names, Node
from minidl.onnx.passes.expressions import Candidate, Expression, Expressions

ACTIVATION = "Activation"  # of the domain REWRITTEN. layer: of this input; rank: the most axes of its constants
ROOT_OPS = {"Add", "Div", "Log", "Mul", "Neg", "Sub", "Where"}  # last nodes of activations
PARTS = {  # nodes of activations
    *(*ROOT_OPS, "Abs", "Cast", "Clip", "Elu", "Erf", "Greater", "HardSigmoid", "Less", "LessOrEqual", "Or", "Pow"),
    *("Relu", "Sigmoid", "Softplus", "Sqrt", "Tanh"),
}


def fuse_activations(graph: Graph) -> Graph:
    """Returns the graph with one node for each activation that is written as several; the others stay as they are."""
    constants = Constants(graph)

    def read_number(node: Node, name: str) -> Candidate | None:
        """Returns a constant that is one real number."""
        array = constants.find(name)
        if array is None or array.size != 1 or array.dtype.kind != "f":
            return None
        return Candidate(float(str(array.reshape(()))), rank=array.ndim)

    def fuse(root: Node, start: str, candidate: Candidate) -> Node | None:
        layer = match_activation(candidate.expression) if root.op in ROOT_OPS else None
        attributes = {"layer": layer, "rank": candidate.rank}
        return None if layer is None else root.rewritten(ACTIVATION, inputs=[start], attributes=attributes)

    return Expressions(graph, PARTS, constants, read_number).rewrite(fuse)


def expand_means(graph: Graph) -> Graph:
    """Returns the graph with a sum, and a division by their number, for each mean of several values."""
    names, nodes = Names(graph), list[Node]()
    for node in graph.nodes:
        if node.op != "Mean" or node.domain or not node.outputs or not node.inputs:
            nodes.append(node)
            continue
        if len(node.inputs) == 1:
            nodes.append(replace(node, op="Identity", alias="Mean"))
            continue
        total = names.new(f"{node.outputs[0]}.sum")
        attributes = {"layer": Rescale(1 / len(node.inputs)), "rank": 0}
        nodes.append(replace(node, op="Sum", outputs=[total], alias="Mean", origin=node.outputs[0]))
        nodes.append(node.rewritten(ACTIVATION, inputs=[total], attributes=attributes))
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
