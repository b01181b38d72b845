"""Rewriting: nodes of several outputs, and groups of nodes that are one operator, as nodes that layers can express."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from minidl.onnx.constant_folding import Constants
from minidl.onnx.graph import REWRITTEN, Graph, Node
from minidl.onnx.input_cast import INTEGERS

# Operators of the domain REWRITTEN
STRIDED_VIEW = "Gather"  # the elements of an array, flattened with the batch, at the indices of input 1
CHANNEL_NORM = "LayerNormalization"  # over axis 1
SPLIT_PART = "Split"  # one output of a Split: part `index` of `count` equal ones, or `start` to `stop`

INT32, INT64 = 6, 7  # attribute `to` of Cast


def expand_splits(graph: Graph, constants: Constants) -> Graph:
    """Returns the graph with a node for each output of a Split."""
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.op == "Split" and not node.domain and len(node.outputs) > 1:
            nodes += _split_parts(node, constants) or [node]
        else:
            nodes.append(node)
    return replace(graph, nodes=nodes)


def _split_parts(node: Node, constants: Constants) -> list[Node] | None:
    """Returns the nodes of a Split; None if its sizes are not constant or not those of its outputs."""
    sizes, count = node.attributes.get("split"), len(node.outputs)
    if len(node.inputs) > 1 and node.inputs[1]:
        if (found := constants.find(node.inputs[1])) is None:
            return None
        sizes = found.reshape(-1).tolist()
    if len(sizes or node.outputs) != count or node.attributes.get("num_outputs", count) != count:
        return None
    ends = None if sizes is None else np.cumsum([0, *sizes]).tolist()
    parts = []
    for i, output in enumerate(node.outputs):
        extent = {"index": i, "count": count} if ends is None else {"start": ends[i], "stop": ends[i + 1]}
        attributes = {"axis": node.attributes.get("axis", 0), **extent}
        parts.append(Node(SPLIT_PART, node.name, node.inputs[:1], [output], attributes, node.doc, REWRITTEN))
    return parts


def merge_strided_views(graph: Graph, constants: Constants) -> Graph:
    """Returns the graph with one node for a Gather from the flattened batch: PyTorch's exporter writes a view so."""
    flat = {
        node.outputs[0]: node.inputs[0]
        for node in graph.nodes
        if node.op == "Reshape" and not node.domain and _is_flattening(node, constants)
    }
    nodes = [
        replace(node, op=STRIDED_VIEW, domain=REWRITTEN, inputs=[flat[node.inputs[0]], node.inputs[1]], attributes={})
        if is_gather_of_rows(node) and node.inputs[0] in flat
        else node
        for node in graph.nodes
    ]
    return replace(graph, nodes=nodes) if flat else graph


def _is_flattening(node: Node, constants: Constants) -> bool:
    shape = constants.find(node.inputs[1]) if len(node.inputs) > 1 else None
    return shape is not None and shape.tolist() == [-1]


def expect_float_indices(graph: Graph, constants: Constants) -> Graph:
    """Returns the graph with Gathers of constant rows at whole numbers that are floats, without their Cast to integers.

    A graph input of integers gets the dtype of the rows.
    """
    casts = {
        node.outputs[0]: node.inputs[0]
        for node in graph.nodes
        if node.op == "Cast" and not node.domain and node.attributes.get("to") in (INT32, INT64)
    }
    nodes, dtype = list[Node](), ""
    for node in graph.nodes:
        is_lookup = is_gather_of_rows(node) and node.inputs[1] not in constants
        rows = constants.find(node.inputs[0]) if is_lookup else None
        if rows is not None and rows.dtype.kind == "f":
            indices, dtype = node.inputs[1], str(rows.dtype)
            while indices in casts:
                indices = casts[indices]
            node = replace(node, inputs=[node.inputs[0], indices])
        nodes.append(node)
    inputs = [replace(value, dtype=dtype) if value.dtype in INTEGERS and dtype else value for value in graph.inputs]
    return replace(graph, nodes=nodes, inputs=inputs)


def is_gather_of_rows(node: Node) -> bool:
    """True if a node is a Gather along the first axis."""
    return node.op == "Gather" and not node.domain and node.attributes.get("axis", 0) == 0


def merge_layer_norms(graph: Graph, constants: Constants) -> Graph:
    """Returns the graph with LayerNormalization for the nodes that exporters write before opset 17.

    d = x - mean(x); y = d / sqrt(mean(d ** 2) + eps) * scale + bias, with means over one axis.
    """
    if not any(node.op == "Sqrt" for node in graph.nodes):
        return graph
    merger = _NormMerger(graph, constants)
    merged = {id(norm.last): norm for norm in merger.find()}
    inner = {id(node) for norm in merged.values() for node in norm.nodes}
    nodes = [merged[id(node)].node() if id(node) in merged else node for node in graph.nodes]
    return replace(graph, nodes=[node for node in nodes if id(node) not in inner])


@dataclass
class _Norm:
    """The nodes of a norm, and what is left of them."""

    nodes: list[Node]  # all but the last one
    last: Node
    inputs: list[str]
    axis: int
    epsilon: float

    def node(self) -> Node:
        attributes = {"axis": self.axis, "epsilon": self.epsilon}
        return Node("LayerNormalization", self.last.name, self.inputs, self.last.outputs, attributes)


class _NormMerger:
    """Finds decomposed norms, from their division on."""

    def __init__(self, graph: Graph, constants: Constants) -> None:
        self.graph, self.constants = graph, constants
        self.producers = {name: node for node in graph.nodes for name in node.outputs}
        self.readers: dict[str, list[Node]] = {}
        for node in graph.nodes:
            for name in node.inputs:
                self.readers.setdefault(name, []).append(node)
        self.outputs = {value.name for value in graph.outputs}

    def find(self) -> Iterator[_Norm]:
        for node in self.graph.nodes:
            if node.op == "Div" and not node.domain and (norm := self._match(node)) is not None:
                yield norm

    def _match(self, division: Node) -> _Norm | None:
        centred, root = (self._producer(name, op) for name, op in zip(division.inputs, ("Sub", "Sqrt"), strict=True))
        add = self._producer(root.inputs[0], "Add") if root else None
        if centred is None or root is None or add is None:
            return None
        epsilon, variance_name = self._scalar_and_other(add)
        variance = self._producer(variance_name, "ReduceMean")
        square = self._producer(variance.inputs[0], "Pow", "Mul") if variance else None
        mean = self._producer(centred.inputs[1], "ReduceMean")
        if epsilon is None or variance is None or square is None or mean is None:
            return None
        x, axes = centred.inputs[0], self._axes(mean)
        squares = square.inputs == centred.outputs * 2 if square.op == "Mul" else (
            square.inputs[0] == centred.outputs[0] and self._value(square.inputs[1]) == 2
        )  # fmt: skip
        if not squares or mean.inputs[0] != x or axes is None or axes != self._axes(variance) or len(axes) != 1:
            return None
        nodes = [mean, centred, square, variance, add, root]
        readers = {centred.outputs[0]: {id(square), id(division)}}
        if any(self._escapes(node, readers.get(node.outputs[0])) for node in nodes):
            return None
        return self._with_affine(_Norm(nodes, division, [x], axes[0], epsilon))

    def _with_affine(self, norm: _Norm) -> _Norm:
        """Takes a product with a vector, and the sum with another one, into the norm."""
        for op in ("Mul", "Add"):
            following = self.readers.get(norm.last.outputs[0], [])
            if len(following) != 1 or following[0].op != op or norm.last.outputs[0] in self.outputs:
                break
            found = {name: self.constants.find(name) for name in following[0].inputs}
            vectors = [name for name, array in found.items() if array is not None and array.ndim == 1]
            if len(vectors) != 1:
                break
            norm = replace(norm, nodes=[*norm.nodes, norm.last], last=following[0], inputs=[*norm.inputs, vectors[0]])
        return norm

    def _escapes(self, node: Node, allowed: set[int] | None) -> bool:
        """Whether other nodes read the output of an inner node."""
        readers = {id(reader) for reader in self.readers.get(node.outputs[0], [])}
        return node.outputs[0] in self.outputs or not (readers <= allowed if allowed else len(readers) == 1)

    def _producer(self, name: str, *ops: str) -> Node | None:
        node = self.producers.get(name)
        return node if node is not None and node.op in ops and not node.domain and len(node.inputs) > 0 else None

    def _axes(self, reduction: Node) -> list[int] | None:
        if reduction.attributes.get("keepdims", 1) != 1:
            return None
        if len(reduction.inputs) > 1:
            found = self.constants.find(reduction.inputs[1])
            return None if found is None else list(found.reshape(-1).tolist())
        axes = reduction.attributes.get("axes")
        return None if axes is None else list(axes)

    def _value(self, name: str) -> float:
        array = self.constants.find(name)
        return float(array.reshape(())) if array is not None and array.size == 1 else math.nan

    def _scalar_and_other(self, node: Node) -> tuple[float | None, str]:
        for name, other in (node.inputs, node.inputs[::-1]):
            if not math.isnan(value := self._value(name)):
                return value, other
        return None, ""
