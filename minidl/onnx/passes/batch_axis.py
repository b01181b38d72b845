"""Graphs of one example without a batch axis, in whole or in part: they get one, of size 1.

A Reshape or Squeeze of a batch of 1 may drop the axis, and an input may never have it. That is sound for the operators
of _Adder only, whose outputs are then those of before, with the axis.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from minidl.onnx.constant_folding import Constants
from minidl.onnx.graph import REWRITTEN, Graph, Names, Node, ValueInfo
from minidl.onnx.passes.quantization import FAKE_QUANTIZE

ELEMENTWISE = {
    *("Abs", "Cast", "Celu", "Clip", "Dropout", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "Identity"),
    *("LeakyRelu", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Selu", "Shrink", "Sigmoid", "Softplus", "Softsign"),
    *("Sqrt", "Swish", "Tanh", "ThresholdedRelu", FAKE_QUANTIZE),
}
ARITHMETIC = {"Add", "Div", "Max", "Mean", "Min", "Mul", "Pow", "Sub", "Sum"}


def add_batch_axis(graph: Graph) -> Graph:
    """Returns the graph with a batch axis for all values, or as it is if a value without one has other uses."""
    if len(graph.inputs) != 1 or (x := graph.inputs[0]).shape is None:
        return graph
    sizes = [size for size in x.shape if isinstance(size, int) and size > 0]
    lacks = len(sizes) == 1 or _is_example(x, graph)
    if not sizes or len(sizes) != len(x.shape) or not (lacks or sizes[0] == 1):
        return graph
    return _Adder(graph, lacks).run() or graph


def _is_example(x: ValueInfo, graph: Graph) -> bool:
    """True if all that reads an input is an Unsqueeze that adds the first axis."""
    readers = [node for node in graph.nodes if x.name in node.inputs]
    constants = Constants(replace(graph, nodes=[]))
    return bool(readers) and all(
        node.op == "Unsqueeze" and not node.domain and _axes(node, constants) == [0] for node in readers
    )


def _axes(node: Node, constants: Constants) -> list[int] | None:
    """Returns the axes of a Squeeze or Unsqueeze; None if they are not known."""
    if len(node.inputs) < 2:
        return list(node.attributes.get("axes") or ()) or None
    found = constants.find(node.inputs[1])
    return None if found is None else found.reshape(-1).tolist()


class _Adder:
    """Copies the nodes in order. ranks: of values that lack the axis, as in the file."""

    def __init__(self, graph: Graph, lacks: bool) -> None:
        self.graph, self.constants, self.names = graph, Constants(graph), Names(graph)
        self.nodes, self.tensors = list[Node](), dict(graph.tensors)
        self.lacks, self.ranks = lacks, dict[str, int]()

    def run(self) -> Graph | None:
        """Returns the graph; None if a value that lacks the axis has a use that is not known, or none lacks it."""
        (x,) = self.graph.inputs
        if self.lacks:
            self.ranks[x.name] = len(x.shape or ())
        for node in self.graph.nodes:
            data = [name for name in node.inputs if name and name not in self.constants]
            lacking = [name for name in data if name in self.ranks]
            copy: Node | None = node
            if lacking:
                known = node.domain in ("", REWRITTEN) and len(lacking) == len(data) and len(node.outputs) == 1
                copy = self._lacking(node) if known else None
            elif not node.domain and node.outputs:
                copy = self._dropping(node)
            if copy is None:
                return None
            self.nodes.append(copy)
        if not self.ranks:
            return None
        inputs = [replace(x, shape=[1, *(x.shape or ())])] if self.lacks else [x]
        outputs = [
            replace(value, shape=[1, *value.shape]) if value.name in self.ranks and value.shape is not None else value
            for value in self.graph.outputs
        ]
        shapes = {name: None if name in self.ranks else shape for name, shape in self.graph.shapes.items()}
        return replace(
            self.graph, nodes=self.nodes, tensors=self.tensors, inputs=inputs, outputs=outputs, shapes=shapes
        )

    def _constant(self, values: list[int]) -> str:
        name = self.names.new("batch_axis.constant")
        self.tensors[name] = np.array(values, "int64")
        return name

    def _shape(self, node: Node) -> list[int]:
        """Returns the constant shape of a Reshape; empty unless it is a list of positive sizes and at most one -1."""
        found = self.constants.find(node.inputs[1])
        shape = [] if found is None or found.dtype.kind != "i" else found.reshape(-1).tolist()
        return shape if shape.count(-1) < 2 and all(size == -1 or size > 0 for size in shape) else []

    def _dropping(self, node: Node) -> Node:
        """Returns a node that reads values with the axis; if its output lacks it in the file, it has it now."""
        source = node.inputs[0] if node.inputs else ""
        if source in self.constants or node.op not in ("Reshape", "Squeeze"):
            return node
        if node.op == "Reshape" and len(shape := self._shape(node)) == 1:
            self.ranks[node.outputs[0]] = 1
            return replace(node, inputs=[source, self._constant([1, *shape])])
        declared = self.graph.shapes.get(source)
        if node.op == "Squeeze" and declared and _axes(node, self.constants) == [0]:
            self.ranks[node.outputs[0]] = len(declared) - 1
            return Node("Identity", node.name, [source], node.outputs)
        return node

    def _lacking(self, node: Node) -> Node | None:
        """Returns a node whose inputs other than constants lack the axis in the file; None if it is not known."""
        ranks = [self.ranks[name] for name in node.inputs if name in self.ranks]
        constants = [self.constants[name].ndim for name in node.inputs if name in self.constants]
        rank, output, axis = max(ranks), node.outputs[0], node.attributes.get("axis")
        if node.op in ARITHMETIC:
            if max(constants, default=0) <= rank:
                self.ranks[output] = rank
            return node if max(constants, default=0) <= rank + 1 else None
        if node.op == "Reshape" and (shape := self._shape(node)):
            if shape[0] != 1:
                self.ranks[output] = len(shape)
                shape = [1, *shape]
            return replace(node, inputs=[node.inputs[0], self._constant(shape)])
        if node.op == "Flatten" and axis == 0:
            return Node("Reshape", node.name, [node.inputs[0], self._constant([1, -1])], node.outputs)
        if node.op == "Unsqueeze" and _axes(node, self.constants) == [0]:
            return Node("Identity", node.name, node.inputs[:1], node.outputs)
        if node.op == "Gather" and constants and node.inputs[0] in self.constants and not axis:
            self.ranks[output] = rank + constants[0] - 1
            return node
        self.ranks[output] = rank
        if node.op in ELEMENTWISE or (node.op == "MatMul" and node.inputs[0] in self.ranks and constants == [2]):
            return node
        if node.op in ("Softmax", "LogSoftmax") or (node.op == "Concat" and not constants and len({*ranks}) == 1):
            given = (1 if self.graph.opset < 13 else -1) if axis is None else axis
            return replace(node, attributes={**node.attributes, "axis": given + 1 if given >= 0 else given})
        if node.op == "Transpose":
            perm = node.attributes.get("perm") or range(rank)[::-1]
            return replace(node, attributes={"perm": [0, *(i + 1 for i in perm)]})
        return None
