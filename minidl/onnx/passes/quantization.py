"""Quantized nets in the format QDQ: floats, rounded by pairs of QuantizeLinear and DequantizeLinear between operators.

The pairs go. A pair whose zero point is at the end of its range also cuts off negative numbers, so quantizers leave out
the activation before it: it becomes a Clip.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from minidl.onnx.constant_folding import Constants
from minidl.onnx.graph import Graph, Names, Node
from minidl.onnx.quantized import DTYPE_NUMBERS, RANGES
from minidl.utils.arrays import Array

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
DOMAINS = ("", "com.microsoft")
MOVES = {"Flatten", "Identity", "MaxPool", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}  # of integers, too
KEEP_SIGN = {*MOVES, "Add", "AveragePool", "Concat", "Dropout", "GlobalAveragePool", "GlobalMaxPool", "Mul", "Sum"}
NOT_NEGATIVE = {"Exp", "HardSigmoid", "Relu", "Sigmoid", "Softmax", "Softplus", "ThresholdedRelu"}


def remove_quantization(graph: Graph) -> Graph:
    """Returns the graph with floats only; with a note if anything was quantized."""
    if not any(node.op in (QUANTIZE, DEQUANTIZE) and node.domain in DOMAINS for node in graph.nodes):
        return graph
    nodes = [replace(node, domain="") if _is(node, QUANTIZE, DEQUANTIZE) else node for node in graph.nodes]
    return _Remover(replace(graph, nodes=nodes)).run()


def _is(node: Node, *ops: str) -> bool:
    return node.op in ops and node.domain in DOMAINS


@dataclass(frozen=True)
class _Format:
    """One scale and zero point, and the dtype of the integers."""

    scale: float
    zero_point: int
    dtype: str

    def bounds(self) -> tuple[float, float]:
        """Returns the numbers that the lowest and the highest integer stand for."""
        low, high = RANGES[self.dtype]
        return self.scale * (low - self.zero_point), self.scale * (high - self.zero_point)


class _Remover:
    """formats: of values that are integers. removable: those that become floats again, whatever reads them."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.constants, self.names = graph, Constants(graph), Names(graph)
        self.nodes, self.tensors = list[Node](), dict(graph.tensors)
        self.formats: dict[str, _Format] = {}
        self.aliases: dict[str, str] = {}
        self.removable = self._find_removable()
        self.inputs = self._find_inputs()
        self.positive = {value.name for value in graph.inputs}  # no negative numbers, or what the user passes
        self.n_pairs = 0

    def _find_removable(self) -> set[str]:
        """Returns the integer values that are read by moves and DequantizeLinear of their own format only."""
        for node in self.graph.nodes:
            quantizes = _is(node, QUANTIZE) and node.inputs[0] not in self.constants
            found = self._format(node) if quantizes else self._moved_format(node)
            if found is not None:
                self.formats[node.outputs[0]] = found
        removable = self.formats.keys() - {value.name for value in self.graph.outputs}
        for node in reversed(self.graph.nodes):
            keeps = _is(node, DEQUANTIZE) or (node.op in MOVES and node.outputs[0] in removable)
            for name in node.inputs:
                same = not _is(node, DEQUANTIZE) or self._format(node) == self.formats.get(name)
                if name in removable and not (keeps and same and name == node.inputs[0]):
                    removable.discard(name)
        return removable

    def _moved_format(self, node: Node) -> _Format | None:
        moves = node.op in MOVES and not node.domain and len(node.outputs) == 1
        return self.formats.get(node.inputs[0]) if moves and node.inputs else None

    def _format(self, node: Node) -> _Format | None:
        """Returns the format of a node; None unless it has one constant scale, and a zero point of RANGES."""
        scale, zero_point = (self._constant(node, index) for index in (1, 2))
        if scale is None or scale.size != 1 or scale.dtype.kind != "f" or not 0 < scale.reshape(-1)[0] < np.inf:
            return None
        if zero_point is None:
            dtype = DTYPE_NUMBERS.get(node.attributes.get("output_dtype", 2))
            return None if any(node.inputs[2:]) or dtype is None else _Format(float(scale.reshape(-1)[0]), 0, dtype)
        if zero_point.size != 1 or str(zero_point.dtype) not in RANGES:
            return None
        return _Format(float(scale.reshape(-1)[0]), int(zero_point.reshape(-1)[0]), str(zero_point.dtype))

    def _constant(self, node: Node, index: int) -> Array | None:
        return self.constants.find(node.inputs[index]) if index < len(node.inputs) and node.inputs[index] else None

    def _find_inputs(self) -> dict[str, str]:
        """Returns the inputs of integers that are read by DequantizeLinear of one number only, and their new dtype."""
        found = dict[str, str]()
        for value in self.graph.inputs:
            readers = [node for node in self.graph.nodes if value.name in node.inputs]
            scales = [self._constant(node, 1) for node in readers if _is(node, DEQUANTIZE) and self._format(node)]
            dtypes = {str(scale.dtype) for scale in scales if scale is not None}
            if value.dtype in RANGES and len(scales) == len(readers) and len(dtypes) == 1:
                found[value.name] = dtypes.pop()
        return found

    def run(self) -> Graph:
        for node in self.graph.nodes:
            self._copy(node, replace(node, inputs=[self.aliases.get(name, name) for name in node.inputs]))
        for value in self.graph.outputs:
            if (source := self.aliases.get(value.name)) is not None:
                self.nodes.append(Node("Identity", "", [source], [value.name]))
        n_constants = sum(_is(node, DEQUANTIZE) and node.outputs[0] in self.constants for node in self.nodes)
        removed = f"{self.n_pairs} pairs of {QUANTIZE} and {DEQUANTIZE} were removed, and {n_constants} constants"
        note = f"the file is quantized: {removed} dequantized, so the net computes with floats, without their rounding"
        inputs = [replace(value, dtype=self.inputs.get(value.name, value.dtype)) for value in self.graph.inputs]
        return replace(
            self.graph, nodes=self.nodes, tensors=self.tensors, inputs=inputs, notes=[*self.graph.notes, note]
        )

    def _copy(self, node: Node, resolved: Node) -> None:
        """Copies a node, or notes what its output is an alias of. resolved: it reads no aliases."""
        if _is(node, QUANTIZE) and node.outputs[0] in self.removable:
            self.n_pairs += 1
            self._alias(node, self._clip(node, resolved.inputs[0]))
        elif _is(node, DEQUANTIZE) and node.inputs[0] in self.removable:
            self._alias(node, resolved.inputs[0])
        elif _is(node, DEQUANTIZE) and node.inputs[0] in self.inputs:
            self._scale_input(node)
        else:
            data = [name for name in resolved.inputs if name and name not in self.constants]
            kept = node.op in KEEP_SIGN and len(data) == len(resolved.inputs) and self.positive.issuperset(data)
            if not node.domain and (node.op in NOT_NEGATIVE or kept):
                self.positive.update(node.outputs)
            self.nodes.append(resolved)

    def _alias(self, node: Node, source: str) -> None:
        self.aliases[node.outputs[0]] = source

    def _clip(self, node: Node, source: str) -> str:
        """Returns the value of a pair: `source`, or it without the signs that no integer of the format stands for."""
        found = self.formats[node.outputs[0]]
        low, high = found.bounds()
        if low < 0 < high or (low == 0 and source in self.positive):
            return source
        dtype = str(self.constants[node.inputs[1]].dtype)
        bounds = [self._tensor(node, bound, dtype) for bound in (low, high)]
        name = self.names.new(f"{node.outputs[0]}.clipped")
        self.nodes.append(Node("Clip", node.name, [source, *bounds], [name]))
        if low == 0:
            self.positive.add(name)
        return name

    def _scale_input(self, node: Node) -> None:
        """Writes (x - zero point) * scale for a DequantizeLinear of the graph's input."""
        x, zero_point = node.inputs[0], self._constant(node, 2)
        dtype = self.inputs[x]
        offset = 0 if zero_point is None else int(zero_point.reshape(-1)[0])
        shifted = self.names.new(f"{node.outputs[0]}.shifted")
        scale = self._tensor(node, float(self.constants[node.inputs[1]].reshape(-1)[0]), dtype)
        self.nodes.append(Node("Sub", node.name, [x, self._tensor(node, offset, dtype)], [shifted]))
        self.nodes.append(Node("Mul", node.name, [shifted, scale], node.outputs))

    def _tensor(self, node: Node, number: float, dtype: str) -> str:
        """Adds a constant of one number; returns its name."""
        name = self.names.new(f"{node.outputs[0]}.constant")
        self.tensors[name] = np.array(number, dtype)
        return name
