"""Inspection of an ONNX file: what it holds, and whether layers can express it."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from minidl.onnx.graph import Graph, ValueInfo, select_outputs
from minidl.onnx.importing import build_model
from minidl.onnx.passes.old_opsets import NEW
from minidl.onnx.unsupported import SHAPES_MISSING, Obstacle, UnsupportedGraphError
from minidl.quantization import QuantizedModel
from minidl.quantization.program import SumOfProducts
from minidl.sequential import Sequential
from minidl.utils.text import escape_lines
from minidl.utils.validation import Shape


@dataclass(frozen=True)
class Inspection:
    """What `minidl.onnx.inspect` found in a file; prints as text.

    producer: the program that wrote it. inputs, outputs: (name, dtype, shape), the shape None if it is not declared.
    operators: the number of nodes of each; local functions are inlined. parameters: of the model, or if it cannot be
    imported, the numbers in tensors of real numbers. macs: multiply-adds of one example; None without a model.
    computed: the node of each output with the values that it reads, such as "Softmax of 'logits'": names that the
    argument `outputs` takes, too.
    obstacles: what `import_model` would refuse; `str` of one names the node, what was expected, and what to do.
    notes: of what it would warn.
    """

    producer: str
    opset: int
    inputs: tuple[tuple[str, str, tuple[int | str | None, ...] | None], ...]
    outputs: tuple[tuple[str, str, tuple[int | str | None, ...] | None], ...]
    operators: dict[str, int]
    computed: dict[str, str]
    parameters: int
    macs: int | None
    obstacles: tuple[Obstacle, ...]
    notes: tuple[str, ...] = ()
    shapes_missing: bool = False

    def __str__(self) -> str:
        old = f", read as opset {NEW}" if self.opset < NEW else ""
        nodes = ", ".join(f"{count} {operator}" for operator, count in self.operators.items())
        macs = "" if self.macs is None else f", {self.macs:,} multiply-adds an example"
        lines = [
            f"file of {self.producer or 'an unknown program'}, opset {self.opset}{old}",
            *(f"input {_describe(*value)}" for value in self.inputs),
            *(f"output {_describe(*value)}, {self.computed.get(value[0], 'not computed')}" for value in self.outputs),
            f"nodes: {nodes}",
            f"{self.parameters:,} parameters{macs}",
        ]
        if not self.obstacles:
            return escape_lines("\n".join([*lines, *self.notes, "import_model reads it"]))
        head = f"import_model refuses it: {len(self.obstacles)} obstacle{'s' if len(self.obstacles) > 1 else ''}"
        note = [SHAPES_MISSING] if self.shapes_missing else []
        return escape_lines("\n  ".join(["\n".join([*lines, head]), *map(str, self.obstacles), *note]))

    __repr__ = __str__


def inspect_graph(
    graph: Graph,
    input_shape: Shape | None,
    outputs: str | Sequence[str] | None = None,
    dequantize: bool = False,
) -> Inspection:
    """Returns what is in a graph, after an attempt to turn it into layers, or integers."""
    graph = graph if outputs is None else select_outputs(graph, outputs)
    held: dict[str, Any] = {
        "producer": graph.producer,
        "opset": graph.opset,
        "inputs": tuple(map(_describe_value, graph.inputs)),
        "outputs": tuple(map(_describe_value, graph.outputs)),
        "computed": _computed(graph),
        "operators": dict(Counter(node.operator for node in graph.nodes).most_common()),
    }
    floats = sum(array.size for array in graph.tensors.values() if array.dtype.kind == "f")
    missing, model, obstacles = False, None, tuple[Obstacle, ...]()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model = build_model(graph, input_shape, dequantize=dequantize)
        except UnsupportedGraphError as error:
            obstacles, missing = tuple(error.obstacles), error.shapes_missing
        except ValueError as error:
            obstacles = (Obstacle(str(error)),)
    parameters, macs = _counts(model) if model else (floats, None)
    notes = tuple(str(warning.message) for warning in caught)
    return Inspection(
        **held, parameters=parameters, macs=macs, obstacles=obstacles, notes=notes, shapes_missing=missing
    )


def _counts(model: Sequential) -> tuple[int, int]:
    """Returns the parameters of a model, those of integers among them, and its multiply-adds for one example."""
    summary = Sequential.summary(model)
    program = model.program.operations if isinstance(model, QuantizedModel) else ()
    sums = [operation for operation in program if isinstance(operation, SumOfProducts)]
    return summary.parameters + sum(o.weights.size + o.biases.size for o in sums), summary.macs


def _describe_value(value: ValueInfo) -> tuple[str, str, tuple[int | str | None, ...] | None]:
    return value.name, value.dtype, None if value.shape is None else tuple(value.shape)


def _computed(graph: Graph) -> dict[str, str]:
    nodes = {name: node for node in graph.nodes for name in node.outputs}
    found = {}
    for value in graph.outputs:
        if node := nodes.get(value.name):
            read = ", ".join(repr(name) for name in node.inputs if name and name not in graph.tensors)
            found[value.name] = f"{node.operator} of {read}" if read else node.operator
    return found


def _describe(name: str, dtype: str, shape: Iterable[int | str | None] | None) -> str:
    sizes = "of unknown shape" if shape is None else f"({', '.join(str(s or '?') for s in shape)})"
    return f"{name!r}: {dtype} {sizes}" if dtype else f"{name!r}: {sizes}"
