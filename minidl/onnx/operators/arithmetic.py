"""Elementwise layers, and layers that do nothing in inference: Rescale, Normalize, Scale, Dropout, augmentation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from minidl.layers import (
    ColorJitter,
    Cutout,
    Dropout,
    Dropout2D,
    GaussianNoise,
    Hardtanh,
    Normalize,
    Parallel,
    RandomFlip,
    RandomRotate90,
    RandomRotation,
    RandomShift,
    RandomZoom,
    Reciprocal,
    ReLU,
    Rescale,
    Scale,
    Sqrt,
    Square,
    StochasticDepth,
)
from minidl.layers.base import Layer
from minidl.onnx.node_reader import LayerWithWeights, NodeReader, ReadFunction, broadcast_to_channels
from minidl.onnx.node_writer import NodeWriter, WriteFunction
from minidl.onnx.operators.windows import collapse
from minidl.utils.arrays import Array
from minidl.utils.validation import Shape, check_axes


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
    axes = check_axes("axis", writer["axis"], len(writer.in_shape))
    y = writer.add_node("Mul", x, writer.column("weight", axes))
    return writer.add_node("Add", y, writer.column("bias", axes)) if writer["use_bias"] else y


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


@dataclass(frozen=True)
class Operand:
    """A constant that broadcasts against an example: numbers of the sizes of some axes; of none, () or one number."""

    values: Array
    axes: Shape


def read_operand(reader: NodeReader) -> Operand:
    """Returns the constant operand: one number, one per channel, or any others that broadcast against an example."""
    array = reader.weight(1 - reader.x)
    if not np.isfinite(array).all():
        reader.refuse("expected finite numbers, got a constant with NaN or infinity")
    rank = len(reader.shape)
    full = (1,) * (rank + 1 - array.ndim) + array.shape
    if len(full) != rank + 1 or any(n not in (1, size) for n, size in zip(full, (1, *reader.shape), strict=True)):
        expected = f"one number, one per channel of {reader.shape}, or numbers that broadcast against it"
        reader.refuse(f"expected {expected}, got a constant of shape {array.shape}")
    axes = tuple(axis for axis, n in enumerate(full[1:]) if n > 1)
    return Operand(array.reshape([full[axis + 1] for axis in axes]), axes)


def make_frozen(operand: Operand, **weights: Array) -> list[LayerWithWeights]:
    """Returns a Scale of constants, which training leaves alone."""
    layer = Scale(use_bias="bias" in weights, axis=collapse(operand.axes))
    layer.trainable = False
    return [LayerWithWeights(layer, {"weight": np.ones_like(operand.values), **weights})]


def make_sum(operand: Operand) -> list[LayerWithWeights]:
    """Returns the layer for x + values, with the same rounding; nothing for an image of zeros, as MATLAB writes it."""
    if not operand.axes:
        return [LayerWithWeights(Rescale(1.0, float(operand.values)))]
    if operand.axes == (0,):
        return [LayerWithWeights(Normalize((-operand.values).tolist(), [1.0] * operand.values.size))]
    return make_frozen(operand, bias=operand.values) if operand.values.any() else []


def make_product(operand: Operand) -> list[LayerWithWeights]:
    """Returns the layer for x * values: a Rescale of one factor, else a Scale, which is trained."""
    if not operand.axes:
        return [LayerWithWeights(Rescale(float(operand.values)))]
    return [LayerWithWeights(Scale(axis=collapse(operand.axes)), {"weight": operand.values})]


def read_add(reader: NodeReader) -> list[LayerWithWeights]:
    return make_sum(read_operand(reader))


def read_sub(reader: NodeReader) -> list[LayerWithWeights]:
    """Reads x - values; values - x as values + (-x)."""
    operand = read_operand(reader)
    if reader.x == 0:
        return make_sum(Operand(-operand.values, operand.axes))
    return [LayerWithWeights(Rescale(-1.0)), *make_sum(operand)]


def read_mul(reader: NodeReader) -> list[LayerWithWeights]:
    return make_product(read_operand(reader))


def read_neg(reader: NodeReader) -> list[LayerWithWeights]:
    return [LayerWithWeights(Rescale(-1.0))]


def read_div(reader: NodeReader) -> list[LayerWithWeights]:
    """Reads x / values: as a product with their reciprocals if a Normalize, of positive ones, cannot do it."""
    operand = read_operand(reader)
    values = operand.values
    if reader.x != 0:
        return [LayerWithWeights(Reciprocal()), *([] if (values == 1).all() else make_product(operand))]
    if operand.axes in ((), (0,)) and (values > 0).all():
        return [LayerWithWeights(Normalize(np.zeros_like(values).tolist(), values.tolist()))]
    with np.errstate(all="ignore"):
        factors = 1 / values
    if not np.isfinite(factors).all() or not factors.all():
        reader.refuse("expected divisors whose reciprocals are finite, got 0 or smaller ones than that")
    if not operand.axes:
        return [LayerWithWeights(Rescale(float(factors)))]
    return make_frozen(operand, weight=factors)


def read_bounds(reader: NodeReader, bound: str) -> list[LayerWithWeights]:
    """Reads a Max or Min of a value and single numbers, of which the largest or smallest one counts."""
    numbers = [reader.float_scalar(i) for i in range(len(reader.node.inputs)) if i != reader.x]
    number = (max if bound == "min_val" else min)(numbers, default=math.nan)
    if not all(map(math.isfinite, numbers)):
        reader.refuse(f"expected finite numbers, got {numbers}")
    if number == 0 and bound == "min_val":
        return [LayerWithWeights(ReLU())]
    return [LayerWithWeights(Hardtanh(**{"min_val": None, "max_val": None, bound: number}))] if numbers else []


def read_pow(reader: NodeReader) -> list[LayerWithWeights]:
    """Reads a constant exponent: products, roots and reciprocals."""
    exponent = reader.constant(1)
    if exponent.size != 1 or exponent.ndim > len(reader.shape) + 1 or exponent.dtype.kind not in "if":
        reader.refuse(f"expected one number as exponent, got {exponent.dtype} of shape {exponent.shape}")
    layers: dict[float, list[Layer]] = {
        0.5: [Sqrt()],
        1: [],
        2: [Square()],
        3: [Parallel([], Square(), join="multiply")],
        4: [Square(), Square()],
    }
    found = layers.get(abs(float(exponent.reshape(()))))
    if found is None:
        reader.refuse(f"expected an exponent of 0.5, 1, 2, 3 or 4, or minus that, got {exponent.reshape(())}")
    return [LayerWithWeights(layer) for layer in (*found, *([Reciprocal()] if exponent < 0 else []))]


WRITE_FUNCTIONS: dict[type[Layer], WriteFunction] = {
    ColorJitter: write_identity,
    Cutout: write_identity,
    Dropout: write_dropout,
    Dropout2D: write_identity,
    GaussianNoise: write_identity,
    Normalize: write_normalize,
    RandomFlip: write_identity,
    RandomRotate90: write_identity,
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
    "Max": lambda reader: read_bounds(reader, "min_val"),
    "Min": lambda reader: read_bounds(reader, "max_val"),
    "Mul": read_mul,
    "Neg": read_neg,
    "Pow": read_pow,
    "Sub": read_sub,
    "Sum": read_single_input,
}
