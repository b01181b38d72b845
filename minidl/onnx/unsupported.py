"""The list of all unsupported nodes of a graph, so that one error shows whether an import is possible at all."""

from __future__ import annotations

import re
from collections.abc import Callable

from minidl.onnx.branches import NO_CONSTANT, Join, Series
from minidl.onnx.constant_folding import Constants
from minidl.onnx.graph import Graph, Node, UnsupportedNodeError
from minidl.onnx.joins import joined_branches, match_activation
from minidl.onnx.operators import READ
from minidl.utils.validation import Shape

UNKNOWN = "no layer of minidl does that"
MAX_LINES = 12
MAX_ACTIVATION_NODES = 3  # before a product that make one layer with it
ELEMENTWISE = {"Abs", "Clip", "Erf", "Exp", "HardSigmoid", "LogSoftmax", "Mish", "Neg", "Selu", "Softplus", "Sqrt"}

InferShape = Callable[[Node, Shape], Shape]


class Survey:
    """Checks each node on which the output depends, even after unsupported nodes.

    infer_shape: returns the output shape of a node with one input that depends on the examples; raises
    UnsupportedNodeError. If an input shape is unknown, because an earlier node is unsupported and the file does not
    declare it, only the operator is checked.
    """

    def __init__(self, graph: Graph, constants: Constants, batch: int, tried: InferShape) -> None:
        self.graph, self.constants, self.batch, self.infer_shape = graph, constants, batch, tried
        self.shapes: dict[str, Shape | None] = {}  # of values that depend on the examples
        self.producers: dict[str, Node] = {}  # of these values
        self.unknown: set[str] = set()  # values that depend on no known input
        self.found: dict[int, UnsupportedNodeError] = {}
        self.has_unknown_shapes = False

    def report(self, first: UnsupportedNodeError, shape: Shape) -> str:
        """Returns one line for each kind of unsupported node, or `first` if it is the only one. shape: of examples."""
        self._set_shape(self.graph.inputs[0].name, shape)
        for node in self._needed():
            self._check_node(node)
        found = list(self.found.values())
        if not any(str(one.node) == str(first.node) for one in found):
            found.insert(0, first)
        kinds: dict[tuple[str, str, str], list[UnsupportedNodeError]] = {}
        for one in found:
            kinds.setdefault((one.node.domain, one.node.op, _reason_kind(one.why)), []).append(one)
        lines = [f"{one}{f' ({len(more) + 1} such nodes)' if more else ''}" for one, *more in kinds.values()]
        more = [f"and {len(lines) - MAX_LINES} other kinds"] if len(lines) > MAX_LINES else []
        note = ["nodes with unknown input shapes: only their operators were checked"] if self.has_unknown_shapes else []
        head = f"expected nodes that layers compute, got {len(lines)} kinds of unsupported nodes:"
        return "\n  ".join([*[head][: len(lines) - 1], *lines[:MAX_LINES], *more, *note])

    def _needed(self) -> list[Node]:
        """Returns the nodes on which the output depends, in order, without those that compute constants."""
        needed, kept = {self.graph.outputs[0].name}, list[Node]()
        for node in reversed(self.graph.nodes):
            if needed & set(node.outputs) and not any(name in self.constants for name in node.outputs):
                needed |= set(node.inputs)
                kept.append(node)
        self.used = needed
        return kept[::-1]

    def _check_node(self, node: Node) -> None:
        names = [name for name in node.inputs if name in self.shapes]
        shape = None
        try:
            if names:
                shape = self._output_shape(node, names)
            elif not self.unknown & set(node.inputs):
                raise UnsupportedNodeError(node, NO_CONSTANT)
        except UnsupportedNodeError as error:
            if error.node.op != "Shape":  # of a value of unknown shape: not unsupported itself
                self.found[id(node)] = error
        if not names:
            self.unknown.update(node.outputs)
            return
        for name in node.outputs:
            self.producers[name] = node
            self._set_shape(name, (shape if name == node.outputs[0] else None) or self._declared_shape(name))

    def _set_shape(self, name: str, shape: Shape | None) -> None:
        self.shapes[name] = shape
        if shape is not None:
            self.constants.shapes[name] = (self.batch, *shape)

    def _output_shape(self, node: Node, names: list[str]) -> Shape | None:
        """Returns the output shape of a node, or None. Raises UnsupportedNodeError."""
        if len(names) > 1:
            return self._join_shape(node, names)
        if node.domain or node.op not in READ:
            same = node.op in ELEMENTWISE and not node.domain
            self.found[id(node)] = UnsupportedNodeError(node, UNKNOWN)
            return self.shapes[names[0]] if same else None
        if others := [name for name in node.outputs[1:] if name in self.used]:
            raise UnsupportedNodeError(node, f"expected only its first output to be used, got {others[0]!r}")
        shape = self.shapes[names[0]]
        if shape is None or self.unknown & set(node.inputs):
            self.has_unknown_shapes = True
            return None
        return self.infer_shape(node, shape)

    def _join_shape(self, node: Node, names: list[str]) -> Shape | None:
        """Returns the output shape of a node in which branches join."""
        if node.op == "Mul" and not node.domain and len(names) == 2:
            for start, end in (names, names[::-1]):
                branch = self._path_between(start, end)
                if branch is not None and match_activation(Join(node, [[], branch]), self.constants) is not None:
                    for one in branch:
                        self.found.pop(id(one), None)
                    return self.shapes[start]
        shapes = [self.shapes[name] for name in names]
        known = [shape for shape in shapes if shape is not None]
        joined_branches(Join(node, [[] for _ in names]), len(known[0]) + 1 if known else 0)
        if node.op != "Concat":
            return known[0] if known else None
        if len(known) < len(shapes):
            return None
        return sum(shape[0] for shape in known), *known[0][1:]

    def _path_between(self, start: str, end: str) -> Series | None:
        """Returns the nodes between two values if they are few and in sequence; else None."""
        chain: Series = []
        while end != start:
            node = self.producers.get(end)
            if node is None or len(chain) == MAX_ACTIVATION_NODES:
                return None
            chain.insert(0, node)
            (end, *others) = [name for name in node.inputs if name in self.shapes]
            if others:
                return None
        return chain

    def _declared_shape(self, name: str) -> Shape | None:
        """Returns the declared shape of a value without the batch, if it is complete."""
        sizes = (self.graph.shapes.get(name) or [])[1:]
        known = tuple(size for size in sizes if isinstance(size, int) and size > 0)
        return known if sizes and len(known) == len(sizes) else None


def _reason_kind(why: str) -> str:
    """Returns a reason without names and numbers, which differ from node to node."""
    return re.sub(r"'[^']*'|\(?-?\d[-\d., ()]*", "#", why)
