"""Nodes in which branches join: containers, and activations written as several nodes, such as x * Sigmoid(x)."""

from __future__ import annotations

import math
from collections.abc import Mapping

from minidl.layers import GELU, Hardswish, Parallel, Rescale, Residual, SiLU
from minidl.layers.base import Layer
from minidl.layers.container import ADD, CONCAT, child_path
from minidl.onnx.branches import Join, Series
from minidl.onnx.graph import Node, refuse
from minidl.onnx.node_reader import LayerWithWeights
from minidl.utils.arrays import Array

SUMS = ("Add", "Sum")


def match_activation(join: Join, constants: Mapping[str, Array]) -> list[LayerWithWeights] | None:
    """Returns the layers that compute x * f(x) for f = Sigmoid, HardSigmoid or 1 + Erf(x / sqrt(2)); else None.

    The last is twice GELU, as exporters write it before opset 20, with a factor of 1/2 after it.
    """
    if join.node.op != "Mul" or join.node.domain:
        return None
    match sorted(join.branches, key=len):
        case [[], [Node(op="Sigmoid", domain="")]]:
            return [LayerWithWeights(SiLU())]
        case [[], [Node(op="HardSigmoid", domain="", attributes=attributes)]]:
            sixth = math.isclose(attributes.get("alpha", 0.2), 1 / 6, rel_tol=1e-6)
            return [LayerWithWeights(Hardswish())] if sixth and attributes.get("beta", 0.5) == 0.5 else None
        case [
            [],
            [Node(op="Div" | "Mul", domain="") as scale, Node(op="Erf", domain=""), Node(op="Add", domain="") as one],
        ]:
            divisor = _number(scale, constants)
            divisor = 1 / divisor if scale.op == "Mul" and divisor else divisor
            is_compatible = math.isclose(divisor, math.sqrt(2), rel_tol=1e-6) and _number(one, constants) == 1
            divides_x = scale.op == "Mul" or scale.inputs[1] in constants  # and not sqrt(2) / x
            return [LayerWithWeights(GELU()), LayerWithWeights(Rescale(2.0))] if is_compatible and divides_x else None
    return None


def _number(node: Node, constants: Mapping[str, Array]) -> float:
    """Returns the constant input of a node if it is a single number; else 0."""
    arrays = [constants[name] for name in node.inputs if name in constants]
    return float(arrays[0].reshape(())) if len(arrays) == 1 and arrays[0].size == 1 else 0.0


def joined_branches(join: Join, rank: int) -> list[Series]:
    """Returns the branches that a container adds up or concatenates, in order; nested sums are one sum.

    Raises ValueError for other joins.
    """
    node = join.node
    if node.op not in (*SUMS, "Concat") or node.domain:
        refuse(node, "expected branches that join in Add, Sum or Concat: no container of minidl does that")
    if len(node.inputs) != len(join.branches):
        refuse(node, "expected only branches as inputs, got a constant as well")
    if node.op == "Concat":
        if (axis := node.attributes.get("axis")) not in (1, 1 - rank):
            refuse(node, f"expected axis=1, the channels, got {axis}")
        return join.branches
    return _flatten_sum(join)


def _flatten_sum(join: Join) -> list[Series]:
    """Returns the terms of nested sums of two: a, b, c for (a + b) + c or c + (a + b)."""
    if len(join.branches) == 2:
        for branch, other in (join.branches, join.branches[::-1]):
            match branch:
                case [Join(node=Node(op="Add" | "Sum", domain="", inputs=inputs)) as inner]:
                    if len(inputs) == len(inner.branches):
                        return [*_flatten_sum(inner), other]
    return join.branches


def make_container(op: str, branches: list[list[LayerWithWeights]]) -> LayerWithWeights:
    """Returns a Residual for a sum of two branches, the longer one as its body; else a Parallel."""
    layers = [[made.layer for made in branch] for branch in branches]
    if op in SUMS and len(branches) == 2:
        body, shortcut = sorted((0, 1), key=lambda i: -len(branches[i]))
        names = {body: "body", shortcut: "shortcut"}
        layer: Layer = Residual(*layers[body], shortcut=layers[shortcut] or None)
    else:
        names = {i: f"branches.{i}" for i in range(len(branches))}
        layer = Parallel(*layers, join=CONCAT if op == "Concat" else ADD)
    weights: dict[str, Array] = {}
    sources: list[tuple[Node, str]] = []
    for i, branch in enumerate(branches):
        for place, made in enumerate(branch):
            weights |= {f"{child_path(names[i], place)}.{name}": array for name, array in made.weights.items()}
            sources += made.sources if made.weights else []
    return LayerWithWeights(layer, weights, sources)
