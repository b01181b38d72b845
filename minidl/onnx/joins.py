"""Nodes in which branches meet: containers, and layers that ONNX has no operator for, such as x * Sigmoid(x)."""

from __future__ import annotations

from minidl.arrays import Array
from minidl.container import ADD, CONCAT, place_of
from minidl.layer import Layer
from minidl.layers import Hardswish, Parallel, Residual, SiLU
from minidl.onnx.branches import Chain, Join
from minidl.onnx.graph import Node, refuse
from minidl.onnx.reading import Made

SUMS = ("Add", "Sum")


def as_one_layer(join: Join) -> Layer | None:
    """The layer that x * f(x) is, for f = Sigmoid or HardSigmoid; None for all else."""
    if join.node.op != "Mul" or join.node.domain:
        return None
    match sorted(join.branches, key=len):
        case [[], [Node(op="Sigmoid", domain="")]]:
            return SiLU()
        case [[], [Node(op="HardSigmoid", domain="", attributes=attributes)]]:
            sixth = abs(attributes.get("alpha", 0.2) - 1 / 6) < 1e-7 and attributes.get("beta", 0.5) == 0.5
            return Hardswish() if sixth else None
    return None


def branches_of(join: Join, rank: int) -> list[Chain]:
    """The branches that a container adds up or concatenates: of sums of sums, all of them, in their order.

    Raises ValueError for nodes in which branches meet in another way.
    """
    node = join.node
    if node.op not in (*SUMS, "Concat") or node.domain:
        refuse(node, f"expected branches that meet in Add, Sum or Concat: no container of minidl does that")
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
        for i, branch in enumerate(join.branches):
            match branch:
                case [Join(node=Node(op="Add" | "Sum", domain="", inputs=inputs)) as inner] if len(inputs) == len(inner.branches):
                    return [*_summands(inner), join.branches[1 - i]]
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
    for i, branch in enumerate(branches):
        for place, made in enumerate(branch):
            weights |= {f"{place_of(names[i], place)}.{name}": array for name, array in made.weights.items()}
    return Made(layer, weights)
