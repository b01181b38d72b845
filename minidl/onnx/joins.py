"""Joins of branches: containers."""

from __future__ import annotations

from minidl.layers import Parallel, Residual
from minidl.layers.base import Layer
from minidl.layers.container import ADD, CONCAT, child_path
from minidl.onnx.branches import Join, Series
from minidl.onnx.graph import Node, refuse
from minidl.onnx.node_reader import LayerWithWeights
from minidl.utils.arrays import Array

SUM_OPS = ("Add", "Sum")


def get_branches(join: Join, rank: int) -> list[Series]:
    """Returns the branches that a container adds or concatenates, in order; nested sums are flattened.

    Raises ValueError for nodes that join branches in another way.
    """
    node = join.node
    if node.op not in (*SUM_OPS, "Concat") or node.domain:
        refuse(node, "expected branches joined by Add, Sum or Concat: no container of minidl does that")
    if len(node.inputs) != len(join.branches):
        refuse(node, "expected branches only, got a constant among them")
    if node.op == "Concat":
        if (axis := node.attributes.get("axis")) not in (1, 1 - rank):
            refuse(node, f"expected axis=1, the channels, got {axis}")
        return join.branches
    return _flatten_sum(join)


def _flatten_sum(join: Join) -> list[Series]:
    """Returns the summands; a + b + c is a sum of two, of which the first or the second is a sum itself."""
    if len(join.branches) == 2:
        for branch, other in (join.branches, join.branches[::-1]):
            match branch:
                case [Join(node=Node(op="Add" | "Sum", domain="", inputs=inputs)) as inner]:
                    if len(inputs) == len(inner.branches):
                        return [*_flatten_sum(inner), other]
    return join.branches


def make_container(op: str, branches: list[list[LayerWithWeights]]) -> LayerWithWeights:
    """Returns a Residual for the sum of two branches, with the longer one as its body; else a Parallel."""
    layers = [[weighted.layer for weighted in branch] for branch in branches]
    if op in SUM_OPS and len(branches) == 2:
        body, shortcut = sorted((0, 1), key=lambda i: -len(branches[i]))
        names = {body: "body", shortcut: "shortcut"}
        layer: Layer = Residual(*layers[body], shortcut=layers[shortcut] or None)
    else:
        names = {i: f"branches.{i}" for i in range(len(branches))}
        layer = Parallel(*layers, join=CONCAT if op == "Concat" else ADD)
    weights: dict[str, Array] = {}
    sources: list[tuple[Node, str]] = []
    for i, branch in enumerate(branches):
        for position, weighted in enumerate(branch):
            weights |= {f"{child_path(names[i], position)}.{name}": array for name, array in weighted.weights.items()}
            sources += weighted.sources if weighted.weights else []
    return LayerWithWeights(layer, weights, sources)
