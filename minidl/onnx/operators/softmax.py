"""Softmax, LogSoftmax and Softmin."""

from __future__ import annotations

from minidl.layers import LogSoftmax, Softmax, Softmin
from minidl.layers.base import Layer
from minidl.onnx.node_reader import LayerWithWeights, NodeReader, ReadFunction
from minidl.onnx.node_writer import NodeWriter, WriteFunction


def write_over_channels(op: str) -> WriteFunction:
    """Returns a function that writes a layer as one operator over the channels."""
    return lambda writer, x: writer.add_node(op, x, axis=1)


def write_softmin(writer: NodeWriter, x: str) -> str:
    return writer.add_node("Softmax", writer.add_node("Neg", x), axis=1)


def read_over_channels(cls: type[Layer]) -> ReadFunction:
    """Returns a function that reads a Softmax or LogSoftmax over channels."""

    def read(reader: NodeReader) -> list[LayerWithWeights]:
        axis = reader.normalize_axis(reader.attribute("axis", 1 if reader.opset < 13 else -1))
        if axis != 1:
            reader.refuse(f"expected axis=1, the channels, got {axis}: no layer of minidl does that")
        if reader.opset < 13 and any(size > 1 for size in reader.shape[1:]):  # it flattens all axes from `axis` on
            op = reader.node.op
            reader.refuse(f"expected vectors, got {reader.shape}: before opset 13 {op} sums over the whole example")
        return [LayerWithWeights(cls())]

    return read


WRITE_FUNCTIONS: dict[type[Layer], WriteFunction] = {
    LogSoftmax: write_over_channels("LogSoftmax"),
    Softmax: write_over_channels("Softmax"),
    Softmin: write_softmin,
}
READ_FUNCTIONS: dict[str, ReadFunction] = {
    "LogSoftmax": read_over_channels(LogSoftmax),
    "Softmax": read_over_channels(Softmax),
}
