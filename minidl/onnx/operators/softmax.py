"""Softmax, LogSoftmax and Softmin."""

from __future__ import annotations

import math

from minidl.layers import LogSoftmax, Softmax, Softmin
from minidl.layers.base import Layer
from minidl.onnx.node_reader import LayerWithWeights, NodeReader, ReadFunction
from minidl.onnx.node_writer import NodeWriter, WriteFunction
from minidl.onnx.operators.windows import collapse
from minidl.utils.validation import check_axes


def write_softmax(writer: NodeWriter, x: str, op: str = "Softmax") -> str:
    """Writes one node; over several axes, on an array in which they are one."""
    axes, shape = check_axes("axis", writer["axis"], len(writer.in_shape)), writer.in_shape
    if len(axes) == 1:
        return writer.add_node(op, x, axis=axes[0] + 1)
    first, end = axes[0], axes[-1] + 1
    sizes = (0, math.prod(shape[:first]), math.prod(shape[first:end]), math.prod(shape[end:]))
    x = writer.add_node("Reshape", x, writer.add_int_constant("together", sizes))
    return writer.add_node("Reshape", writer.add_node(op, x, axis=2), writer.add_int_constant("shape", (0, *shape)))


def write_log_softmax(writer: NodeWriter, x: str) -> str:
    return write_softmax(writer, x, "LogSoftmax")


def write_softmin(writer: NodeWriter, x: str) -> str:
    return write_softmax(writer, writer.add_node("Neg", x))


def read_softmax(cls: type[LogSoftmax | Softmax]) -> ReadFunction:
    """Returns a function that reads a Softmax or LogSoftmax over an axis; before opset 13, also over all later ones."""

    def read(reader: NodeReader) -> list[LayerWithWeights]:
        axis = reader.normalize_axis(reader.attribute("axis", 1 if reader.opset < 13 else -1))
        if axis == 0:
            reader.refuse("expected an axis after the batch, got 0")
        axes = range(axis - 1, len(reader.shape) if reader.opset < 13 else axis)
        summed = [k for k in axes if reader.shape[k] > 1] or [axis - 1]
        return [LayerWithWeights(cls(collapse(range(summed[0], summed[-1] + 1))))]

    return read


WRITE_FUNCTIONS: dict[type[Layer], WriteFunction] = {
    LogSoftmax: write_log_softmax,
    Softmax: write_softmax,
    Softmin: write_softmin,
}
READ_FUNCTIONS: dict[str, ReadFunction] = {
    "LogSoftmax": read_softmax(LogSoftmax),
    "Softmax": read_softmax(Softmax),
}
