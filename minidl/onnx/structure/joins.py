"""Joins of branches: containers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from minidl.layers import Outputs, Parallel, Rescale, Reshape, Residual, Upsample2D
from minidl.layers.base import Layer
from minidl.layers.container import child_path
from minidl.layers.join import ADD, CONCAT, MULTIPLY, is_gate
from minidl.onnx.graph import REWRITTEN, Graph, Node, ValueInfo, refuse
from minidl.onnx.node_reader import LayerWithWeights
from minidl.onnx.structure.regions import Join, Series
from minidl.utils.arrays import Array
from minidl.utils.validation import Shape

SUM_OPS, PRODUCT = ("Add", "Sum"), "Mul"
OUTPUTS = "Outputs"  # of the domain REWRITTEN: the node that stands for the end of several outputs


def check_join(node: Node, n_branches: int, rank: int) -> None:
    """Raises ValueError for nodes that join branches in a way that no container does."""
    if is_end(node):
        return
    if node.op not in (*SUM_OPS, PRODUCT, "Sub", "Concat") or node.domain:
        refuse(node, "expected branches joined by Add, Sub, Sum, Mul or Concat: no container of minidl does that")
    if len(node.inputs) != n_branches:
        refuse(node, "expected branches only, got a constant among them")
    if node.op == "Concat" and (axis := node.attributes.get("axis")) not in (1, 1 - rank):
        refuse(node, f"expected axis=1, the channels, got {axis}")


def is_end(node: Node) -> bool:
    """True for the node that stands for the end of several outputs."""
    return node.op == OUTPUTS and node.domain == REWRITTEN


def with_one_end(graph: Graph) -> Graph:
    """Returns a graph of several outputs with a node that reads all of them and has the only output."""
    if len(graph.outputs) == 1:
        return graph
    names = [value.name for value in graph.outputs]
    node = Node(OUTPUTS, "", names, [", ".join(names)], domain=REWRITTEN)
    return replace(graph, nodes=[*graph.nodes, node], outputs=[ValueInfo(node.outputs[0], "", None)])


def make_outputs(names: Sequence[str], branches: list[list[LayerWithWeights]]) -> LayerWithWeights:
    """Returns the Outputs of branches, with names of the graph that minidl allows: without dots, for example."""
    known = list[str]()
    for name in names:
        own = re.sub(r"[./:]", "_", name)
        own = f"output_{own}" if own == "val" or own.startswith("val_") else own
        known.append(own if own not in known else f"{own}_{len(known)}")
    layer = Outputs(**{k: [weighted.layer for weighted in b] for k, b in zip(known, branches, strict=True)})
    return _with_weights(layer, known, branches)


def get_branches(join: Join, rank: int) -> list[Series]:
    """Returns the branches that a container adds, multiplies or concatenates, in order; nested sums are flattened.

    Raises ValueError for nodes that join branches in another way.
    """
    check_join(join.node, len(join.branches), rank)
    if join.node.op in ("Concat", "Sub", OUTPUTS):
        return join.branches
    return _flatten(join, (PRODUCT,) if join.node.op == PRODUCT else SUM_OPS)


def _flatten(join: Join, ops: tuple[str, ...]) -> list[Series]:
    """Returns the summands or factors; a + b + c is a sum of two, of which the first or the second is a sum itself."""
    if len(join.branches) == 2:
        for branch, other in (join.branches, join.branches[::-1]):
            match branch:
                case [Join(node=Node(op=op, domain="", inputs=inputs)) as inner]:
                    if op in ops and len(inputs) == len(inner.branches):
                        return [*_flatten(inner, ops), other]
    return join.branches


def broadcast_product(branches: list[list[LayerWithWeights]], shapes: list[Shape]) -> Shape | None:
    """Prepares the branches of a product, whose outputs have these shapes, for broadcasting.

    A gate (c, 1, 1) needs no expansion to (c, h, w). Stacked gates (k, c, 1, 1) and images (k, c, h, w) get k * c
    channels: returns the shape of the product, for a Reshape after it; None if it has that already.
    """
    full = max(shapes, key=math.prod)
    for i, branch in enumerate(branches):
        others = [shape for j, shape in enumerate(shapes) if j != i]
        if full in others and branch and _is_expansion(branch[-1].layer, shapes[i]):
            branch.pop()
            shapes[i] = (full[0], *(1,) * (len(full) - 1))
    same = [[a == b for a, b in zip(shape, full, strict=False)] for shape in shapes if shape != full]
    if not same or any(len(shape) != len(full) or is_gate(shape) for shape in shapes):
        return None
    lead = min(flags.index(False) for flags in same)
    for branch, shape in zip(branches, shapes, strict=True):
        branch.append(LayerWithWeights(Reshape((math.prod(shape[:lead]), *shape[lead:]))))
    return full


def _is_expansion(layer: Layer, shape: Shape) -> bool:
    """True if the layer repeats one pixel over an image, its output of this shape."""
    return isinstance(layer, Upsample2D) and layer.mode == "nearest" and _pair(layer.scale) == shape[1:]


def _pair(scale: Any) -> tuple[Any, ...]:
    return tuple(scale) if isinstance(scale, (tuple, list)) else (scale, scale)


def make_container(op: str, branches: list[list[LayerWithWeights]]) -> LayerWithWeights:
    """Returns a Residual for the sum of two branches, with the longer one as its body; else a Parallel."""
    if op == "Sub":
        branches = [branches[0], [*branches[1], LayerWithWeights(Rescale(-1.0))]]
    layers = [[weighted.layer for weighted in branch] for branch in branches]
    if op in (*SUM_OPS, "Sub") and len(branches) == 2:
        body, shortcut = sorted((0, 1), key=lambda i: -len(branches[i]))
        names = {body: "body", shortcut: "shortcut"}
        layer: Layer = Residual(*layers[body], shortcut=layers[shortcut] or None)
    else:
        names = {i: f"branches.{i}" for i in range(len(branches))}
        layer = Parallel(*layers, join={"Concat": CONCAT, PRODUCT: MULTIPLY}.get(op, ADD))
    return _with_weights(layer, names, branches)


def _with_weights(
    layer: Layer, names: Mapping[int, str] | Sequence[str], branches: list[list[LayerWithWeights]]
) -> LayerWithWeights:
    """Returns a container with the weights of its branches, whose names are those of its parameters."""
    weights: dict[str, Array] = {}
    sources: list[tuple[Node, str]] = []
    for i, branch in enumerate(branches):
        for position, weighted in enumerate(branch):
            weights |= {f"{child_path(names[i], position)}.{name}": array for name, array in weighted.weights.items()}
            sources += weighted.sources if weighted.weights else []
    return LayerWithWeights(layer, weights, sources)
