"""Operators of integers with scales, such as QLinearConv, as the same operator of floats between pairs: format QDQ.

Most are onnxruntime's, and documented in its ContribOperators.md. They compute what the pairs say, so that there is one
way to read both formats.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from minidl.onnx.constant_folding import Constants
from minidl.onnx.graph import MAX_OPSET, Graph, Names, Node
from minidl.onnx.passes.fused_operators import MICROSOFT
from minidl.onnx.passes.quantization import DEQUANTIZE, QUANTIZE


def expand_integer_operators(graph: Graph) -> Graph:
    """Returns the graph with pairs around operators of floats; what has no constant scales stays as it is."""
    if not any((node.domain, node.op) in OPERATORS for node in graph.nodes):
        return graph
    expander = _Expander(graph)
    nodes = [new for node in graph.nodes for new in expander.expand(node)]
    return replace(graph, nodes=nodes, tensors=expander.tensors)


@dataclass(frozen=True)
class _Operator:
    """How a node's inputs are grouped: each of `data` is the index of a value, of its scale and of its zero point.

    op: that of floats. data: none for those of a Concat, which are all after the first two. output: the index of its
    scale. axis: that of the scales of the second value, from the node's attributes. bias: the index of one of int32.
    """

    op: str
    data: tuple[int, ...]
    output: int
    axis: Callable[[dict[str, Any]], int] = lambda attributes: 0
    bias: int | None = None


def _matrix_axis(attributes: dict[str, Any]) -> int:
    """Returns the axis of the columns of the second matrix of a Gemm."""
    return 0 if attributes.get("transB", 0) else 1


OPERATORS = {
    ("", "QLinearConv"): _Operator("Conv", (0, 3), 6, bias=8),
    ("", "QLinearMatMul"): _Operator("MatMul", (0, 3), 6, lambda attributes: -1),
    (MICROSOFT, "QGemm"): _Operator("Gemm", (0, 3), 7, _matrix_axis, bias=6),
    (MICROSOFT, "QLinearAdd"): _Operator("Add", (0, 3), 6),
    (MICROSOFT, "QLinearMul"): _Operator("Mul", (0, 3), 6),
    (MICROSOFT, "QLinearAveragePool"): _Operator("AveragePool", (0,), 3),
    (MICROSOFT, "QLinearGlobalAveragePool"): _Operator("GlobalAveragePool", (0,), 3),
    (MICROSOFT, "QLinearLeakyRelu"): _Operator("LeakyRelu", (0,), 3),
    (MICROSOFT, "QLinearSigmoid"): _Operator("Sigmoid", (0,), 3),
    (MICROSOFT, "QLinearSoftmax"): _Operator("Softmax", (0,), 3),
    (MICROSOFT, "QLinearConcat"): _Operator("Concat", (), 0),
}
NEW_SOFTMAX = range(13, MAX_OPSET + 1)  # the opsets in which it is over one axis


class _Expander:
    """Returns the nodes of an operator of integers; adds constants to `tensors`."""

    def __init__(self, graph: Graph) -> None:
        self.tensors, self.constants, self.names = dict(graph.tensors), Constants(graph), Names(graph)

    def expand(self, node: Node) -> list[Node]:
        operator = OPERATORS.get((node.domain, node.op))
        if operator is None or len(node.outputs) != 1:
            return [node]
        attributes = dict(node.attributes)
        if attributes.pop("channels_last", 0) or attributes.pop("opset", min(NEW_SOFTMAX)) not in NEW_SOFTMAX:
            return [node]
        starts = operator.data or range(2, len(node.inputs), 3)
        scale, zero_point, _ = self._inputs(node, operator.output)
        given = [name for start in starts for name in self._inputs(node, start)[:2]]
        if not given or not all(given) or not (scale or operator.op == "Gemm"):
            return [node]
        nodes, reals = list[Node](), []
        for i, start in enumerate(starts):
            of_axis = {"axis": operator.axis(attributes)} if i else {}
            reals.append(self._add(nodes, node, DEQUANTIZE, self._inputs(node, start), of_axis))
        if operator.bias is not None and self._inputs(node, operator.bias)[0]:
            bias = self._bias(nodes, node, operator.bias)
            if bias is None:
                return [node]
            reals.append(bias)
        if not scale:  # a QGemm of real results
            self._add(nodes, node, operator.op, reals, attributes, node.outputs[0])
            return nodes
        real = self._add(nodes, node, operator.op, reals, attributes)
        self._add(nodes, node, QUANTIZE, [real, scale, zero_point], {}, node.outputs[0])
        return nodes

    def _inputs(self, node: Node, start: int) -> list[str]:
        """Returns three inputs; "" for those that are omitted."""
        return [*node.inputs[start : start + 3], "", "", ""][:3]

    def _bias(self, nodes: list[Node], node: Node, index: int) -> str | None:
        """Dequantizes an int32 bias, whose scale is the product of those of the values; None if they are unknown."""
        scales = [self.constants.find(node.inputs[i]) for i in (1, 4)]
        if scales[0] is None or scales[1] is None or scales[0].size != 1:
            return None
        name = self.names.new(f"{node.outputs[0]}.bias_scale")
        self.tensors[name] = np.asarray(scales[0].reshape(-1)[0] * scales[1].reshape(-1))
        return self._add(nodes, node, DEQUANTIZE, [node.inputs[index], name], {"axis": 0})

    def _add(
        self, nodes: list[Node], node: Node, op: str, inputs: list[str], attributes: dict[str, Any], output: str = ""
    ) -> str:
        """Adds a node in place of a part of `node`; returns its output."""
        output = output or self.names.new(f"{node.outputs[0]}.{op}")
        while inputs and not inputs[-1]:
            inputs = inputs[:-1]
        origin = node.origin or node.outputs[0]
        nodes.append(Node(op, node.name, inputs, [output], attributes, node.doc, alias=node.operator, origin=origin))
        return output
