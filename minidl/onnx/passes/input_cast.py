"""Graphs whose input is integers, such as the bytes of images, and which begin with a Cast to the model's dtype."""

from __future__ import annotations

from dataclasses import replace

from minidl.onnx.graph import DATA_TYPES, Graph, Node

INTEGERS = ("uint8", "int8", "uint16", "int16", "int32", "int64")
FLOATS = ("float32", "float64")


def make_cast(x: str, dtype: str) -> Node:
    """Returns the node that converts the graph's input."""
    return Node("Cast", f"{x}.Cast", [x], [f"{x}.Cast"], {"to": DATA_TYPES[dtype]})


def remove_input_cast(graph: Graph) -> Graph:
    """Returns a graph of integers as one of floats, without its Casts: `predict` converts any real numbers.

    The same graph if its input is of another dtype, or has uses other than Shape and Casts to one dtype.
    """
    if len(graph.inputs) != 1 or graph.inputs[0].dtype not in INTEGERS:
        return graph
    (x,) = graph.inputs
    readers = [node for node in graph.nodes if x.name in node.inputs and (node.op, node.domain) != ("Shape", "")]
    targets = {node.attributes.get("to") if (node.op, node.domain) == ("Cast", "") else None for node in readers}
    dtypes = [dtype for dtype in FLOATS if targets == {DATA_TYPES[dtype]}]
    if not dtypes:
        return graph
    outputs = {node.outputs[0] for node in readers}
    nodes = [
        replace(node, inputs=[x.name if name in outputs else name for name in node.inputs])
        for node in graph.nodes
        if not any(node is reader for reader in readers)
    ]
    return replace(graph, nodes=nodes, inputs=[replace(x, dtype=dtypes[0])])
