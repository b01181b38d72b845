"""From a model to a graph: each layer writes its nodes, containers those of their layers and where these meet.

The layers themselves, with all that matters in training alone, stand in the graph's metadata: `minidl.onnx.importing`
makes them again if they still are what the graph says.
"""

from __future__ import annotations

import json

from minidl.engine.layer_list import from_spec, layer_name, to_spec
from minidl.layers import Block, Parallel, Residual
from minidl.layers.base import Layer
from minidl.layers.container import CONCAT, Container, child_path
from minidl.onnx.graph import Graph, Node, Value
from minidl.onnx.node_writer import Place
from minidl.onnx.operators import WRITE
from minidl.sequential import Sequential

INPUT, OUTPUT, BATCH_AXIS = "input", "scores", "N"
RECIPE = "minidl"  # the entry of the metadata in which the layers are told
COUNTERS = "counters"  # in it, what the graph has no use for: how many batches a norm has seen


def in_dtype(model: Sequential, dtype: str | None) -> Sequential:
    """The model, or a copy in another dtype; raises ValueError for what is none, and weights too large for it."""
    if dtype in (None, model.dtype):
        return model
    copy = Sequential(from_spec(to_spec(model.layers)), model.input_shape, model.seed, dtype)
    copy.load_state_dict(model.state_dict())
    return copy


def graph_of(model: Sequential) -> Graph:
    """The model as a graph, with copies of its weights.

    Raises ValueError, naming layer and place, for a layer that ONNX has no operators for; and for a model that is not
    built.
    """
    state, nodes, x = model.state_dict(), list[Node](), INPUT
    for i, layer in enumerate(model.layers):
        x = _written(nodes, layer, str(i), layer_name(i, layer), x)
    _rename(nodes, x, OUTPUT)
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


def _written(nodes: list[Node], layer: Layer, path: str, told: str, x: str) -> str:
    """Adds the nodes of a layer, or of those in it; returns the name of its output. told: what errors call it."""
    place = Place(nodes, path, layer)
    if type(layer) in WRITE:
        try:
            return WRITE[type(layer)](place, x)
        except ValueError as error:
            raise ValueError(f"{told}: {error}") from error
    if not isinstance(layer, Container) or type(layer) not in (Block, Parallel, Residual):
        raise ValueError(f"{told}: expected one of minidl's layers, got one that ONNX has no operator for")
    ends = []
    for branch, layers in layer.named_branches().items():
        end = x
        for i, (part, what) in enumerate(zip(layers, layer.child_names(branch), strict=True)):
            end = _written(nodes, part, f"{path}.{child_path(branch, i)}", f"{told}: {what}", end)
        ends.append(end)
    if isinstance(layer, Block):
        return ends[0]
    if layer.join == CONCAT:
        return place.node("Concat", *ends, axis=1)
    return place.node("Add" if isinstance(layer, Residual) else "Sum", *ends)


def _rename(nodes: list[Node], old: str, new: str) -> None:
    """Gives the output of the last node another name."""
    nodes[-1].outputs = [new if value == old else value for value in nodes[-1].outputs]


def _metadata(model: Sequential, counters: dict[str, float]) -> dict[str, str]:
    """The layers as a model file has them; nothing for those that it cannot have."""
    try:
        recipe = {**model.get_config(), COUNTERS: counters}
    except (TypeError, ValueError):
        return {}
    return {RECIPE: json.dumps(recipe, separators=(",", ":"), sort_keys=True)}
