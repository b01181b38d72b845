"""Export of layers that are not minidl's: their method `onnx` adds nodes, which are checked before they are used."""

from __future__ import annotations

from minidl.layers.base import Layer
from minidl.onnx import model_file
from minidl.onnx.graph import Graph, Node, Value
from minidl.onnx.node_writer import NodeWriter


def write_custom(nodes: list[Node], layer: Layer, path: str, label: str, x: str) -> str:
    """Adds the nodes of a user's layer by its method `onnx(writer, x)`; returns the name of its output.

    label: the layer's name in errors. Raises ValueError for a layer without the method, and for nodes that are not
    valid ONNX or give another shape; TypeError for another result; and what the method itself raises of the two.
    """
    write = getattr(layer, "onnx", None)
    if not callable(write):
        raise ValueError(
            f"{label}: expected one of minidl's layers, or one with a method onnx(writer, x), got one without it"
        )
    added: list[Node] = []
    try:
        end = write(NodeWriter(added, path, layer), x)
        if not isinstance(end, str):
            raise TypeError(f"onnx: expected the name of its output, got {end!r}")
        if end != x and all(end not in node.outputs for node in added):
            raise ValueError(f"onnx: expected the output of a node that it added, got {end!r}")
        if added:
            model_file.check(_graph_of(added, layer, path, x, end))
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{label}: {error}") from error
    nodes += added
    return end


def _graph_of(nodes: list[Node], layer: Layer, path: str, x: str, end: str) -> Graph:
    """Returns the layer as a graph of its own, in which its parameters are inputs."""
    values = {name: param.value for name, param in layer.params.items()} | layer.buffers
    inputs = [Value(f"{path}.{name}", layer.dtype, list(array.shape)) for name, array in values.items()]
    return Graph(
        [*nodes, Node("Identity", f"{path}.output", [end], [f"{path}.output"])],
        {},
        [Value(x, layer.dtype, ["N", *layer.in_shape]), *inputs],
        [Value(f"{path}.output", layer.dtype, ["N", *layer.out_shape])],
    )
