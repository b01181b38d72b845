"""Import: restores the model that minidl exported, or else turns each node into layers."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence

from minidl.engine import build_warnings
from minidl.engine.layer_list import MAX_PIXELS, named_layers
from minidl.layers.base import Layer
from minidl.layers.container import Container
from minidl.onnx.constant_folding import Constants
from minidl.onnx.deployment import take_metadata
from minidl.onnx.graph import ANY_BATCH, Graph, Node, ValueInfo, no_such_layer, refuse, select_outputs
from minidl.onnx.integer_import import quantized_model
from minidl.onnx.layer_fusion import fuse_layers
from minidl.onnx.node_reader import LayerWithWeights, NodeReader
from minidl.onnx.operators import find_read_function
from minidl.onnx.passes import rewrite
from minidl.onnx.passes.input_cast import INTEGERS
from minidl.onnx.passes.quantization import rounds_values
from minidl.onnx.restoring import DTYPES, ImportedLayers, restore_exported
from minidl.onnx.restoring_integers import restore_integers
from minidl.onnx.shared_weights import warn_about_shared_weights
from minidl.onnx.structure.branches import parse_graph
from minidl.onnx.structure.carried_values import CarriedValues
from minidl.onnx.structure.joins import (
    OUTPUTS,
    check_join,
    concat_axis,
    drop_expansions,
    get_branches,
    make_container,
    make_outputs,
    with_one_end,
)
from minidl.onnx.structure.regions import Computed, Join, Region, Series
from minidl.onnx.unsupported import GraphSurvey, UnsupportedGraphError
from minidl.sequential import Sequential
from minidl.utils.arrays import zeros_view
from minidl.utils.validation import Shape, check_shape


def build_model(
    graph: Graph,
    input_shape: Shape | None,
    outputs: str | Sequence[str] | None = None,
    dequantize: bool = False,
) -> Sequential:
    """Returns the model of a graph. Raises UnsupportedGraphError with all that layers cannot express.

    outputs: names of values that are its outputs; None: those of the graph. dequantize: whether a quantized net
    becomes one of floats. Unless the caller keeps the graph, each
    tensor is released when its layer has copied it.
    """
    metadata, is_whole = graph.metadata, input_shape is None and outputs is None
    model: Sequential | None = restore_integers(graph) if is_whole and not dequantize else None
    imported = restore_exported(graph) if is_whole and model is None else None
    if model is None and imported is None:
        graph = rewrite(graph if outputs is None else select_outputs(graph, outputs), not dequantize)
        importer = Importer(graph, input_shape)
        try:
            imported = importer.run()
        except ValueError as first:
            importer = Importer(graph, input_shape)  # no shape is known yet
            survey = GraphSurvey(graph, importer.constants, importer.batch, importer.infer_node_shape)
            raise UnsupportedGraphError(importer.obstacles, survey, first, importer.shape) from first
        if rounds_values(graph):
            try:
                model = quantized_model(imported.build(), importer.sources, importer.constants)
            except ValueError as error:
                raise ValueError(f"{error}; dequantize=True imports a net of floats") from error
        del importer  # with the constants
    del graph
    if model is None:
        assert imported is not None
        model = imported.build()
    take_metadata(model, metadata, same_outputs=outputs is None)
    return model


class Importer:
    """Turns the nodes of a rewritten graph into layers in order, and tracks the shape of each value."""

    def __init__(self, graph: Graph, input_shape: Shape | None) -> None:
        self.graph, self.constants, self.n_pixels = graph, Constants(graph), 0
        self.sources: dict[Layer, tuple[Node, list[str]]] = {}  # the node of each layer, and its trainable constants
        self.input = graph.inputs[0] if graph.inputs else ValueInfo("", "float32", None)
        self.obstacles = find_obstacles_of_ends(graph, self.constants)
        self.shape: Shape | None = None  # of an example; unknown only if there are obstacles
        if graph.inputs:
            try:
                self.shape = resolve_input_shape(self.input, input_shape)
            except ValueError as error:
                if input_shape is not None:
                    raise
                self.obstacles.append(str(error))
        self.dtype = self.input.dtype if self.input.dtype in DTYPES else DTYPES[0]
        first = self.input.shape[0] if self.input.shape else None
        self.batch = first if isinstance(first, int) else ANY_BATCH

    def run(self) -> ImportedLayers:
        """Returns the layers and their state. Raises ValueError for the first obstacle."""
        if self.obstacles or self.shape is None:
            raise ValueError(*self.obstacles[:1])
        self.note_shape(self.input.name, self.shape)
        layers, _ = self.import_series(parse_graph(with_one_end(self.graph), self.constants), self.shape)
        if not layers:
            raise ValueError("expected at least one node that becomes a layer, got none")
        for output in self.graph.outputs:
            shape = self.constants.shapes[output.name][1:]
            if output.shape is not None and not matches_shape(output.shape[1:], shape):
                got = f"got layers with outputs {shape} per example"
                raise ValueError(f"output {output.name!r}: expected shape {output.shape}, {got}")
        if not rounds_values(self.graph):  # else nothing is trained
            warn_about_shared_weights(
                [source for weighted in layers if weighted.weights for source in weighted.sources], self.constants
            )
        state = {f"{i}.{name}": array for i, weighted in enumerate(layers) for name, array in weighted.weights.items()}
        for note in self.graph.notes:
            warnings.warn(note, stacklevel=4)  # the caller of import_model
        imported = ImportedLayers([weighted.layer for weighted in layers], self.shape, self.dtype, state)
        build_warnings.warn(named_layers(imported.layers), self.shape)
        return imported

    def note_shape(self, name: str, shape: Shape) -> None:
        """Notes the shape of a value; raises UnsupportedNodeError if a Transpose that is gone had other axes."""
        self.constants.shapes[name] = (self.batch, *shape)
        node, rank = self.graph.ranks.get(name, (None, 0))
        if node is not None and rank != len(shape) + 1:
            refuse(node, f"expected a permutation of {len(shape) + 1} axes, got {node.attributes['perm']}")

    def import_series(self, items: Series, shape: Shape) -> tuple[list[LayerWithWeights], Shape]:
        """Returns the layers of a series of nodes, and the shape of their output, without the batch."""
        placed = list[LayerWithWeights]()
        for item in items:
            node = item if isinstance(item, Node) else item.node
            for weighted in self.import_item(item, shape):
                shape = self.append_or_fuse(placed, weighted, shape, node)
            self.note_shape(node.outputs[0], shape)
        return placed, shape

    def import_node(self, node: Node, shape: Shape) -> list[LayerWithWeights]:
        """Returns the layers of a node with one data input; the others are constants."""
        if (read := find_read_function(node)) is None:
            refuse(node, no_such_layer(node))
        (x,) = (i for i, name in enumerate(node.inputs) if name and name not in self.constants)
        reader = NodeReader(node, x, shape, self.dtype, self.graph.opset, self.batch, self.constants)
        layers = read(reader)
        reader.check_all_read()
        for weighted in layers:
            weighted.sources = [(node, name) for name in reader.trainable_constants]
        return layers

    def infer_node_shape(self, node: Node, shape: Shape) -> Shape:
        """Returns the output shape of a node with one data input; raises UnsupportedNodeError."""
        for weighted in self.import_node(node, shape):
            shape = self.infer_layer_shape(weighted, shape, node)
        return shape

    def import_item(self, item: Node | Join | Region, shape: Shape) -> list[LayerWithWeights]:
        """Returns the layers of a node, or of branches and what joins them."""
        if isinstance(item, Region):
            return self.import_region(item, shape)
        if isinstance(item, Join):
            return self.join_branches(item.node, [self.import_series(branch, shape) for branch in get_branches(item)])
        return self.import_node(item, shape)

    def import_region(self, region: Region, shape: Shape) -> list[LayerWithWeights]:
        """Returns the layers of a region, one container for each step."""
        layers, carried = list[LayerWithWeights](), CarriedValues({region.start: shape})
        for step, later in zip(region.steps, region.read_later(), strict=True):
            kept = [i for i in carried.shapes if i in later]
            computed = {i: self.import_computed(value, carried) for i, value in step.items()}
            shapes = {i: carried.shapes[i] for i in kept} | {i: out for i, (_, out) in computed.items()}
            following = CarriedValues(shapes)
            branches = carried.pass_on(kept, following)
            branches += [[*value, *following.pack(out)] for value, out in computed.values()]
            layers += branches[0] if len(branches) == 1 else self.make_container(region.node, "Concat", branches)
            carried = following
        return layers

    def import_computed(self, value: Computed, carried: CarriedValues) -> tuple[list[LayerWithWeights], Shape]:
        """Returns the layers that compute a value of a region, and its shape."""
        branches = list[tuple[list[LayerWithWeights], Shape]]()
        for source, series in value.branches:
            layers, shape = self.import_series(series, carried.shapes[source])
            branches.append(([*carried.unpack(source), *layers], shape))
        if value.join is None:
            return branches[0]
        check_join(value.join, len(branches))
        joined, shape = self.join_branches(value.join, branches), carried.shape
        for weighted in joined:
            shape = self.infer_layer_shape(weighted, shape, value.join)
        self.note_shape(value.join.outputs[0], shape)
        rest, shape = self.import_series(value.rest, shape)
        return [*joined, *rest], shape

    def join_branches(self, node: Node, imported: list[tuple[list[LayerWithWeights], Shape]]) -> list[LayerWithWeights]:
        """Returns the container for branches."""
        branches, shapes = [layers for layers, _ in imported], [shape for _, shape in imported]
        if node.op == "Concat":
            return self.make_container(node, node.op, branches, concat_axis(node, shapes))
        if node.op != OUTPUTS:
            drop_expansions(branches, shapes)
        return self.make_container(node, node.op, branches)

    def make_container(
        self, node: Node, op: str, branches: list[list[LayerWithWeights]], axis: int = 0
    ) -> list[LayerWithWeights]:
        """Returns the container for branches; an error names the node."""
        try:
            return [make_outputs(node.inputs, branches) if op == OUTPUTS else make_container(op, branches, axis)]
        except (TypeError, ValueError) as error:
            refuse(node, error)

    def append_or_fuse(
        self, placed: list[LayerWithWeights], weighted: LayerWithWeights, shape: Shape, node: Node
    ) -> Shape:
        """Appends a layer, or fuses it with those before; returns the output shape."""
        for count in (2, 1):
            fused = fuse_layers([*placed[-count:], weighted], shape[0]) if len(placed) >= count else None
            if fused is not None:
                sources = [source for layer in (*placed[-count:], weighted) for source in layer.sources]
                shape = placed[-count].in_shape
                del placed[-count:]
                for layer in fused:
                    layer.sources = sources
                    shape = self.append_or_fuse(placed, layer, shape, node)
                return shape
        weighted.in_shape = shape
        placed.append(weighted)
        is_leaf = weighted.sources and not isinstance(weighted.layer, Container)
        names = [name for _, name in weighted.sources]
        self.sources[weighted.layer] = weighted.sources[0][0] if is_leaf else node, names
        return self.infer_layer_shape(weighted, shape, node)

    def infer_layer_shape(self, weighted: LayerWithWeights, shape: Shape, node: Node) -> Shape:
        """Returns the output shape of a layer, which is built to find it, without its weights, and then unbuilt."""
        self.n_pixels += sum(shape[1:])
        if self.n_pixels > MAX_PIXELS:
            refuse(node, f"expected at most {MAX_PIXELS} rows and columns in all layers, got more")
        try:
            given = {name: zeros_view(array.shape, self.dtype) for name, array in weighted.weights.items()}
            return weighted.layer.setup(shape, self.dtype, 0, "", given)
        except (TypeError, ValueError) as error:
            refuse(node, f"{type(weighted.layer).__name__} cannot take input {shape}: {error}")
        finally:
            weighted.layer.unbuild()


def find_obstacles_of_ends(graph: Graph, constants: Collection[str]) -> list[str]:
    """Returns what layers cannot have of the inputs and outputs of a graph."""
    obstacles = list[str]()
    if len(graph.inputs) != 1 or not graph.outputs:
        declared = [[value.name for value in values] for values in (graph.inputs, graph.outputs)]
        obstacles.append(f"expected a graph of one input, and outputs, got {declared[0]} and {declared[1]}")
    for value in graph.inputs:
        if value.dtype not in DTYPES:
            cast = ", not followed by a Cast to one of them" if value.dtype in INTEGERS else ""
            obstacles.append(f"input {value.name!r}: expected float or double, got {value.dtype}{cast}")
    others = ": name the others by `outputs`" if any(value.name not in constants for value in graph.outputs) else ""
    expected = f"expected a value computed from the input, got a constant or a shape{others}"
    obstacles += [f"output {value.name!r}: {expected}" for value in graph.outputs if value.name in constants]
    return obstacles


def resolve_input_shape(value: ValueInfo, given: Shape | None) -> Shape:
    """Returns the shape of an example: declared in the file, or `given` if the file has dynamic sizes."""
    declared = value.shape[1:] if value.shape else None
    if given is not None:
        shape = check_shape("input_shape", given)
        if declared is not None and not matches_shape(declared, shape):
            raise ValueError(f"input_shape: expected that of one example, {tuple(declared)} in the file, got {shape}")
        return shape
    if not declared or not all(isinstance(size, int) and size > 0 for size in declared):
        expected = "expected a batch axis and the sizes of all other axes"
        raise ValueError(f"input {value.name!r}: {expected}, got {value.shape}: pass input_shape if they are dynamic")
    return tuple(size for size in declared if isinstance(size, int))


def matches_shape(declared: Sequence[int | str | None], shape: Shape) -> bool:
    """True if a shape matches the declared one, in which sizes may be dynamic."""
    return len(declared) == len(shape) and all(
        a == b for a, b in zip(declared, shape, strict=True) if isinstance(a, int)
    )
