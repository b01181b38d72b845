"""Graphs as plain data: the content of an ONNX file, independent of the onnx package."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, NoReturn

import numpy as np

from minidl.utils.arrays import Array
from minidl.utils.text import escape

OPSET, MAX_OPSET = 21, 28  # written, newest readable version
IR_VERSION = 10
MAX_NODES = 20_000
ANY_BATCH = -(2**40)  # stands for the batch size in shapes: any number of examples
DATA_TYPES = {"float32": 1, "int32": 6, "int64": 7, "bool": 9, "float64": 11}  # numbers of TensorProto.DataType
INDEX_TYPES = (DATA_TYPES["int32"], DATA_TYPES["int64"])
NO_SUCH_LAYER = "no layer of minidl does that"
NOT_COMPUTABLE = "expected a value computed from the graph's input, or a foldable constant, got neither"
REWRITTEN = "minidl"  # domain of nodes that passes put in place of nodes of the file
NOT_IN_OPSET = "not in this opset"  # domain of nodes of the file whose operators ONNX does not have


HINTS = {  # by pattern of the operator
    "If|Loop|Scan": "it runs graphs: export for fixed shapes, or fold constants, for example with onnxsim",
    "ArgMax|ArgMin|ArrayFeatureExtractor|LabelEncoder|NonMaxSuppression|TopK|ZipMap": (
        "name the values before it as the model's `outputs`, and compute it yourself"
    ),
    "Fused.*": "export it without the optimizer of onnxruntime, which fuses operators",
    "GRU|LSTM|RNN": "expected sequences with the batch first (in PyTorch batch_first=True), and constant weights",
    "ConvInteger|MatMulInteger.*|Dynamic.*": (
        "its ranges depend on the examples: quantize statically, with calibration data, or export the net of floats"
    ),
    "QLinear.*|QGemm": "it computes with integers: quantize in the format QDQ, or export the net of floats",
    "QuantizeLinear|DequantizeLinear": "expected pairs of one scale and zero point, whose integers nothing else reads",
}


@dataclass
class Node:
    """One operation on named values; "" stands for an omitted optional input.

    What errors name, which is in the file: alias, the operator in place of `op`; origin, the output of a node without
    a name, in place of `outputs`; axes, if a Transpose was moved over the node: those of the file, in its order.
    """

    op: str
    name: str
    inputs: list[str]
    outputs: list[str]
    # int, float, str, lists of these, or an array; in the domain REWRITTEN also a layer or a node
    attributes: dict[str, Any] = field(default_factory=dict)
    doc: str = ""
    domain: str = ""
    alias: str = ""
    origin: str = ""
    axes: tuple[int, ...] = ()

    def __str__(self) -> str:
        """Returns its name in errors."""
        output = self.origin or (self.outputs[0] if self.outputs else "")
        label = f"node {self.name!r}" if self.name else f"the node of {output!r}"
        moved = f", with axes {self.axes} of the file as {tuple(range(len(self.axes)))}" if self.axes else ""
        return f"{label} ({self.operator}{moved})"

    @property
    def operator(self) -> str:
        """Its operator in errors, with the domain unless that is ONNX's; printable whatever the file contains."""
        shown = "" if self.domain == NOT_IN_OPSET else self.domain
        return escape(self.alias or (f"{shown}.{self.op}" if shown else self.op))

    def rewritten(self, op: str, **changes: Any) -> Node:
        """Returns a node of the domain REWRITTEN in place of this one; errors name the operator of this one."""
        return replace(self, op=op, domain=REWRITTEN, **{"alias": self.alias or self.op, **changes})


@dataclass
class ValueInfo:
    """An input or output of the graph. shape: sizes of its axes, batch first; a name or None if dynamic."""

    name: str
    dtype: str
    shape: list[int | str | None] | None


@dataclass
class Graph:
    """Nodes in topological order, and the constants that they read."""

    nodes: list[Node]
    tensors: dict[str, Array]
    inputs: list[ValueInfo]
    outputs: list[ValueInfo]
    opset: int = OPSET
    metadata: dict[str, str] = field(default_factory=dict)
    # declared shapes of intermediate values
    shapes: dict[str, list[int | str | None] | None] = field(default_factory=dict)
    # the number of axes that a Transpose of the file, which is gone, has for a value
    ranks: dict[str, tuple[Node, int]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # what a warning says after an import
    producer: str = ""  # the program that wrote the file, and its version


def select_outputs(graph: Graph, outputs: str | Sequence[str]) -> Graph:
    """Returns the graph with these values as its outputs, and the nodes and inputs that they depend on.

    Raises TypeError unless they are names, and ValueError for none, for a repeated one, or one that no node computes.
    """
    names = [outputs] if isinstance(outputs, str) or not isinstance(outputs, Iterable) else list(outputs)
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"outputs: expected names of values, got {outputs!r}")
    declared = {value.name: value for value in graph.outputs}
    computed = {name for node in graph.nodes for name in node.outputs if name}
    if not names or len(set(names)) < len(names) or not computed.issuperset(names):
        unknown = next((name for name in names if name not in computed), "")
        meant = "".join(f"; did you mean {name!r}?" for name in get_close_matches(unknown, computed, 1))
        expected = f"names of values that nodes compute, each once: {', '.join(declared)}, or inner ones"
        raise ValueError(f"outputs: expected {expected}; got {', '.join(names) or 'none'}{meant}")
    needed, nodes = set(names), list[Node]()
    for node in reversed(graph.nodes):
        if needed.intersection(node.outputs):
            needed.update(node.inputs)
            nodes.append(node)
    kept = [declared.get(name) or ValueInfo(name, "", graph.shapes.get(name)) for name in names]
    inputs = [value for value in graph.inputs if value.name in needed]
    return replace(graph, nodes=nodes[::-1], inputs=inputs or graph.inputs, outputs=kept)


def shortest_float(number: Any) -> float:
    """Returns a number of NumPy as the float with the fewest decimal digits that is rounded to it, if it is no larger.

    >>> shortest_float(np.float32(0.1))
    0.1
    """
    shortest = float(str(number))
    largest = float(np.finfo(number.dtype).max)
    return float(number) if largest < abs(shortest) < math.inf else shortest


class Names:
    """New names for values of a graph."""

    def __init__(self, graph: Graph) -> None:
        self._taken = {name for node in graph.nodes for name in (*node.inputs, *node.outputs)} | set(graph.tensors)

    def new(self, wanted: str) -> str:
        """Returns a name that no value has, `wanted` if possible."""
        while wanted in self._taken:
            wanted += "_"
        self._taken.add(wanted)
        return wanted


class UnsupportedNodeError(ValueError):
    """A node that minidl has no layers for, and the reason."""

    def __init__(self, node: Node, reason: object) -> None:
        super().__init__(f"{node}: {reason}")
        self.node, self.reason = node, str(reason)


def no_such_layer(node: Node) -> str:
    """Returns the reason to refuse a node whose operator no layer computes, and what to do about it."""
    if node.domain == NOT_IN_OPSET:
        return "ONNX has no such operator in the file's opset"
    hint = next((hint for ops, hint in HINTS.items() if re.fullmatch(ops, node.op)), "")
    return f"{NO_SUCH_LAYER}: {hint}" if hint else NO_SUCH_LAYER


def not_computable(node: Node) -> str:
    """Returns the reason to refuse a node that reads neither the graph's input nor foldable constants."""
    reason = no_such_layer(node)
    return NOT_COMPUTABLE if reason == NO_SUCH_LAYER else reason


def refuse(node: Node, reason: object) -> NoReturn:
    """Raises UnsupportedNodeError for the node."""
    raise UnsupportedNodeError(node, reason)
