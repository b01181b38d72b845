"""ONNX's recurrent nodes as an import reads them."""

import numpy as np

from minidl.onnx.graph import Graph, Node, ValueInfo
from minidl.onnx.importing import build_model


def recurrent(node):
    """Imports the node with all steps as its output, and with the last one, between Transposes unless `layout` is 1.

    The last state of a cell, which is a third output, is not compared: no layer has it.
    """
    x, *constants = node.inputs
    names = [f"c{i}" if array is not None else "" for i, array in enumerate(constants)]
    attributes, is_first = dict(node.attributes), node("layout", 0) == 1
    node.attributes.clear()
    first, found = 4 - len(node.shape), []
    for place in range(first, min(first + node.outputs, 2)):
        axes = ([1, 0, 2], [[2, 0, 1, 3], [1, 0, 2]][place]) if not is_first else ([0, 1, 2], [*range(4 - place)])
        x_first = np.transpose(x, axes[0])
        nodes = [
            Node("Transpose", "before", ["x"], ["moved"], {"perm": axes[0]}),
            Node(node.op, "node", ["moved", *names], [""] * place + ["y"], attributes),
            Node("Transpose", "after", ["y"], ["scores"], {"perm": axes[1]}),
        ]
        tensors = {name: array for name, array in zip(names, constants, strict=True) if name}
        values = [ValueInfo("x", x.dtype.name, ["N", *x_first.shape[1:]])]
        graph = Graph(nodes, tensors, values, [ValueInfo("scores", x.dtype.name, None)], node.opset)
        found.append(np.transpose(build_model(graph, None).predict(x_first), np.argsort(axes[1])))
    return found
