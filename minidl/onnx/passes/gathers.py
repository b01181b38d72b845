"""Rewriting: nodes of several outputs, and groups of nodes that are one operator, as nodes that layers can express."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from minidl.onnx.constant_folding import Constants
from minidl.onnx.graph import DATA_TYPES, INDEX_TYPES, REWRITTEN, Graph, Node
from minidl.onnx.passes.input_cast import INTEGERS

# Operators of the domain REWRITTEN
STRIDED_VIEW = "Gather"  # the elements of an array, flattened with the batch, at the indices of input 1
SPLIT_PART = "Split"  # one output of a Split: part `index` of `count` equal ones, or `start` to `stop` of `size`

NUMBERS = (DATA_TYPES["float32"], DATA_TYPES["float64"], *INDEX_TYPES)  # they have all indices of rows
MOVES = {  # operators whose outputs are elements of their first input; of all inputs for Concat
    *("Concat", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"),
}


class Lookup(Node):
    """A Gather of constant rows at floats, which are whole numbers."""


def expand_splits(graph: Graph, constants: Constants) -> Graph:
    """Returns the graph with a node for each output of a Split."""
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.op == "Split" and not node.domain and len(node.outputs) > 1:
            nodes += _split_parts(node, constants) or [node]
        else:
            nodes.append(node)
    return replace(graph, nodes=nodes)


def _split_parts(node: Node, constants: Constants) -> list[Node] | None:
    """Returns the nodes of a Split; None if its sizes are not constant or not those of its outputs."""
    sizes, count = node.attributes.get("split"), len(node.outputs)
    if len(node.inputs) > 1 and node.inputs[1]:
        if (found := constants.find(node.inputs[1])) is None:
            return None
        sizes = found.reshape(-1).tolist()
    if {len(sizes or node.outputs), node.attributes.get("num_outputs", count)} != {count} or min(sizes or [0]) < 0:
        return None
    ends = None if sizes is None else np.cumsum([0, *sizes]).tolist()
    parts = []
    for i, output in enumerate(node.outputs):
        extent = {"index": i, "count": count}
        if ends is not None:
            extent = {"start": ends[i], "stop": ends[i + 1], "size": ends[-1]}
        attributes = {"axis": node.attributes.get("axis", 0), **extent}
        parts.append(Node(SPLIT_PART, node.name, node.inputs[:1], [output], attributes, node.doc, REWRITTEN))
    return parts


def merge_strided_views(graph: Graph, constants: Constants) -> Graph:
    """Returns the graph with one node for a Gather from the flattened batch: PyTorch's exporter writes a view so."""
    flat = {
        node.outputs[0]: node.inputs[0]
        for node in graph.nodes
        if node.op == "Reshape" and not node.domain and _is_flattening(node, constants)
    }
    nodes = [
        replace(node, op=STRIDED_VIEW, domain=REWRITTEN, inputs=[flat[node.inputs[0]], node.inputs[1]], attributes={})
        if is_gather_of_rows(node) and node.inputs[0] in flat
        else node
        for node in graph.nodes
    ]
    return replace(graph, nodes=nodes) if flat else graph


def _is_flattening(node: Node, constants: Constants) -> bool:
    shape = constants.find(node.inputs[1]) if len(node.inputs) > 1 else None
    return shape is not None and shape.tolist() == [-1]


def expect_float_indices(graph: Graph, constants: Constants) -> Graph:
    """Returns the graph with Gathers of constant rows at whole numbers that are floats, without their Cast to integers.

    The indices are elements of the graph's input: a Cast of other values could change them. A graph input of integers
    gets the dtype of the rows.
    """
    casts = {
        node.outputs[0]: node.inputs[0]
        for node in graph.nodes
        if node.op == "Cast" and not node.domain and node.attributes.get("to") in INDEX_TYPES
    }
    moved = _find_elements(graph, constants)
    nodes, dtype = list[Node](), ""
    for node in graph.nodes:
        rows = constants.find(node.inputs[0]) if is_gather_of_rows(node) and node.inputs[1] in moved else None
        if rows is not None and rows.dtype.kind == "f":
            indices, dtype = node.inputs[1], str(rows.dtype)
            while indices in casts:
                indices = casts[indices]
            node = Lookup(node.op, node.name, [node.inputs[0], indices], node.outputs, node.attributes, node.doc)
        nodes.append(node)
    inputs = [replace(value, dtype=dtype) if value.dtype in INTEGERS and dtype else value for value in graph.inputs]
    return replace(graph, nodes=nodes, inputs=inputs)


def _find_elements(graph: Graph, constants: Constants) -> set[str]:
    """Returns the values that consist of elements of the graph's inputs, which may be of another dtype."""
    found = {value.name for value in graph.inputs}
    for node in graph.nodes:
        moves = node.op in MOVES and node.domain in ("", REWRITTEN)
        if node.op == "Cast" and not node.domain:
            moves = node.attributes.get("to") in NUMBERS
        sources = node.inputs if node.op == "Concat" else node.inputs[:1]
        others = node.inputs[len(sources) :]
        if moves and found.issuperset(sources) and all(name in constants for name in others if name):
            found.update(node.outputs)
    return found


def is_gather_of_rows(node: Node) -> bool:
    """True if a node is a Gather along the first axis."""
    return node.op == "Gather" and not node.domain and node.attributes.get("axis", 0) == 0
