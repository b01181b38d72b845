"""Joins of branches: containers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from minidl.layers import Outputs, Parallel, Rescale, Residual, Upsample2D
from minidl.layers.base import Layer
from minidl.layers.container import child_path
from minidl.layers.join import ADD, CONCAT, DIVIDE, MAXIMUM, MINIMUM, MULTIPLY, POWER
from minidl.onnx.graph import NO_SUCH_LAYER, REWRITTEN, Graph, Node, ValueInfo, no_such_layer, refuse
from minidl.onnx.node_reader import LayerWithWeights
from minidl.onnx.operators import find_read_function
from minidl.onnx.structure.regions import Join, Series
from minidl.utils.arrays import Array
from minidl.utils.validation import Shape

SUM_OPS = ("Add", "Sum")
JOINS = {
    "Add": ADD, "Concat": CONCAT, "Div": DIVIDE, "Max": MAXIMUM, "Min": MINIMUM, "Mul": MULTIPLY,
    "Pow": POWER, "Sub": ADD, "Sum": ADD,
}  # fmt: skip
FLAT = {"Add": SUM_OPS, "Sum": SUM_OPS, "Mul": ("Mul",), "Max": ("Max",), "Min": ("Min",)}  # nested ones become one
OUTPUTS = "Outputs"  # of the domain REWRITTEN: the node that stands for the end of several outputs


def check_join(node: Node, n_branches: int) -> None:
    """Raises ValueError for nodes that join branches in a way that no container does."""
    if is_end(node):
        return
    if node.op not in JOINS or node.domain:
        if find_read_function(node):
            refuse(node, f"expected constants for all inputs except one, got {n_branches} computed values")
        reason = no_such_layer(node)
        if reason == NO_SUCH_LAYER and not node.domain:
            reason = f"expected branches joined by {', '.join(sorted(JOINS))}: no container of minidl does that"
        refuse(node, reason)
    if len(node.inputs) != n_branches:
        refuse(node, "expected branches only, got a constant among them")


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


def get_branches(join: Join) -> list[Series]:
    """Returns the branches that a container joins, in order; nested sums, products and maxima are flattened.

    Raises ValueError for nodes that join branches in another way.
    """
    check_join(join.node, len(join.branches))
    return _flatten(join, FLAT[join.node.op]) if join.node.op in FLAT else join.branches


def _flatten(join: Join, ops: tuple[str, ...]) -> list[Series]:
    """Returns the operands; a + b + c is a sum of two, of which the first or the second is a sum itself."""
    if len(join.branches) == 2:
        for branch, other in (join.branches, join.branches[::-1]):
            match branch:
                case [Join(node=Node(op=op, domain="", inputs=inputs)) as inner]:
                    if op in ops and len(inputs) == len(inner.branches):
                        return [*_flatten(inner, ops), other]
    return join.branches


def concat_axis(node: Node, shapes: list[Shape]) -> int:
    """Returns the axis of a Concat, without the batch; raises ValueError unless it is one."""
    axis, rank = node.attributes.get("axis"), len(shapes[0]) + 1
    if not isinstance(axis, int) or not -rank <= axis < rank or axis % rank == 0:
        refuse(node, f"expected an axis from 1 to {rank - 1}, after the batch, got {axis}")
    return axis % rank - 1


def drop_expansions(branches: list[list[LayerWithWeights]], shapes: list[Shape]) -> None:
    """Removes expansions of (c, 1, 1) to (c, h, w) where another branch has that shape: a join broadcasts."""
    full = max(shapes, key=math.prod)
    for i, branch in enumerate(branches):
        others = [shape for j, shape in enumerate(shapes) if j != i]
        if full in others and branch and _is_expansion(branch[-1].layer, shapes[i]):
            branch.pop()
            shapes[i] = (full[0], *(1,) * (len(full) - 1))


def _is_expansion(layer: Layer, shape: Shape) -> bool:
    """True if the layer repeats one pixel over an image, its output of this shape."""
    return isinstance(layer, Upsample2D) and layer.mode == "nearest" and _pair(layer.scale) == shape[1:]


def _pair(scale: Any) -> tuple[Any, ...]:
    return tuple(scale) if isinstance(scale, (tuple, list)) else (scale, scale)


def make_container(op: str, branches: list[list[LayerWithWeights]], axis: int = 0) -> LayerWithWeights:
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
        layer = Parallel(*layers, join=JOINS[op], axis=axis)
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
