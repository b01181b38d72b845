"""Reductions over axes: Reduce, and the global pools, which are reductions over all pixels."""

from __future__ import annotations

from minidl.layers import (
    Abs,
    GlobalAvgPool1D,
    GlobalAvgPool2D,
    GlobalMaxPool1D,
    GlobalMaxPool2D,
    Log,
    Reduce,
    Reshape,
    Square,
)
from minidl.layers.base import Layer
from minidl.onnx.node_reader import LayerWithWeights, NodeReader, ReadFunction
from minidl.onnx.node_writer import NodeWriter, WriteFunction
from minidl.onnx.operators.shapes import reshape_to
from minidl.onnx.operators.windows import collapse
from minidl.utils.validation import check_axes

OPERATORS = {"mean": "ReduceMean", "sum": "ReduceSum", "max": "ReduceMax", "min": "ReduceMin", "l2": "ReduceL2"}
GLOBAL_POOLS: dict[tuple[str, int], type[Layer]] = {
    ("mean", 2): GlobalAvgPool1D,
    ("mean", 3): GlobalAvgPool2D,
    ("max", 2): GlobalMaxPool1D,
    ("max", 3): GlobalMaxPool2D,
}


def write_reduce(writer: NodeWriter, x: str) -> str:
    """Writes one node, and a Reshape if no axis is left."""
    axes = check_axes("axis", writer["axis"], len(writer.in_shape))
    given = writer.add_int_constant("axes", [axis + 1 for axis in axes])
    vanish = len(axes) == len(writer.in_shape) and not writer["keepdims"]
    y = writer.add_node(OPERATORS[writer["function"]], x, given, keepdims=int(writer["keepdims"] or vanish))
    return writer.add_node("Reshape", y, writer.add_int_constant("shape", (0, 1))) if vanish else y


def read_reduce(function: str, *, before: type[Layer] | None = None, after: type[Layer] | None = None) -> ReadFunction:
    """Returns a function that reads a reduction, of another function of each number, or before one."""

    def read(reader: NodeReader) -> list[LayerWithWeights]:
        axes = reader.ints_or_attribute("axes", 1, since=13 if reader.node.op == "ReduceSum" else 18)
        keepdims, rank = bool(reader.expect_attribute("keepdims", 1, 0)), len(reader.shape)
        around = [[LayerWithWeights(cls())] if cls else [] for cls in (before, after)]
        if reader.expect_attribute("noop_with_empty_axes", 0, 1) and not axes:
            if before or after or function == "l2":
                reader.refuse("expected axes, got none: ONNX's versions differ in what is computed then")
            return []
        reduced = sorted(reader.normalize_axis(axis) - 1 for axis in axes or range(rank + 1))
        if -1 in reduced:
            reader.refuse(f"expected axes after the batch, got {'all' if not axes else list(axes)}")
        if len(set(reduced)) < len(reduced):
            reader.refuse(f"expected axes of {reader.shape}, each once, got {list(axes or ())}")
        if len(reduced) == rank and not keepdims:
            reader.refuse(f"expected keepdims=1, or an axis of {reader.shape} that is left, got keepdims=0 and {axes}")
        layers = [LayerWithWeights(Reduce(function, collapse(reduced), keepdims=keepdims))]
        left = tuple(1 if k in reduced else n for k, n in enumerate(reader.shape) if keepdims or k not in reduced)
        if all(reader.shape[axis] == 1 for axis in reduced) and function != "l2":
            layers = reshape_to(reader, left)
        elif reduced == [*range(1, rank)] and (pool := GLOBAL_POOLS.get((function, rank))):
            layers = [LayerWithWeights(pool()), *([LayerWithWeights(Reshape(left))] if keepdims else [])]
        return [*around[0], *layers, *around[1]]

    return read


WRITE_FUNCTIONS: dict[type[Layer], WriteFunction] = {Reduce: write_reduce}
READ_FUNCTIONS: dict[str, ReadFunction] = {
    **{op: read_reduce(function) for function, op in OPERATORS.items()},
    "ReduceL1": read_reduce("sum", before=Abs),
    "ReduceLogSum": read_reduce("sum", after=Log),
    "ReduceSumSquare": read_reduce("sum", before=Square),
}
