"""Products over the last axis as TensorFlow writes them: Reshape to a matrix, MatMul, and Reshape back."""

from __future__ import annotations

import math
from dataclasses import replace

from minidl.onnx.constant_folding import Constants
from minidl.onnx.graph import REWRITTEN, Graph, Node
from minidl.onnx.passes.expressions import Candidate, Expressions, name_constant

# Of the domain REWRITTEN: inputs x, weight, and the shapes of the two Reshapes. last: the second Reshape, which it
# stands for; or axes: of the Transpose that has been moved after it.
TENSORDOT = "Tensordot"


def merge_tensordots(graph: Graph) -> Graph:
    """Returns the graph with one node in place of the last of each Reshape, MatMul and Reshape in series.

    Whether their shapes make them a product over the last axis depends on the rank of x: see `is_over_last_axis`.
    """

    def merge(last: Node, start: str, candidate: Candidate) -> Node | None:
        match candidate.expression:
            case "Reshape", ("MatMul", ("Reshape", "x", ("Constant", rows)), ("Constant", weight)), ("Constant", shape):
                product, inputs = expressions.producers[last.inputs[0]], [start, weight, rows, shape]
                merged = product.rewritten(TENSORDOT, inputs=inputs, outputs=last.outputs, attributes={"last": last})
                return merged if expressions.is_closed(start, last) else None
        return None

    expressions = Expressions(graph, ("MatMul", "Reshape"), Constants(graph), name_constant)
    return expressions.rewrite(merge)


def unmerge_tensordots(graph: Graph) -> Graph:
    """Returns the graph with the nodes of the products that no Transpose has been moved after."""
    nodes = list[Node]()
    for node in graph.nodes:
        if node.domain == REWRITTEN and "last" in node.attributes:
            last = node.attributes["last"]
            node = replace(last, inputs=[last.inputs[0], node.inputs[3]])
        nodes.append(node)
    return replace(graph, nodes=nodes)


def is_over_last_axis(node: Node, graph: Graph, rank: int) -> bool:
    """True if the product of x of this rank can be one over its last axis, not of whole examples.

    It has the rank of x, ends with the columns of the matrix, and has several pixels. Other sizes are not known yet.
    """
    probe = Constants(graph)
    probe.shapes = {of.inputs[0]: tuple(range(2, 2 + rank)) for of in graph.nodes if of.op == "Shape"}
    weight, shape = (probe.find(node.inputs[i]) for i in (1, 3))
    if weight is None or shape is None or weight.ndim != 2 or shape.shape != (rank,):
        return False
    return shape[-1] == weight.shape[1] and math.prod(shape[1:-1].tolist()) != 1
