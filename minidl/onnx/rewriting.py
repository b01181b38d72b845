"""Rewriting: nodes of several outputs, and groups of nodes that are one operator, as nodes that layers can express."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from minidl.onnx.constant_folding import Constants
from minidl.onnx.graph import REWRITTEN, Graph, Node

# Operators of the domain REWRITTEN
STRIDED_VIEW = "Gather"  # the elements of an array, flattened with the batch, at the indices of input 1
SPLIT_PART = "Split"  # one output of a Split: part `index` of `count` equal ones, or `start` to `stop`


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
    if len(sizes or node.outputs) != count or node.attributes.get("num_outputs", count) != count:
        return None
    ends = None if sizes is None else np.cumsum([0, *sizes]).tolist()
    parts = []
    for i, output in enumerate(node.outputs):
        extent = {"index": i, "count": count} if ends is None else {"start": ends[i], "stop": ends[i + 1]}
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
        if node.op == "Gather" and not node.domain and node.inputs[0] in flat and node.attributes.get("axis", 0) == 0
        else node
        for node in graph.nodes
    ]
    return replace(graph, nodes=nodes) if flat else graph


def _is_flattening(node: Node, constants: Constants) -> bool:
    shape = constants.find(node.inputs[1]) if len(node.inputs) > 1 else None
    return shape is not None and shape.tolist() == [-1]
