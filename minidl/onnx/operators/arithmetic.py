"""Elementwise layers, and layers that do nothing in inference: Rescale, Normalize, Scale, Dropout, augmentation."""

from __future__ import annotations

import numpy as np

from minidl.layers import (
    ColorJitter,
    Cutout,
    Dropout,
    Dropout2D,
    GaussianNoise,
    Normalize,
    RandomFlip,
    RandomRotation,
    RandomShift,
    RandomZoom,
    Rescale,
    Scale,
    StochasticDepth,
)
from minidl.layers.base import Layer
from minidl.onnx.node_reader import (
    LayerWithWeights,
    NodeReader,
    ReadFunction,
    broadcast_to_channels,
    per_channel_constant,
)
from minidl.onnx.node_writer import NodeWriter, WriteFunction
from minidl.utils.arrays import Array


def write_rescale(writer: NodeWriter, x: str) -> str:
    y = writer.add_node("Mul", x, writer.add_constant("scale", writer["scale"]))
    return writer.add_node("Add", y, writer.add_constant("offset", writer["offset"])) if writer["offset"] else y


def write_normalize(writer: NodeWriter, x: str) -> str:
    shape = (-1,) + (1,) * (len(writer.in_shape) - 1)
    mean, std = (np.asarray(writer[name], "float64") for name in ("mean", "std"))
    std = np.where(std == 0, 1.0, std)
    if mean.ndim or std.ndim:
        channels = writer.in_shape[0]
        mean, std = (
            broadcast_to_channels(mean, channels).reshape(shape),
            broadcast_to_channels(std, channels).reshape(shape),
        )
    return writer.add_node(
        "Div", writer.add_node("Sub", x, writer.add_constant("mean", mean)), writer.add_constant("std", std)
    )


def write_scale(writer: NodeWriter, x: str) -> str:
    y = writer.add_node("Mul", x, writer.column("weight"))
    return writer.add_node("Add", y, writer.column("bias")) if writer["use_bias"] else y


def write_dropout(writer: NodeWriter, x: str) -> str:
    """Writes a Dropout, which is an identity in inference, with its rate for further training."""
    return writer.add_node("Dropout", x, writer.add_constant("ratio", writer["rate"]))


def read_dropout(reader: NodeReader) -> list[LayerWithWeights]:
    if reader.has_input(2) and reader.constant(2).any():
        reader.refuse("expected training_mode=False, got True")
    reader.expect_attribute("is_test", 1)  # before opset 7
    reader.attribute("seed", 0)
    if reader.opset >= 12 and reader.has_input(1):
        return [LayerWithWeights(Dropout(reader.float_scalar(1)))]
    return [LayerWithWeights(Dropout(reader.attribute("ratio", 0.5)))]


def write_identity(writer: NodeWriter, x: str) -> str:
    """Writes an Identity for a layer that only acts in training."""
    return writer.add_node("Identity", x)


def read_identity(reader: NodeReader) -> list[LayerWithWeights]:
    return []


def read_single_input(reader: NodeReader) -> list[LayerWithWeights]:
    """Reads a Sum or Concat of one input, an identity."""
    reader.attribute("axis", 0)
    return []


def read_cast(reader: NodeReader) -> list[LayerWithWeights]:
    dtype = {1: "float32", 11: "float64"}.get(to := reader.attribute("to", 0))
    reader.attribute("saturate", 1)
    if dtype != reader.dtype:
        reader.refuse(f"expected {reader.dtype}, the dtype of the graph's input, got to={to}")
    return []


# ---- arithmetic with a constant


def read_operand(reader: NodeReader) -> Array:
    """Returns the constant operand: one number, or one per channel."""
    values = per_channel_constant(reader, 1 - reader.x)
    if values is None:
        shape = reader.constant(1 - reader.x).shape
        reader.refuse(f"expected one number, or one per channel of {reader.shape}, got a constant of shape {shape}")
    return values


def check_x_is_first(reader: NodeReader) -> None:
    """Raises ValueError if the first operand is a constant."""
    if reader.x != 0:
        reader.refuse("expected a value computed from the graph's input as its first input, got a constant")


def make_subtraction(values: Array) -> list[LayerWithWeights]:
    """Returns the layer for x - values, with the same rounding."""
    if values.size == 1:
        return [LayerWithWeights(Rescale(1.0, -float(values[0])))]
    return [LayerWithWeights(Normalize(values.tolist(), [1.0] * values.size))]


def read_add(reader: NodeReader) -> list[LayerWithWeights]:
    return make_subtraction(-read_operand(reader))


def read_sub(reader: NodeReader) -> list[LayerWithWeights]:
    check_x_is_first(reader)
    return make_subtraction(read_operand(reader))


def read_mul(reader: NodeReader) -> list[LayerWithWeights]:
    """Reads one factor as a Rescale, a factor per channel as a Scale."""
    values = read_operand(reader)
    if values.size == 1:
        return [LayerWithWeights(Rescale(float(values[0])))]
    return [LayerWithWeights(Scale(), {"weight": values})]


def read_neg(reader: NodeReader) -> list[LayerWithWeights]:
    return [LayerWithWeights(Rescale(-1.0))]


def read_div(reader: NodeReader) -> list[LayerWithWeights]:
    check_x_is_first(reader)
    values = read_operand(reader)
    if (values <= 0).any():
        reader.refuse("expected positive divisors, got others")
    return [
        LayerWithWeights(
            Normalize([0.0] * values.size, values.tolist()) if values.size > 1 else Normalize(0.0, float(values[0]))
        )
    ]


WRITE_FUNCTIONS: dict[type[Layer], WriteFunction] = {
    ColorJitter: write_identity,
    Cutout: write_identity,
    Dropout: write_dropout,
    Dropout2D: write_identity,
    GaussianNoise: write_identity,
    Normalize: write_normalize,
    RandomFlip: write_identity,
    RandomRotation: write_identity,
    RandomShift: write_identity,
    RandomZoom: write_identity,
    Rescale: write_rescale,
    StochasticDepth: write_identity,
    Scale: write_scale,
}
READ_FUNCTIONS: dict[str, ReadFunction] = {
    "Add": read_add,
    "Cast": read_cast,
    "Concat": read_single_input,
    "Div": read_div,
    "Dropout": read_dropout,
    "Identity": read_identity,
    "Mul": read_mul,
    "Neg": read_neg,
    "Sub": read_sub,
    "Sum": read_single_input,
}
