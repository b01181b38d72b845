"""All obstacles of a graph at once, so that one attempt shows what an import would need."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from minidl.layers.join import joined_shape
from minidl.onnx.constant_folding import Constants
from minidl.onnx.graph import Graph, Node, UnsupportedNodeError, no_such_layer, not_computable, refuse
from minidl.onnx.operators import find_read_function
from minidl.onnx.structure.joins import JOINS, check_join, concat_axis, is_end
from minidl.utils.validation import Shape

MAX_KINDS = 12  # lines of an error
SHAPES_MISSING = "where shapes are unknown, only the operator types were checked"
ELEMENTWISE_OPS = {"Ceil", "Cos", "Erf", "Floor", "Round", "Sign", "Sin"}  # without layers

InferShape = Callable[[Node, Shape], Shape]


@dataclass(frozen=True)
class Obstacle:
    """What keeps a graph from becoming layers: message names an input, or one of `count` nodes of an operator."""

    message: str
    operator: str = ""
    count: int = 1

    def __str__(self) -> str:
        return f"{self.message} ({self.count} such nodes)" if self.count > 1 else self.message


class UnsupportedGraphError(ValueError):
    """All obstacles of a graph, of which the message lists at most MAX_KINDS.

    of_ends: of inputs and outputs. first: the error that an import ended with. shape: of an example; None if unknown.
    """

    def __init__(self, of_ends: list[str], survey: GraphSurvey, first: ValueError, shape: Shape | None) -> None:
        self.obstacles = list(map(Obstacle, of_ends))
        self.obstacles += survey.find(first if isinstance(first, UnsupportedNodeError) else None, shape)
        self.obstacles = self.obstacles or [Obstacle(str(first))]
        self.shapes_missing = survey.shapes_missing
        lines = list(map(str, self.obstacles))
        more = [f"and {len(lines) - MAX_KINDS} more kinds"] if len(lines) > MAX_KINDS else []
        note = [SHAPES_MISSING] if self.shapes_missing else []
        head = f"expected a graph that layers can express, got {len(lines)} obstacles:"
        super().__init__("\n  ".join([*[head][: len(lines) - 1], *lines[:MAX_KINDS], *more, *note]))


class GraphSurvey:
    """Checks each node that outputs depend on, even after unsupported ones.

    infer_shape: returns the output shape of a node with one data input; raises UnsupportedNodeError. If the input shape
    is unknown, since an earlier node is unsupported and the file does not declare it, only the operator is checked.
    """

    def __init__(self, graph: Graph, constants: Constants, batch: int, infer_shape: InferShape) -> None:
        self.graph, self.constants, self.batch, self.infer_shape = graph, constants, batch, infer_shape
        self.shapes: dict[str, Shape | None] = {}  # of values computed from the graph's input
        self.unknown: set[str] = set()  # values that depend on neither the input nor constants
        self.errors: dict[int, UnsupportedNodeError] = {}
        self.shapes_missing = False

    def find(self, first: UnsupportedNodeError | None, shape: Shape | None) -> list[Obstacle]:
        """Returns each kind of unsupported node; `first` among them. shape: of an example; None if unknown."""
        for i, value in enumerate(self.graph.inputs):
            self._set_shape(value.name, shape if i == 0 else None)
        for node in self._find_needed():
            self._check(node)
        errors = list(self.errors.values())
        if first is not None and not any(str(error.node) == str(first.node) for error in errors):
            errors.insert(0, first)
        kinds: dict[tuple[str, str], list[UnsupportedNodeError]] = {}
        for error in errors:
            kinds.setdefault((error.node.operator, _without_names(error.reason)), []).append(error)
        return [Obstacle(str(same[0]), operator, len(same)) for (operator, _), same in kinds.items()]

    def _find_needed(self) -> list[Node]:
        """Returns the nodes that outputs depend on, in order, except those of constants."""
        needed, nodes = {value.name for value in self.graph.outputs}, list[Node]()
        for node in reversed(self.graph.nodes):
            if needed & set(node.outputs) and not any(name in self.constants for name in node.outputs):
                needed |= set(node.inputs)
                nodes.append(node)
        self.needed = needed
        return nodes[::-1]

    def _check(self, node: Node) -> None:
        names = [name for name in node.inputs if name in self.shapes]
        shape = None
        try:
            if names:
                shape = self._infer(node, names)
            elif not self.unknown & set(node.inputs):
                raise UnsupportedNodeError(node, not_computable(node))
        except UnsupportedNodeError as error:
            if error.node.op != "Shape":  # unknown only because of an earlier node
                self.errors[id(node)] = error
        if not names:
            self.unknown.update(node.outputs)
            return
        for name in node.outputs:
            self._set_shape(name, (shape if name == node.outputs[0] else None) or self._declared_shape(name))

    def _set_shape(self, name: str, shape: Shape | None) -> None:
        self.shapes[name] = shape
        if shape is not None:
            self.constants.shapes[name] = (self.batch, *shape)

    def _infer(self, node: Node, names: list[str]) -> Shape | None:
        """Returns the output shape of a node, None if unknown; raises UnsupportedNodeError."""
        if len(names) > 1:
            return self._infer_join(node, names)
        if find_read_function(node) is None:
            same = node.op in ELEMENTWISE_OPS and not node.domain
            self.errors[id(node)] = UnsupportedNodeError(node, no_such_layer(node))
            return self.shapes[names[0]] if same else None
        if others := [name for name in node.outputs[1:] if name in self.needed]:
            raise UnsupportedNodeError(node, f"expected only its first output to be used, got {others[0]!r}")
        shape = self.shapes[names[0]]
        if shape is None or self.unknown & set(node.inputs):
            self.shapes_missing = True
            return None
        return self.infer_shape(node, shape)

    def _infer_join(self, node: Node, names: list[str]) -> Shape | None:
        """Returns the output shape of a node that joins branches, None if unknown."""
        shapes = [self.shapes[name] for name in names]
        known = [shape for shape in shapes if shape is not None]
        check_join(node, len(names))
        if is_end(node):
            return None
        axis = concat_axis(node, known) if node.op == "Concat" and known else 0
        if len(known) < len(shapes):
            return None if node.op == "Concat" or not known else known[0]
        try:
            return joined_shape(JOINS[node.op], {f"input {i}": shape for i, shape in enumerate(known)}, axis)
        except ValueError as error:
            refuse(node, error)

    def _declared_shape(self, name: str) -> Shape | None:
        """Returns the shape of a value as declared in the file, without the batch."""
        sizes = (self.graph.shapes.get(name) or [])[1:]
        known = tuple(size for size in sizes if isinstance(size, int) and size > 0)
        return known if sizes and len(known) == len(sizes) else None


def _without_names(reason: str) -> str:
    """Replaces names and numbers in a reason, so that nodes of one kind have the same one."""
    return re.sub(r"'[^']*'|\(?-?\d[-\d., ()]*", "#", reason)
