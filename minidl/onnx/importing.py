"""From a graph to a model: the one that minidl exported, or else layers for each node."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from minidl.engine.layer_list import MAX_PIXELS
from minidl.onnx import model_file
from minidl.onnx.branches import Chain, Join, series
from minidl.onnx.constant_folding import Constants
from minidl.onnx.exporting import COUNTERS, RECIPE, graph_of
from minidl.onnx.graph import BATCH, Graph, Node, Refused, Value, refuse
from minidl.onnx.joins import branches_of, composed, container
from minidl.onnx.layer_fusion import merged
from minidl.onnx.node_reader import Made, Operator
from minidl.onnx.operators import READ
from minidl.onnx.shared_weights import warn_of_shared
from minidl.onnx.unsupported import UNKNOWN, Survey
from minidl.saving.safetensors_file import MAX_HEADER
from minidl.sequential import Sequential
from minidl.utils.validation import Shape, check_input_shape

DTYPES = ("float32", "float64")


def model_of(graph: Graph, input_shape: Shape | None) -> Sequential:
    """The model that a graph is. Raises ValueError naming all nodes, one of a kind, that no layer can stand for."""
    model = exported(graph) if input_shape is None else None
    if model is not None:
        return model
    try:
        return Importer(graph, input_shape).model()
    except Refused as first:
        importer = Importer(graph, input_shape)
        survey = Survey(graph, importer.constants, importer.batch, importer.tried)
        raise ValueError(survey.told(first, importer.shape)) from first


def exported(graph: Graph) -> Sequential | None:
    """The model that minidl exported, if the file tells one and that is what the graph computes; else None.

    What a file says of itself is not believed: the model is exported again, and has to give the same graph.
    """
    told = graph.metadata.get(RECIPE, "")
    if len(told) > MAX_HEADER or len(graph.inputs) != 1 or graph.inputs[0].dtype not in DTYPES:
        return None
    try:
        recipe = json.loads(told)
        counters = {name: np.array(number, graph.inputs[0].dtype) for name, number in recipe.pop(COUNTERS).items()}
        model = Sequential.from_config(recipe, {**graph.tensors, **counters}, {})
        same = _plain(graph_of(model)) == _plain(graph)
    except (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError):
        return None
    return model if same else None


def _plain(graph: Graph) -> bytes:
    """All that the graph computes; anybody may have written something into its metadata."""
    return model_file.to_bytes(replace(graph, metadata={}))


@dataclass
class Placed:
    """A layer in its place: what it was made of, and the shape of what goes into it."""

    made: Made
    in_shape: Shape


class Importer:
    """Makes layers of the nodes, one after the other, with the shapes that they really get."""

    def __init__(self, graph: Graph, input_shape: Shape | None) -> None:
        self.graph, self.constants, self.pixels = graph, Constants(graph), 0
        if len(graph.inputs) != 1 or len(graph.outputs) != 1:
            told = [[value.name for value in values] for values in (graph.inputs, graph.outputs)]
            raise ValueError(f"expected a graph of one input and one output, got {told[0]} and {told[1]}")
        (self.input,) = graph.inputs
        if self.input.dtype not in DTYPES:
            raise ValueError(f"input {self.input.name!r}: expected float or double, got {self.input.dtype}")
        self.dtype, self.shape = self.input.dtype, shape_of(self.input, input_shape)
        first = self.input.shape[0] if self.input.shape else None
        self.batch = first if isinstance(first, int) else BATCH

    def model(self) -> Sequential:
        """The model. Raises Refused with the first node that no layer can stand for."""
        self.constants.shapes[self.input.name] = (self.batch, *self.shape)
        placed, shape = self.chain(series(self.graph, self.constants), self.shape)
        if not placed:
            raise ValueError("expected at least one node that does something, got a graph that does nothing")
        output = self.graph.outputs[0]
        if output.shape is not None and not fits(output.shape[1:], shape):
            raise ValueError(
                f"output {output.name!r}: expected layers that give {output.shape}, got {shape}, without the batch"
            )
        model = Sequential([made.layer for made in placed], self.shape, dtype=self.dtype)
        model.load_state_dict(
            {f"{i}.{name}": array for i, made in enumerate(placed) for name, array in made.weights.items()}
        )
        warn_of_shared([source for made in placed if made.weights for source in made.sources], self.constants)
        return model

    def chain(self, items: Chain, shape: Shape) -> tuple[list[Made], Shape]:
        """The layers of nodes that stand one behind the other, and the shape in which they leave an example."""
        placed: list[Placed] = []
        for item in items:
            node = item if isinstance(item, Node) else item.node
            for made in self.join(item, shape) if isinstance(item, Join) else self.read(item, shape):
                shape = self.put(placed, made, shape, node)
            self.constants.shapes[node.outputs[0]] = (self.batch, *shape)
        return [one.made for one in placed], shape

    def read(self, node: Node, shape: Shape) -> list[Made]:
        """The layers of a node that has one input from the examples."""
        if node.domain or node.op not in READ:
            refuse(node, UNKNOWN)
        (x,) = (i for i, name in enumerate(node.inputs) if name and name not in self.constants)
        operator = Operator(node, x, shape, self.dtype, self.graph.opset, self.batch, self.constants)
        made = READ[node.op](operator)
        operator.done()
        for one in made:
            one.sources = [(node, name) for name in operator.trained]
        return made

    def tried(self, node: Node, shape: Shape) -> Shape:
        """The shape behind a node that has one input from the examples; raises Refused."""
        for made in self.read(node, shape):
            shape = self.built(made, shape, node)
        return shape

    def join(self, join: Join, shape: Shape) -> list[Made]:
        """The container of branches that meet."""
        if (made := composed(join, self.constants)) is not None:
            return made
        branches = [self.chain(branch, shape)[0] for branch in branches_of(join, len(shape) + 1)]
        try:
            return [container(join.node.op, branches)]
        except (TypeError, ValueError) as error:
            refuse(join.node, error)

    def put(self, placed: list[Placed], made: Made, shape: Shape, node: Node) -> Shape:
        """Adds a layer, or changes the last one; returns the shape behind it."""
        if placed and (both := merged(placed[-1].made, made, placed[-1].in_shape, shape[0])) is not None:
            shape, sources = placed[-1].in_shape, placed.pop().made.sources + made.sources
            for one in both:
                one.sources = sources
                shape = self.put(placed, one, shape, node)
            return shape
        placed.append(Placed(made, shape))
        return self.built(made, shape, node)

    def built(self, made: Made, shape: Shape, node: Node) -> Shape:
        """The shape behind a layer, which is built for that and forgets it again."""
        self.pixels += sum(shape[1:])
        if self.pixels > MAX_PIXELS:
            refuse(node, f"expected at most {MAX_PIXELS} rows and columns in all layers together, got more")
        try:
            return made.layer.setup(shape, self.dtype, 0, "", made.weights)
        except (TypeError, ValueError) as error:
            refuse(node, f"{type(made.layer).__name__} cannot take input {shape}: {error}")
        finally:
            made.layer.unbuild()


def shape_of(value: Value, given: Shape | None) -> Shape:
    """The shape of an example, as the file tells it or as it is given, where the file leaves it open."""
    told = value.shape[1:] if value.shape else None
    if given is not None:
        shape = check_input_shape(given)
        if told is not None and not fits(told, shape):
            raise ValueError(f"input_shape: expected one that fits {value.shape}, the batch first, got {shape}")
        return shape
    if not told or not all(isinstance(size, int) and size > 0 for size in told):
        expected = "expected a batch, and sizes for all axes behind it"
        raise ValueError(f"input {value.name!r}: {expected}, got {value.shape}: pass input_shape if they are open")
    return tuple(size for size in told if isinstance(size, int))


def fits(told: Sequence[int | str | None], shape: Shape) -> bool:
    """Whether a shape is one that the file tells, where sizes may be left open."""
    return len(told) == len(shape) and all(a == b for a, b in zip(told, shape, strict=True) if isinstance(a, int))
