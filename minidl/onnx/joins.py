"""Nodes in which branches meet: containers, and layers that ONNX has no operator for, such as x * Sigmoid(x)."""

from __future__ import annotations

import math
from collections.abc import Mapping

from minidl.layers import GELU, Hardswish, Parallel, Rescale, Residual, SiLU
from minidl.layers.base import Layer
from minidl.layers.container import ADD, CONCAT, child_path
from minidl.onnx.branches import Chain, Join
from minidl.onnx.graph import Node, refuse
from minidl.onnx.node_reader import Made
from minidl.utils.arrays import Array

SUMS = ("Add", "Sum")


def composed(join: Join, constants: Mapping[str, Array]) -> list[Made] | None:
    """The layers that x * f(x) is, for f = Sigmoid, HardSigmoid, or 1 + Erf(x / sqrt(2)); None for all else.

    The last is how GELU is written before opset 20, twice as large as it should be and with a factor of 1/2 behind it.
    """
    if join.node.op != "Mul" or join.node.domain:
        return None
    match sorted(join.branches, key=len):
        case [[], [Node(op="Sigmoid", domain="")]]:
            return [Made(SiLU())]
        case [[], [Node(op="HardSigmoid", domain="", attributes=attributes)]]:
            sixth = math.isclose(attributes.get("alpha", 0.2), 1 / 6, rel_tol=1e-6)
            return [Made(Hardswish())] if sixth and attributes.get("beta", 0.5) == 0.5 else None
        case [
            [],
            [Node(op="Div" | "Mul", domain="") as scale, Node(op="Erf", domain=""), Node(op="Add", domain="") as one],
        ]:
            root = _number(scale, constants)
            root = 1 / root if scale.op == "Mul" and root else root
            fits = math.isclose(root, math.sqrt(2), rel_tol=1e-6) and _number(one, constants) == 1
            behind = scale.op == "Mul" or scale.inputs[1] in constants  # and not sqrt(2) / x
            return [Made(GELU()), Made(Rescale(2.0))] if fits and behind else None
    return None


def _number(node: Node, constants: Mapping[str, Array]) -> float:
    """The constant that a node computes with, if it is a single number; else 0."""
    arrays = [constants[name] for name in node.inputs if name in constants]
    return float(arrays[0].reshape(())) if len(arrays) == 1 and arrays[0].size == 1 else 0.0


def branches_of(join: Join, rank: int) -> list[Chain]:
    """The branches that a container adds up or concatenates: of sums of sums, all of them, in their order.

    Raises ValueError for nodes in which branches meet in another way.
    """
    node = join.node
    if node.op not in (*SUMS, "Concat") or node.domain:
        refuse(node, "expected branches that meet in Add, Sum or Concat: no container of minidl does that")
    if len(node.inputs) != len(join.branches):
        refuse(node, "expected branches alone, got a constant beside them")
    if node.op == "Concat":
        if (axis := node.attributes.get("axis")) not in (1, 1 - rank):
            refuse(node, f"expected axis=1, the channels, got {axis}")
        return join.branches
    return _summands(join)


def _summands(join: Join) -> list[Chain]:
    """a + b + c is a sum of two, the first of which is a + b; it may stand second."""
    if len(join.branches) == 2:
        for branch, other in (join.branches, join.branches[::-1]):
            match branch:
                case [Join(node=Node(op="Add" | "Sum", domain="", inputs=inputs)) as inner]:
                    if len(inputs) == len(inner.branches):
                        return [*_summands(inner), other]
    return join.branches


def container(op: str, branches: list[list[Made]]) -> Made:
    """A Residual of two branches that are added, of which the longer one is its body; else a Parallel."""
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
    return Made(layer, weights, sources)
