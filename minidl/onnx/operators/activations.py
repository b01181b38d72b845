"""Activations and Softmax."""

from __future__ import annotations

import numpy as np

from minidl.layers import ELU, GELU, Hardswish, LeakyReLU, PReLU, ReLU, Sigmoid, SiLU, Softmax, Tanh
from minidl.layers.base import Layer
from minidl.onnx.node_reader import LayerWithWeights, NodeReader, ReadFunction, per_channel_constant
from minidl.onnx.node_writer import NodeWriter, WriteFunction


def write_as(op: str) -> WriteFunction:
    """Returns a function that writes a layer as one operator without attributes."""
    return lambda writer, x: writer.add_node(op, x)


def read_as(cls: type[Layer]) -> ReadFunction:
    """Returns a function that reads an operator as one layer without arguments."""
    return lambda reader: [LayerWithWeights(cls())]


def write_leaky_relu(writer: NodeWriter, x: str) -> str:
    return writer.add_node("LeakyRelu", x, alpha=float(writer["negative_slope"]))


def read_leaky_relu(reader: NodeReader) -> list[LayerWithWeights]:
    return [LayerWithWeights(LeakyReLU(reader.attribute("alpha", 0.01)))]


def write_elu(writer: NodeWriter, x: str) -> str:
    return writer.add_node("Elu", x, alpha=float(writer["alpha"]))


def read_elu(reader: NodeReader) -> list[LayerWithWeights]:
    return [LayerWithWeights(ELU(reader.attribute("alpha", 1.0)))]


def write_gelu(writer: NodeWriter, x: str) -> str:
    return writer.add_node("Gelu", x, approximate=writer["approximate"])


def read_gelu(reader: NodeReader) -> list[LayerWithWeights]:
    return [LayerWithWeights(GELU(reader.expect_attribute("approximate", "none", "tanh")))]


def write_silu(writer: NodeWriter, x: str) -> str:
    """Writes x * Sigmoid(x), since Swish is newer than the opset. `minidl.onnx.joins` reads it."""
    return writer.add_node("Mul", x, writer.add_node("Sigmoid", x))


def read_swish(reader: NodeReader) -> list[LayerWithWeights]:
    reader.expect_attribute("alpha", 1.0)
    return [LayerWithWeights(SiLU())]


def write_prelu(writer: NodeWriter, x: str) -> str:
    slope = writer.param_name("weight") if writer["shared"] else writer.column("weight")
    return writer.add_node("PRelu", x, slope)


def read_prelu(reader: NodeReader) -> list[LayerWithWeights]:
    slope = per_channel_constant(reader, 1)
    if slope is None:
        reader.refuse(f"expected one slope, or one per channel, got shape {reader.constant(1).shape}")
    return [LayerWithWeights(PReLU(shared=slope.size == 1), {"weight": np.array(slope)})]


def write_softmax(writer: NodeWriter, x: str) -> str:
    return writer.add_node("Softmax", x, axis=1)


def read_softmax(reader: NodeReader) -> list[LayerWithWeights]:
    """Reads a Softmax over channels; before opset 13 it flattens all axes from `axis` on."""
    axis = reader.normalize_axis(reader.attribute("axis", 1 if reader.opset < 13 else -1))
    if axis != 1:
        reader.refuse(f"expected axis=1, the channels, got {axis}: no layer of minidl does that")
    if reader.opset < 13 and any(size > 1 for size in reader.shape[1:]):
        reader.refuse(f"expected vectors, got {reader.shape}: before opset 13 Softmax sums over the whole example")
    return [LayerWithWeights(Softmax())]


WRITE_FUNCTIONS: dict[type[Layer], WriteFunction] = {
    ELU: write_elu,
    GELU: write_gelu,
    Hardswish: write_as("HardSwish"),
    LeakyReLU: write_leaky_relu,
    PReLU: write_prelu,
    ReLU: write_as("Relu"),
    SiLU: write_silu,
    Sigmoid: write_as("Sigmoid"),
    Softmax: write_softmax,
    Tanh: write_as("Tanh"),
}
READ_FUNCTIONS: dict[str, ReadFunction] = {
    "Elu": read_elu,
    "Gelu": read_gelu,
    "HardSwish": read_as(Hardswish),
    "LeakyRelu": read_leaky_relu,
    "PRelu": read_prelu,
    "Relu": read_as(ReLU),
    "Sigmoid": read_as(Sigmoid),
    "Softmax": read_softmax,
    "Swish": read_swish,
    "Tanh": read_as(Tanh),
}
