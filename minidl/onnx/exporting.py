"""Export: from a model to a graph. Each layer writes its nodes; a container writes its layers and their join.

The config of the model, with what matters only in training, is stored in the graph's metadata: `minidl.onnx.importing`
restores the same layers if they still compute what the graph does.
"""

from __future__ import annotations

import json

from minidl.engine.layer_list import from_spec, layer_name, to_spec
from minidl.layers import Block, Parallel, Residual
from minidl.layers.base import Layer
from minidl.layers.container import CONCAT, Container, child_path
from minidl.onnx.graph import Graph, Node, Value
from minidl.onnx.node_writer import NodeWriter
from minidl.onnx.operators import WRITE
from minidl.sequential import Sequential

INPUT, OUTPUT, BATCH_AXIS = "input", "scores", "N"
METADATA_KEY = "minidl"  # of the metadata: the config of the model
COUNTERS_KEY = "counters"  # of the config: buffers that the graph does not use, such as num_batches_tracked


def cast_model(model: Sequential, dtype: str | None) -> Sequential:
    """Returns the model, or a copy in another dtype. Raises ValueError for another name, or too large weights."""
    if dtype in (None, model.dtype):
        return model
    copy = Sequential(from_spec(to_spec(model.layers)), model.input_shape, model.seed, dtype)
    copy.load_state_dict(model.state_dict())
    return copy


def to_graph(model: Sequential) -> Graph:
    """Returns the model as a graph, with copies of its weights.

    Raises ValueError, naming the layer, for a layer without operators in ONNX, and for a model that is not built.
    """
    state, nodes, x = model.state_dict(), list[Node](), INPUT
    for i, layer in enumerate(model.layers):
        x = _write_layer(nodes, layer, str(i), layer_name(i, layer), x)
    _rename_output(nodes, x, OUTPUT)
    used = {value for node in nodes for value in node.inputs}
    tensors = {key: array for key, array in state.items() if key in used}
    counters = {key: float(array) for key, array in state.items() if key not in used}
    return Graph(
        nodes,
        tensors,
        [Value(INPUT, model.dtype, [BATCH_AXIS, *model.input_shape])],
        [Value(OUTPUT, model.dtype, [BATCH_AXIS, *model.output_shape])],
        metadata=_metadata(model, counters),
    )


def _write_layer(nodes: list[Node], layer: Layer, path: str, name: str, x: str) -> str:
    """Adds the nodes of a layer and its children; returns the name of its output. name: of the layer in errors."""
    writer = NodeWriter(nodes, path, layer)
    if type(layer) in WRITE:
        try:
            return WRITE[type(layer)](writer, x)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    if not isinstance(layer, Container) or type(layer) not in (Block, Parallel, Residual):
        raise ValueError(f"{name}: expected one of minidl's layers, got one that ONNX has no operator for")
    ends = []
    for branch, layers in layer.named_branches().items():
        end = x
        for i, (part, what) in enumerate(zip(layers, layer.child_names(branch), strict=True)):
            end = _write_layer(nodes, part, f"{path}.{child_path(branch, i)}", f"{name}: {what}", end)
        ends.append(end)
    if isinstance(layer, Block):
        return ends[0]
    if layer.join == CONCAT:
        return writer.add_node("Concat", *ends, axis=1)
    return writer.add_node("Add" if isinstance(layer, Residual) else "Sum", *ends)


def _rename_output(nodes: list[Node], old: str, new: str) -> None:
    """Renames the output of the last node."""
    nodes[-1].outputs = [new if value == old else value for value in nodes[-1].outputs]


def _metadata(model: Sequential, counters: dict[str, float]) -> dict[str, str]:
    """Returns the config of the model as metadata; nothing if a layer has no config."""
    try:
        config = {**model.get_config(), COUNTERS_KEY: counters}
    except (TypeError, ValueError):
        return {}
    return {METADATA_KEY: json.dumps(config, separators=(",", ":"), sort_keys=True)}
