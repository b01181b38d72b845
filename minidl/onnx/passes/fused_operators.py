"""Operators of other domains that stand for several of ONNX: those that onnxruntime's optimizer fuses, and Scaler.

FusedConv is Conv, then perhaps a sum with a second input, then an activation; FusedGemm is Gemm and an activation;
FusedMatMul is MatMul of matrices that may be transposed, times a factor. They are documented in ContribOperators.md of
onnxruntime. Scaler, (x - offset) * scale, is how skl2onnx writes a StandardScaler.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from minidl.onnx.constant_folding import Constants
from minidl.onnx.graph import Graph, Names, Node
from minidl.utils.arrays import Array

MICROSOFT, ML = "com.microsoft", "ai.onnx.ml"
ACTIVATIONS = {  # names of their parameters, in the order of activation_params
    "HardSigmoid": ("alpha", "beta"),
    "LeakyRelu": ("alpha",),
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
}


def expand_fused_operators(graph: Graph) -> Graph:
    """Returns the graph with ONNX's nodes in place of fused ones; what has no layer stays as it is."""
    if not any(node.domain in (MICROSOFT, ML) for node in graph.nodes):
        return graph
    expander = _Expander(graph)
    nodes = [new for node in graph.nodes for new in expander.expand(node)]
    return replace(graph, nodes=nodes, tensors=expander.tensors)


class _Expander:
    """Returns the nodes of a fused one; adds constants to `tensors`."""

    def __init__(self, graph: Graph) -> None:
        self.tensors, self._constants, self._names = dict(graph.tensors), Constants(graph), Names(graph)
        self._dtype = graph.inputs[0].dtype if graph.inputs else "float32"

    def expand(self, node: Node) -> list[Node]:
        expand = {
            (MICROSOFT, "FusedConv"): self._conv,
            (MICROSOFT, "FusedGemm"): self._gemm,
            (MICROSOFT, "FusedMatMul"): self._matmul,
            (ML, "Scaler"): self._scaler,
        }.get((node.domain, node.op))
        if expand is None or len(node.outputs) != 1:
            return [node]
        return expand(node, dict(node.attributes)) or [node]

    def _conv(self, node: Node, attributes: dict[str, Any]) -> list[Node] | None:
        given = attributes.pop("activation_params", [])
        steps = self._activation(attributes.pop("activation", ""), given)
        if steps is None or len(node.inputs) > 4:
            return None
        if len(node.inputs) == 4 and node.inputs[3]:
            steps = [("Add", [node.inputs[3]], {}), *steps]
        return self._chain(node, [("Conv", _without_omitted(node.inputs[:3]), attributes), *steps])

    def _gemm(self, node: Node, attributes: dict[str, Any]) -> list[Node] | None:
        names = ("activation_alpha", "activation_beta")
        steps = self._activation(
            attributes.pop("activation", ""), [attributes.pop(n) for n in names if n in attributes]
        )
        return None if steps is None else self._chain(node, [("Gemm", node.inputs, attributes), *steps])

    def _matmul(self, node: Node, attributes: dict[str, Any]) -> list[Node] | None:
        """Transposes the second matrix, which is a constant; an example is a row of the first."""
        alpha, transposes = attributes.pop("alpha", 1.0), attributes.pop("transB", 0)
        matrix = self._constants.find(node.inputs[1]) if len(node.inputs) == 2 else None
        if any(attributes.values()) or matrix is None or matrix.ndim < 2 or not isinstance(alpha, float):
            return None
        before, second = [], node.inputs[1]
        if transposes:
            perm = [*range(matrix.ndim - 2), matrix.ndim - 1, matrix.ndim - 2]
            second = self._names.new(f"{second}.transposed")
            before = [Node("Transpose", "", [node.inputs[1]], [second], {"perm": perm})]
        scale = [] if alpha == 1 else [("Mul", [self._constant(np.array(alpha, self._dtype))], dict[str, Any]())]
        return [*before, *self._chain(node, [("MatMul", [node.inputs[0], second], {}), *scale])]

    def _scaler(self, node: Node, attributes: dict[str, Any]) -> list[Node] | None:
        numbers = [attributes.pop(name, None) for name in ("offset", "scale")]
        if attributes or len(node.inputs) != 1 or not all(_are_floats(given) and given for given in numbers):
            return None
        offset, scale = (self._constant(np.array(given, self._dtype)) for given in numbers)
        return self._chain(node, [("Sub", [node.inputs[0], offset], {}), ("Mul", [scale], {})])

    def _activation(self, op: str, given: list[float]) -> list[tuple[str, list[str], dict[str, Any]]] | None:
        """Returns the node of an activation, no node without one; None for unknown ones and other parameters."""
        if not isinstance(op, str) or not _are_floats(given):
            return None
        if not op:
            return None if given else []
        if op == "Clip" and len(given) == 2:
            return [("Clip", [self._constant(np.array(bound, self._dtype)) for bound in given], {})]
        names = ACTIVATIONS.get(op)
        if names is None or len(names) != len(given):
            return None
        return [(op, [], dict(zip(names, given, strict=True)))]

    def _chain(self, node: Node, steps: list[tuple[str, list[str], dict[str, Any]]]) -> list[Node]:
        """Returns nodes of which each but the first takes the output of the one before as its first input."""
        nodes = list[Node]()
        for op, inputs, attributes in steps:
            read = [nodes[-1].outputs[0], *inputs] if nodes else list(inputs)
            outputs = node.outputs if len(nodes) == len(steps) - 1 else [self._names.new(f"{node.outputs[0]}.{op}")]
            origin = node.origin or node.outputs[0]
            nodes.append(
                Node(op, node.name, read, list(outputs), attributes, node.doc, alias=node.operator, origin=origin)
            )
        return nodes

    def _constant(self, array: Array) -> str:
        name = self._names.new("fused.constant")
        self.tensors[name] = array
        return name


def _are_floats(given: object) -> bool:
    return isinstance(given, list) and all(isinstance(number, float) for number in given)


def _without_omitted(inputs: list[str]) -> list[str]:
    """Returns inputs without omitted ones at the end."""
    return inputs[:-1] if inputs[-1:] == [""] else inputs
