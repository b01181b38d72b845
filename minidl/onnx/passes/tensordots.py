"""Products over the last axis as TensorFlow writes them: Reshape to a matrix, MatMul, and Reshape back."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from minidl.onnx.constant_folding import Constants
from minidl.onnx.graph import REWRITTEN, Graph, Node

TENSORDOT = "MatMul"  # of the domain REWRITTEN: inputs x, weight, and the shapes of the two Reshapes


@dataclass
class TensordotNode(Node):
    """A product over the last axis, in place of the last of its nodes; and these, in order."""

    parts: list[Node] = field(kw_only=True)


def merge_tensordots(graph: Graph, constants: Constants) -> list[Node]:
    """Returns the nodes, with one for each Reshape, MatMul with a constant matrix, and Reshape in series.

    Whether their shapes make them a product over the last axis depends on the shape of x.
    """
    readers: dict[str, int] = dict.fromkeys((value.name for value in graph.outputs), 1)
    for node in graph.nodes:
        for name in node.inputs:
            readers[name] = readers.get(name, 0) + 1
    single = {node.outputs[0]: node for node in graph.nodes if node.outputs and readers.get(node.outputs[0]) == 1}

    def find(name: str, op: str) -> Node | None:
        node = single.get(name)
        return node if node is not None and node.op == op and not node.domain and len(node.inputs) == 2 else None

    nodes: dict[int, Node | None] = {id(node): node for node in graph.nodes}
    for last in graph.nodes:
        if last.op != "Reshape" or last.domain or len(last.inputs) != 2:
            continue
        product = find(last.inputs[0], "MatMul")
        first = find(product.inputs[0], "Reshape") if product else None
        if product is None or first is None:
            continue
        if not all(node.inputs[1] in constants for node in (first, product, last)):
            continue
        nodes[id(product)] = nodes[id(first)] = None
        nodes[id(last)] = TensordotNode(
            TENSORDOT, product.name, [first.inputs[0], product.inputs[1], first.inputs[1], last.inputs[1]],
            last.outputs, domain=REWRITTEN, parts=[first, product, last],
        )  # fmt: skip
    return [node for node in nodes.values() if node is not None]


def is_over_last_axis(node: TensordotNode, graph: Graph, rank: int) -> bool:
    """True if the product of x of this rank can be one over its last axis, not of whole examples.

    It has the rank of x, ends with the columns of the matrix, and has several pixels. Other sizes are not known yet.
    """
    probe = Constants(graph)
    probe.shapes = {of.inputs[0]: tuple(range(2, 2 + rank)) for of in graph.nodes if of.op == "Shape"}
    weight, shape = (probe.find(node.inputs[i]) for i in (1, 3))
    if weight is None or shape is None or weight.ndim != 2 or shape.shape != (rank,):
        return False
    return shape[-1] == weight.shape[1] and math.prod(shape[1:-1].tolist()) != 1
