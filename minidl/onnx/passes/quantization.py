"""Quantized nets in the format QDQ: floats, rounded by pairs of QuantizeLinear and DequantizeLinear between operators.

For a net of floats, the pairs go. A pair whose zero point is at the end of its range also cuts off negative numbers, so
quantizers leave out the activation before it: it becomes a Clip. For a net of integers, each pair becomes one node,
FAKE_QUANTIZE.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from minidl.onnx.constant_folding import Constants
from minidl.onnx.graph import REWRITTEN, Graph, Names, Node, refuse
from minidl.onnx.quantized import DTYPE_NUMBERS, RANGES
from minidl.utils.arrays import Array

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
FAKE_QUANTIZE = "FakeQuantize"  # rounds to the steps of int8, with attributes scale and zero_point
DOMAINS = ("", "com.microsoft")
MOVES = {"Flatten", "Identity", "MaxPool", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}  # of integers, too
KEEP_SIGN = {*MOVES, "Add", "AveragePool", "Concat", "Dropout", "GlobalAveragePool", "GlobalMaxPool", "Mul", "Sum"}
CLIPPED = {"Add", "BatchNormalization", "Conv", "Gemm", "MatMul", "Relu", "Sum"}  # before the rounding, at no cost
NOT_NEGATIVE = {"Exp", "HardSigmoid", "Relu", "Sigmoid", "Softmax", "Softplus", "ThresholdedRelu"}


def remove_quantization(graph: Graph, rounds: bool) -> Graph:
    """Returns the graph with floats only; with a note if anything was quantized. rounds: with nodes that round them."""
    if not any(_is(node, QUANTIZE, DEQUANTIZE) for node in graph.nodes):
        return graph
    nodes = [replace(node, domain="") if _is(node, QUANTIZE, DEQUANTIZE) else node for node in graph.nodes]
    graph = replace(graph, nodes=nodes)
    return _Remover(graph, rounds and _has_quantized_values(graph)).run()


def rounds_values(graph: Graph) -> bool:
    """True if a graph has nodes that round, so that integers can compute it."""
    return any(node.op == FAKE_QUANTIZE and node.domain == REWRITTEN for node in graph.nodes)


def _has_quantized_values(graph: Graph) -> bool:
    """True if a value that is computed from the input is quantized, or an input of integers is dequantized."""
    constants, inputs = Constants(graph), {value.name for value in graph.inputs}
    return any(
        node.inputs[0] not in constants if _is(node, QUANTIZE) else node.inputs[0] in inputs
        for node in graph.nodes
        if _is(node, QUANTIZE, DEQUANTIZE)
    )


def _is(node: Node, *ops: str) -> bool:
    return node.op in ops and node.domain in DOMAINS and len(node.inputs) in (2, 3) and len(node.outputs) == 1


@dataclass(frozen=True)
class _Format:
    """One scale and zero point, and the dtype of the integers."""

    scale: float
    zero_point: int
    dtype: str

    def real(self, number: int) -> float:
        """Returns what an integer stands for."""
        return self.scale * (number - self.zero_point)

    def bounds(self) -> tuple[float, float]:
        """Returns the numbers that the lowest and the highest integer stand for."""
        low, high = RANGES[self.dtype]
        return self.real(low), self.real(high)


class _Remover:
    """formats: of values that are integers. removable: those that become floats again, whatever reads them.

    exact: values of which a rounding to their own format changes nothing.
    """

    def __init__(self, graph: Graph, rounds: bool) -> None:
        self.graph, self.constants, self.names, self.rounds = graph, Constants(graph), Names(graph), rounds
        self.readers = dict[str, list[Node]]()
        for node in graph.nodes:
            for name in dict.fromkeys(node.inputs):
                self.readers.setdefault(name, []).append(node)
        self.operators = {name: node.op for node in graph.nodes for name in node.outputs}
        self.exact = set[str]()
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
            moves = node.op in MOVES or self._clips(node)
            keeps = _is(node, DEQUANTIZE) or (moves and node.outputs[0] in removable)
            for name in node.inputs:
                same = not _is(node, DEQUANTIZE) or self._format(node) == self.formats.get(name)
                if name in removable and not (keeps and same and name == node.inputs[0]):
                    removable.discard(name)
        return removable

    def _clips(self, node: Node) -> bool:
        """True for a Clip whose bounds are constants."""
        return node.op == "Clip" and all(name in self.constants for name in node.inputs[1:] if name)

    def _moved_format(self, node: Node) -> _Format | None:
        moves = (node.op in MOVES or self._clips(node)) and not node.domain and len(node.outputs) == 1
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
            readers = self.readers.get(value.name, [])
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
        notes = self.graph.notes if self.rounds else [*self.graph.notes, note]
        return replace(self.graph, nodes=self.nodes, tensors=self.tensors, inputs=inputs, notes=notes)

    def _copy(self, node: Node, resolved: Node) -> None:
        """Copies a node, or notes what its output is an alias of. resolved: it reads no aliases."""
        if _is(node, QUANTIZE) and node.outputs[0] in self.removable:
            self.n_pairs += 1
            self._alias(node, (self._rounded_value if self.rounds else self._clip)(node, resolved.inputs[0]))
        elif _is(node, DEQUANTIZE) and node.inputs[0] in self.removable:
            self._alias(node, resolved.inputs[0])
            self.exact.update(node.outputs)
        elif _is(node, DEQUANTIZE) and node.inputs[0] in self.inputs:
            self._scale_input(node)
        elif node.op == "Clip" and node.outputs[0] in self.formats and node.inputs[0] in self.removable:
            self._clip_integers(node, resolved.inputs[0])
        else:
            if node.op in MOVES and not node.domain and node.inputs and node.inputs[0] in self.exact:
                self.exact.update(node.outputs)
            data = [name for name in resolved.inputs if name and name not in self.constants]
            kept = node.op in KEEP_SIGN and len(data) == len(resolved.inputs) and self.positive.issuperset(data)
            if not node.domain and (node.op in NOT_NEGATIVE or kept):
                self.positive.update(node.outputs)
            self.nodes.append(resolved)

    def _rounded_value(self, node: Node, source: str) -> str:
        """Returns the value of a pair, rounded; or as it is, if a Clip that alone reads it can come before that.

        Raises UnsupportedNodeError for a value that is also read as it is, or rounded in another way.
        """
        for other in [] if node.inputs[0] in self.exact else self.readers[node.inputs[0]]:
            if not _is(other, QUANTIZE) and other.op != "Shape":
                refuse(node, f"expected a value that is quantized for all that reads it, got floats for {other}")
            if _is(other, QUANTIZE) and self._format(other) != self._format(node):
                refuse(node, f"expected one scale and zero point for its input, got others in {other}")
        is_clipped = [reader.op for reader in self.readers.get(node.outputs[0], [])] == ["Clip"]
        if is_clipped and self.operators.get(node.inputs[0]) in CLIPPED:
            return source
        return self._rounded(node, source, self.formats[node.outputs[0]], self.names.new(f"{node.outputs[0]}.rounded"))

    def _rounded(self, node: Node, source: str, found: _Format, name: str) -> str:
        """Adds the node that rounds a value; returns the name of its output. An uint8 is an int8 plus 128."""
        if found.dtype not in ("int8", "uint8"):
            refuse(node, f"expected int8 or uint8, got {found.dtype}")
        attributes = {"scale": found.scale, "zero_point": found.zero_point - 128 * (found.dtype == "uint8")}
        self.nodes.append(node.rewritten(FAKE_QUANTIZE, inputs=[source], outputs=[name], attributes=attributes))
        return name

    def _clip_integers(self, node: Node, source: str) -> None:
        """Writes a Clip of integers as one of the numbers that they stand for."""
        found, dtype = self.formats[node.outputs[0]], self.graph.inputs[0].dtype if self.graph.inputs else "float32"
        bounds = []
        for name in node.inputs[1:]:
            number = found.real(int(self.constants[name].reshape(-1)[0])) if name else 0.0
            bounds.append(self._tensor(node, number, dtype) if name else "")
        name = self.names.new(f"{node.outputs[0]}.clipped")
        self.nodes.append(replace(node, inputs=[source, *bounds], outputs=[name]))
        if self.rounds:
            name = self._rounded(node, name, found, self.names.new(f"{node.outputs[0]}.rounded"))
        self._alias(node, name)

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
        found, (y,) = self._format(node), node.outputs
        scaled = self.names.new(f"{y}.scaled") if self.rounds else y
        self.nodes.append(Node("Mul", node.name, [shifted, scale], [scaled]))
        if self.rounds and found is not None:
            self._rounded(node, scaled, found, y)
            self.exact.add(y)

    def _tensor(self, node: Node, number: float, dtype: str) -> str:
        """Adds a constant of one number; returns its name."""
        name = self.names.new(f"{node.outputs[0]}.constant")
        self.tensors[name] = np.array(number, dtype)
        return name
