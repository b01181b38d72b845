"""Export: each layer writes its nodes; a container writes those of its branches and the node that joins them.

The graph's metadata also holds the model's config, with everything that only matters in training.
`minidl.onnx.importing` restores the layers from it if they still give the same graph.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from minidl.engine.layer_list import from_spec, layer_name, to_spec
from minidl.engine.state import tensors
from minidl.layers import Bidirectional, Block, Outputs, Parallel, Residual, SqueezeExcite
from minidl.layers.base import Layer
from minidl.layers.container import Container, child_path
from minidl.layers.join import ADD, CONCAT, DIVIDE, MAXIMUM, MINIMUM, MULTIPLY, POWER
from minidl.onnx.any_size import write_any_size
from minidl.onnx.custom_layers import write_custom
from minidl.onnx.graph import Graph, Node, ValueInfo
from minidl.onnx.node_writer import NodeWriter
from minidl.onnx.operators import WRITE_FUNCTIONS
from minidl.onnx.passes.input_cast import make_cast
from minidl.quantization import program_file
from minidl.quantization.integer_net import IntegerNet
from minidl.sequential import Sequential
from minidl.utils.arrays import Array
from minidl.utils.validation import Shape, check_choice

INPUT, OUTPUT, BATCH_AXIS = "input", "scores", "N"
METADATA_KEY = "minidl"  # metadata entry with the model's config
INTEGERS_KEY = "minidl.integers"  # the same of a quantized net
IN_GRAPH = {"weights", "biases", "table", "index", "factors", "offsets"}  # arrays of a program that its nodes hold
VARIADIC = {ADD: "Sum", MAXIMUM: "Max", MINIMUM: "Min"}
BINARY = {MULTIPLY: "Mul", DIVIDE: "Div", POWER: "Pow"}
COUNTERS_KEY = "counters"  # entry of the config for buffers outside the graph: num_batches_tracked


def convert_dtype(model: Sequential, dtype: str | None) -> Sequential:
    """Returns the model, or a copy in another dtype; raises ValueError for other dtypes or weights out of range."""
    if dtype is None or check_choice("dtype", dtype, "float32", "float64") == model.dtype:
        return model
    copy = Sequential(from_spec(to_spec(model.layers)), model.input_shape, model.seed, dtype)
    copy.load_state_dict(model.state_dict())
    return copy


def build_graph(model: Sequential, input_dtype: str | None = None) -> Graph:
    """Returns the model as a graph with its config in the metadata; otherwise as `write_layers`.

    Raises ValueError for a model that is not built, and for one of any size with a layer whose nodes depend on it.
    """
    _ = model.input_shape  # raises
    write = partial(write_layers, input_dtype=input_dtype)
    graph = write(model.layers) if model.sizes is None else write_any_size(model, model.sizes, write)
    graph.metadata = _make_metadata(model, {k: v for k, v in tensors(model.layers).items() if k not in graph.tensors})
    return graph


def write_layers(layers: Sequence[Layer], input_dtype: str | None) -> Graph:
    """Returns the graph of built layers. Its tensors are the layers' own arrays.

    input_dtype: of the graph's input; None: the layers'.

    Raises ValueError, naming the layer and its path, for a layer without ONNX operators; TypeError or ValueError for
    what a layer's own `onnx` raises, or for invalid nodes that it adds.
    """
    first, last = layers[0], layers[-1]
    nodes, x = list[Node](), INPUT
    if input_dtype not in (None, first.dtype):
        nodes.append(make_cast(INPUT, first.dtype))
        x = nodes[0].outputs[0]
    ends, shapes = list[str](), {OUTPUT: last.out_shape}
    for i, layer in enumerate(layers):
        if type(layer) is Outputs:
            shapes = _check_names(layer.layout.shapes, tensors(layers))
            ends = _write_branches(nodes, layer, str(i), layer_name(i, layer), x)
        else:
            x = _write_layer(nodes, layer, str(i), layer_name(i, layer), x)
    ends = ends or [x]
    for end, name in zip(ends, shapes, strict=True):
        _rename_output(nodes, end, name, is_shared=ends.count(end) > 1)
    used = {value for node in nodes for value in node.inputs}
    return Graph(
        nodes,
        {key: array for key, array in tensors(layers).items() if key in used},
        [ValueInfo(INPUT, input_dtype or first.dtype, [BATCH_AXIS, *first.in_shape])],
        [ValueInfo(name, last.dtype, [BATCH_AXIS, *shape]) for name, shape in shapes.items()],
    )


def _check_names(shapes: dict[str, Shape], state: Mapping[str, Array]) -> dict[str, Shape]:
    """Returns the shapes of outputs by name; raises ValueError for a name that another value of the graph may have."""
    for name in shapes:
        if name in (INPUT, *state) or name[:1].isdigit():
            raise ValueError(f"outputs: expected names other than {INPUT!r}, that begin with no digit, got {name!r}")
    return shapes


def _write_layer(nodes: list[Node], layer: Layer, path: str, label: str, x: str) -> str:
    """Adds the nodes of a layer and of its children; returns the name of its output. label: its name in errors."""
    if type(layer) in WRITE_FUNCTIONS:
        try:
            return WRITE_FUNCTIONS[type(layer)](NodeWriter(nodes, path, layer), x)
        except ValueError as error:
            raise ValueError(f"{label}: {error}") from error
    if not isinstance(layer, Container) or type(layer) not in (Bidirectional, Block, Parallel, Residual, SqueezeExcite):
        return write_custom(nodes, layer, path, label, x)
    ends = _write_branches(nodes, layer, path, label, x)
    if isinstance(layer, Block):
        return ends[0]
    return _write_join(nodes, layer, path, ends)


def _write_branches(nodes: list[Node], layer: Container, path: str, label: str, x: str) -> list[str]:
    """Adds the nodes of all branches; returns the names of their outputs."""
    ends = []
    for branch, layers in layer.named_branches().items():
        end = x
        for i, (child, child_label) in enumerate(zip(layers, layer.child_names(branch), strict=True)):
            end = _write_layer(nodes, child, f"{path}.{child_path(branch, i)}", f"{label}: {child_label}", end)
        ends.append(end)
    return ends


def _write_join(nodes: list[Node], layer: Container, path: str, ends: list[str]) -> str:
    """Adds the nodes that join the outputs of branches; returns the name of the joined value."""
    writer = NodeWriter(nodes, path, layer)
    if layer.join == CONCAT:
        return writer.add_node("Concat", *ends, axis=1 + layer.axis % len(layer.out_shape))
    if layer.join in VARIADIC:
        return writer.add_node("Add" if isinstance(layer, Residual) else VARIADIC[layer.join], *ends)
    joined, *others = ends
    for other in others:
        joined = writer.add_node(BINARY[layer.join], joined, other)
    return joined


def _rename_output(nodes: list[Node], old: str, new: str, is_shared: bool) -> None:
    """Renames the output of the last node that has one of this name; adds an Identity if others read it, or are it."""
    node = next((node for node in reversed(nodes) if old in node.outputs), None)
    if is_shared or node is None or any(old in other.inputs for other in nodes):
        nodes.append(Node("Identity", f"{new}.Identity", [old], [new]))
    else:
        node.outputs = [new if value == old else value for value in node.outputs]


def _make_metadata(model: Sequential, rest: dict[str, Array]) -> dict[str, str]:
    """Returns the model's config as in a model file; nothing if a layer has none, or is not minidl's.

    rest: the state that is not in the graph.
    """
    custom: dict[str, Any] = {}
    try:
        if isinstance(model.layers[0], IntegerNet):
            key, config = INTEGERS_KEY, _config_of_integers(model.layers[0])
            config["float_layers"] = model[1:].get_config(custom) if len(model) > 1 else None
        else:
            key, config = METADATA_KEY, model.get_config(custom)
            config[COUNTERS_KEY] = {name: float(array) for name, array in rest.items()}
    except (TypeError, ValueError):
        return {}
    if custom:  # an import creates only minidl's layers
        return {}
    return {key: json.dumps(config, separators=(",", ":"), sort_keys=True)}


def _config_of_integers(net: IntegerNet) -> dict[str, Any]:
    """Returns a program as JSON, without the arrays that the nodes hold, and the shapes of an example."""
    program, arrays = program_file.encode(net.config()["program"])
    rest = {name: array.tolist() for name, array in arrays.items() if name.partition(".")[2] not in IN_GRAPH}
    return {"program": program, "arrays": rest, "input_shape": net.in_shape, "output_shape": net.out_shape}
