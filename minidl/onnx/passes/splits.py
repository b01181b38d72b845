"""Splits: a node for each output, since each becomes the beginning of a branch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from minidl.onnx.constant_folding import Constants
from minidl.onnx.graph import Graph, Node

SPLIT_PART = "SplitPart"  # of the domain REWRITTEN: part `index` of `count` equal ones, or `start` to `stop` of `size`


def expand_splits(graph: Graph) -> Graph:
    """Returns the graph with a node for each output of a Split."""
    constants, nodes = Constants(graph), list[Node]()
    for node in graph.nodes:
        if node.op == "Split" and not node.domain:
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
    given = count if sizes is None else len(sizes)
    if {given, node.attributes.get("num_outputs", count)} != {count} or min(sizes or [0]) < 0:
        return None
    ends = None if sizes is None else np.cumsum([0, *sizes]).tolist()
    parts = []
    for i, output in enumerate(node.outputs):
        extent = {"index": i, "count": count}
        if ends is not None:
            extent = {"start": ends[i], "stop": ends[i + 1], "size": ends[-1]}
        attributes = {"axis": node.attributes.get("axis", 0), **extent}
        parts.append(node.rewritten(SPLIT_PART, inputs=node.inputs[:1], outputs=[output], attributes=attributes))
    return parts
