"""Layer norms that exporters write as several nodes, with means over one axis: found as expressions of one value x."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minidl.onnx.constant_folding import Constants
from minidl.onnx.graph import Graph, Node
from minidl.onnx.passes.expressions import Candidate, Expression, Expressions, name_constant

# Of the domain REWRITTEN: a norm over one axis, with any constants as scale and bias. view: the shape in which the
# means are subtracted, if the file has a Reshape to it; rank: the most axes of the other constants.
CHANNEL_NORM = "ChannelNorm"
PARTS = {"Add", "Div", "Mul", "Neg", "Pow", "ReduceMean", "Reciprocal", "Reshape", "Sqrt", "Sub"}  # nodes of norms

Terms = tuple[Expression, list[Expression], list[Expression]]  # mean, factor and bias


def merge_layer_norms(graph: Graph) -> Graph:
    """Returns the graph with one node in place of the last of each layer norm that is written as several.

    A norm stays as it is if other nodes read its inner values.
    """
    if not any(node.op == "Sqrt" for node in graph.nodes):
        return graph
    constants = Constants(graph)

    def read_constant(node: Node, name: str) -> Candidate:
        """Returns axes, sizes and exponents by their values, other constants by name."""
        array = constants.find(name) if node.op in ("Pow", "ReduceMean", "Reshape") else None
        if array is not None and node.op != "Pow":
            return Candidate(("Integers", *array.reshape(-1).tolist()))
        if array is not None and array.size == 1 and array.dtype.kind in "if":
            return Candidate(float(array.reshape(())), rank=array.ndim)
        return name_constant(node, name)

    def merge(last: Node, start: str, candidate: Candidate) -> Node | None:
        norm = match_norm(candidate, constants)
        if norm is None or not expressions.is_closed(start, last):
            return None
        affine, attributes = norm
        inputs, alias = [start, *affine], "LayerNormalization"
        return last.rewritten(CHANNEL_NORM, inputs=inputs, attributes=attributes, alias=alias)

    expressions = Expressions(graph, PARTS, constants, read_constant)
    return expressions.rewrite(merge)


def match_norm(candidate: Candidate, constants: Constants) -> tuple[list[str], dict[str, Any]] | None:
    """Returns the scale and bias, by name, and the attributes of the norm that a candidate is; None if it is none."""

    def are_vectors(*terms: Expression) -> bool:
        arrays = [constants.find(term[1]) if term[0] == "Constant" else None for term in terms]
        return all(array is not None and 1 < array.size == max(array.shape) for array in arrays)

    mean, factor, bias = split_norm(candidate.expression, are_vectors) or ((), [], [])
    match factor:
        case [
            *scale,
            ("Reciprocal", ("Sqrt", ("Add", ("Constant", eps), ("ReduceMean", ("Mul", centred, same), axes)))),
        ]:
            epsilon = constants.find(eps)
        case _:
            return None
    match centred, axes:
        case ("Sub", "x", ("ReduceMean", "x", inner)), ("Integers", axis):
            view = list[int]()
        case ("Sub", "x", ("Reshape", ("ReduceMean", "x", inner), ("Integers", *view))), ("Integers", axis):
            pass
        case _:
            return None
    if centred != same or inner != axes or mean not in (centred[2], ("ReduceMean", "x", axes)):
        return None
    if epsilon is None or epsilon.size != 1 or any(term[0] != "Constant" for term in scale + bias):
        return None
    if len(scale) > 1 or len(bias) > 1:
        return None
    names = [name for _, name in (scale or [("Constant", "")] * len(bias)) + bias]
    rank = max(epsilon.ndim, candidate.rank)
    return names, {"axis": axis, "epsilon": float(epsilon.reshape(())), "view": view, "rank": rank}


def split_norm(expression: Expression, are_vectors: Callable[..., bool]) -> Terms | None:
    """Returns the terms of the norm (x - mean) * factor + bias, where the factor is scale / root; None for others.

    PyTorch writes (x - mean) / root * scale + bias before opset 17, TensorFlow x * factor + (bias - mean * factor).
    """
    match expression:
        case ("Div", ("Sub", "x", mean), root):
            return mean, [("Reciprocal", root)], []
        case ("Mul", scale, ("Div", ("Sub", "x", mean), root)) if are_vectors(scale):
            return mean, [scale, ("Reciprocal", root)], []
        case ("Add", bias, ("Mul", scale, ("Div", ("Sub", "x", mean), root))) if are_vectors(scale, bias):
            return mean, [scale, ("Reciprocal", root)], [bias]
        case ("Add", *bias, ("Mul", "x", *factor), ("Mul", *same, mean, -1.0)) if factor == same:
            return mean, factor, bias
        case ("Add", ("Mul", "x", *factor), ("Sub", bias, ("Mul", *same, mean))) if factor == same:
            return mean, factor, [bias]
    return None
