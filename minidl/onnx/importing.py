"""Import: from a graph to a model, either the exported one or layers for each node."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from minidl.engine.layer_list import MAX_PIXELS
from minidl.onnx import model_file
from minidl.onnx.branches import Join, Series, parse_graph
from minidl.onnx.constant_folding import Constants
from minidl.onnx.exporting import COUNTERS_KEY, METADATA_KEY, to_graph
from minidl.onnx.graph import BATCH, Graph, Node, UnsupportedNodeError, Value, refuse
from minidl.onnx.joins import joined_branches, make_container, match_activation
from minidl.onnx.layer_fusion import fuse
from minidl.onnx.node_reader import LayerWithWeights, NodeReader
from minidl.onnx.operators import READ
from minidl.onnx.shared_weights import warn_shared_weights
from minidl.onnx.unsupported import UNKNOWN, Survey
from minidl.saving.safetensors_file import MAX_HEADER
from minidl.sequential import Sequential
from minidl.utils.validation import Shape, check_input_shape

DTYPES = ("float32", "float64")


def to_model(graph: Graph, input_shape: Shape | None) -> Sequential:
    """Returns the model of a graph. Raises ValueError that lists each kind of node that no layer computes."""
    model = reimport(graph) if input_shape is None else None
    if model is not None:
        return model
    try:
        return Importer(graph, input_shape).build()
    except UnsupportedNodeError as first:
        importer = Importer(graph, input_shape)
        survey = Survey(graph, importer.constants, importer.batch, importer.infer_shape)
        raise ValueError(survey.report(first, importer.shape)) from first


def reimport(graph: Graph) -> Sequential | None:
    """Returns the model whose config is in the metadata, if it computes what the graph does; else None.

    The metadata are not trusted: the model is exported again and must give the same graph.
    """
    text = graph.metadata.get(METADATA_KEY, "")
    if len(text) > MAX_HEADER or len(graph.inputs) != 1 or graph.inputs[0].dtype not in DTYPES:
        return None
    try:
        config = json.loads(text)
        counters = {name: np.array(number, graph.inputs[0].dtype) for name, number in config.pop(COUNTERS_KEY).items()}
        model = Sequential.from_config(config, {**graph.tensors, **counters}, {})
        same = _computation(to_graph(model)) == _computation(graph)
    except (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError):
        return None
    return model if same else None


def _computation(graph: Graph) -> bytes:
    """Returns the graph without metadata as bytes, for comparison."""
    return model_file.to_bytes(replace(graph, metadata={}))


@dataclass
class PlacedLayer:
    """A layer in its sequence, with its input shape."""

    made: LayerWithWeights
    in_shape: Shape


class Importer:
    """Makes the layers of the nodes in order, with inferred shapes."""

    def __init__(self, graph: Graph, input_shape: Shape | None) -> None:
        self.graph, self.constants, self.pixels = graph, Constants(graph), 0
        if len(graph.inputs) != 1 or len(graph.outputs) != 1:
            names = [[value.name for value in values] for values in (graph.inputs, graph.outputs)]
            raise ValueError(f"expected a graph of one input and one output, got {names[0]} and {names[1]}")
        (self.input,) = graph.inputs
        if self.input.dtype not in DTYPES:
            raise ValueError(f"input {self.input.name!r}: expected float or double, got {self.input.dtype}")
        self.dtype, self.shape = self.input.dtype, example_shape(self.input, input_shape)
        first = self.input.shape[0] if self.input.shape else None
        self.batch = first if isinstance(first, int) else BATCH

    def build(self) -> Sequential:
        """Returns the model. Raises UnsupportedNodeError for the first node that no layer computes."""
        self.constants.shapes[self.input.name] = (self.batch, *self.shape)
        placed, shape = self.read_series(parse_graph(self.graph, self.constants), self.shape)
        if not placed:
            raise ValueError("expected at least one node that computes something, got only identities")
        output = self.graph.outputs[0]
        if output.shape is not None and not is_compatible(output.shape[1:], shape):
            raise ValueError(
                f"output {output.name!r}: declared with shape {output.shape}, but the layers give {shape} per example"
            )
        model = Sequential([made.layer for made in placed], self.shape, dtype=self.dtype)
        model.load_state_dict(
            {f"{i}.{name}": array for i, made in enumerate(placed) for name, array in made.weights.items()}
        )
        warn_shared_weights([source for made in placed if made.weights for source in made.sources], self.constants)
        return model

    def read_series(self, items: Series, shape: Shape) -> tuple[list[LayerWithWeights], Shape]:
        """Returns the layers of nodes in sequence, and their output shape."""
        placed: list[PlacedLayer] = []
        for item in items:
            node = item if isinstance(item, Node) else item.node
            for made in self.read_join(item, shape) if isinstance(item, Join) else self.read_node(item, shape):
                shape = self.append_layer(placed, made, shape, node)
            self.constants.shapes[node.outputs[0]] = (self.batch, *shape)
        return [one.made for one in placed], shape

    def read_node(self, node: Node, shape: Shape) -> list[LayerWithWeights]:
        """Returns the layers of a node with one input that depends on the examples."""
        if node.domain or node.op not in READ:
            refuse(node, UNKNOWN)
        (x,) = (i for i, name in enumerate(node.inputs) if name and name not in self.constants)
        reader = NodeReader(node, x, shape, self.dtype, self.graph.opset, self.batch, self.constants)
        made = READ[node.op](reader)
        reader.check_consumed()
        for one in made:
            one.sources = [(node, name) for name in reader.trained]
        return made

    def infer_shape(self, node: Node, shape: Shape) -> Shape:
        """Returns the output shape of such a node. Raises UnsupportedNodeError."""
        for made in self.read_node(node, shape):
            shape = self.output_shape(made, shape, node)
        return shape

    def read_join(self, join: Join, shape: Shape) -> list[LayerWithWeights]:
        """Returns the container of branches that join."""
        if (made := match_activation(join, self.constants)) is not None:
            return made
        branches = [self.read_series(branch, shape)[0] for branch in joined_branches(join, len(shape) + 1)]
        try:
            return [make_container(join.node.op, branches)]
        except (TypeError, ValueError) as error:
            refuse(join.node, error)

    def append_layer(self, placed: list[PlacedLayer], made: LayerWithWeights, shape: Shape, node: Node) -> Shape:
        """Adds a layer, or fuses it with the last one; returns the output shape."""
        if placed and (both := fuse(placed[-1].made, made, placed[-1].in_shape, shape[0])) is not None:
            shape, sources = placed[-1].in_shape, placed.pop().made.sources + made.sources
            for one in both:
                one.sources = sources
                shape = self.append_layer(placed, one, shape, node)
            return shape
        placed.append(PlacedLayer(made, shape))
        return self.output_shape(made, shape, node)

    def output_shape(self, made: LayerWithWeights, shape: Shape, node: Node) -> Shape:
        """Returns the output shape of a layer, which is built for this and unbuilt again."""
        self.pixels += sum(shape[1:])
        if self.pixels > MAX_PIXELS:
            refuse(node, f"expected at most {MAX_PIXELS} rows and columns in all layers together, got more")
        try:
            return made.layer.setup(shape, self.dtype, 0, "", made.weights)
        except (TypeError, ValueError) as error:
            refuse(node, f"{type(made.layer).__name__} cannot take input {shape}: {error}")
        finally:
            made.layer.unbuild()


def example_shape(value: Value, given: Shape | None) -> Shape:
    """Returns the shape of an example: the declared one, or `given` if the file leaves sizes open."""
    declared = value.shape[1:] if value.shape else None
    if given is not None:
        shape = check_input_shape(given)
        if declared is not None and not is_compatible(declared, shape):
            raise ValueError(f"input_shape: expected one that matches {value.shape} after the batch axis, got {shape}")
        return shape
    if not declared or not all(isinstance(size, int) and size > 0 for size in declared):
        expected = "expected a batch axis, and sizes of all axes after it"
        raise ValueError(f"input {value.name!r}: {expected}, got {value.shape}: pass input_shape if they are open")
    return tuple(size for size in declared if isinstance(size, int))


def is_compatible(declared: Sequence[int | str | None], shape: Shape) -> bool:
    """Returns True if a shape matches the declared one, in which sizes may be open."""
    return len(declared) == len(shape) and all(
        a == b for a, b in zip(declared, shape, strict=True) if isinstance(a, int)
    )
