"""Activations."""

from __future__ import annotations

import math

import numpy as np

from minidl.layers import (
    CELU,
    ELU,
    GELU,
    SELU,
    Abs,
    Exp,
    Hardshrink,
    HardSigmoid,
    Hardswish,
    Hardtanh,
    LeakyReLU,
    Log,
    LogSigmoid,
    Mish,
    PReLU,
    Reciprocal,
    ReLU,
    ReLU6,
    Rescale,
    Sigmoid,
    SiLU,
    Softplus,
    Softshrink,
    Softsign,
    SparsePlus,
    Sqrt,
    Square,
    Squareplus,
    Tanh,
    Tanhshrink,
    Threshold,
)
from minidl.layers.base import Layer
from minidl.layers.fake_quantize import FakeQuantize
from minidl.onnx.node_reader import LayerWithWeights, NodeReader, ReadFunction, per_channel_constant
from minidl.onnx.node_writer import NodeWriter, WriteFunction

SELU_ALPHA, SELU_GAMMA = 1.6732632, 1.0507010  # ONNX's attributes are float32


def read_fake_quantize(reader: NodeReader) -> list[LayerWithWeights]:
    """Reads a pair of QuantizeLinear and DequantizeLinear."""
    return [LayerWithWeights(FakeQuantize(reader.attribute("scale", 1.0), reader.attribute("zero_point", 0)))]


def read_activation(reader: NodeReader) -> list[LayerWithWeights]:
    """Reads an activation that was several nodes; constants of more axes than x would give it further ones."""
    axes, rank = len(reader.shape) + 1, reader.attribute("rank", 0)
    if rank > axes:
        reader.refuse(f"expected constants of at most {axes} axes, got {rank}")
    return [LayerWithWeights(reader.attribute("layer", None))]


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


def read_with_alpha(cls: type[CELU | ELU]) -> ReadFunction:
    """Returns a function that reads an operator as one layer with an argument alpha of 1 by default."""
    return lambda reader: [LayerWithWeights(cls(reader.attribute("alpha", 1.0)))]


def write_celu(writer: NodeWriter, x: str) -> str:
    """Writes a Celu, or in float64, which that does not have, a scaled Elu."""
    if writer.dtype == "float32":
        return writer.add_node("Celu", x, alpha=float(writer["alpha"]))
    alpha = writer.add_constant("alpha", writer["alpha"])
    return writer.add_node("Mul", writer.add_node("Elu", writer.add_node("Div", x, alpha)), alpha)


def read_selu(reader: NodeReader) -> list[LayerWithWeights]:
    """Reads an Selu; with other constants than usual it is a scaled ELU."""
    alpha, gamma = reader.attribute("alpha", SELU_ALPHA), reader.attribute("gamma", SELU_GAMMA)
    if math.isclose(alpha, SELU_ALPHA, rel_tol=1e-6) and math.isclose(gamma, SELU_GAMMA, rel_tol=1e-6):
        return [LayerWithWeights(SELU())]
    return [LayerWithWeights(ELU(alpha)), LayerWithWeights(Rescale(gamma))]


def write_clip(writer: NodeWriter, x: str, low: float | None, high: float | None) -> str:
    """Writes a Clip, or an Identity without bounds."""
    if low is None and high is None:
        return writer.add_node("Identity", x)
    bounds = ["" if v is None else writer.add_constant(name, v) for name, v in (("min", low), ("max", high))]
    return writer.add_node("Clip", x, *bounds[: 1 if high is None else 2])


def write_hardtanh(writer: NodeWriter, x: str) -> str:
    return write_clip(writer, x, writer["min_val"], writer["max_val"])


def write_relu6(writer: NodeWriter, x: str) -> str:
    return write_clip(writer, x, 0.0, 6.0)


def read_clip(reader: NodeReader) -> list[LayerWithWeights]:
    """Reads a Clip; a bound that leaves all finite numbers, as some exporters write it, is none."""
    largest = float(np.finfo(reader.dtype).max)
    low, high = (reader.float_scalar(i) if reader.has_input(i) else None for i in (1, 2))
    low = None if low is not None and low <= -largest else low
    high = None if high is not None and high >= largest else high
    if any(bound is not None and not abs(bound) < largest for bound in (low, high)):
        reader.refuse(f"expected a minimum and a maximum that leave some numbers, got {low} and {high}")
    if low is None and high is None:
        return []
    if low == 0 and high in (None, 6):
        return [LayerWithWeights(ReLU6() if high else ReLU())]
    return [LayerWithWeights(Hardtanh(low, high))]


def write_hard_sigmoid(writer: NodeWriter, x: str) -> str:
    return writer.add_node("HardSigmoid", x, alpha=float(writer["alpha"]), beta=float(writer["beta"]))


def read_hard_sigmoid(reader: NodeReader) -> list[LayerWithWeights]:
    """Reads a HardSigmoid; its alpha is 1/6 if it is 1/6 rounded to float32."""
    alpha, beta = reader.attribute("alpha", 0.2), reader.attribute("beta", 0.5)
    return [LayerWithWeights(HardSigmoid(1 / 6 if math.isclose(alpha, 1 / 6, rel_tol=1e-7) else alpha, beta))]


def write_threshold(writer: NodeWriter, x: str) -> str:
    if writer["value"] == 0:
        return writer.add_node("ThresholdedRelu", x, alpha=float(writer["threshold"]))
    below = writer.add_node("LessOrEqual", x, writer.add_constant("threshold", writer["threshold"]))
    return writer.add_node("Where", below, writer.add_constant("value", writer["value"]), x)


def read_thresholded_relu(reader: NodeReader) -> list[LayerWithWeights]:
    return [LayerWithWeights(Threshold(reader.attribute("alpha", 1.0), 0.0))]


def write_hardshrink(writer: NodeWriter, x: str) -> str:
    return writer.add_node("Shrink", x, lambd=float(writer["lambd"]))


def write_softshrink(writer: NodeWriter, x: str) -> str:
    return writer.add_node("Shrink", x, lambd=float(writer["lambd"]), bias=float(writer["lambd"]))


def read_shrink(reader: NodeReader) -> list[LayerWithWeights]:
    lambd, bias = reader.attribute("lambd", 0.5), reader.attribute("bias", 0.0)
    if bias not in (0, lambd):
        reader.refuse(f"expected bias=0 or bias=lambd={lambd}, got {bias}: no layer of minidl does that")
    return [LayerWithWeights(Softshrink(lambd) if bias else Hardshrink(lambd))]


def write_sparse_plus(writer: NodeWriter, x: str) -> str:
    """Writes h**2 + max(x - 1, 0) with h = HardSigmoid(x), which is (x + 1) / 2 between 0 and 1."""
    h = writer.add_node("HardSigmoid", x, alpha=0.5, beta=0.5)
    rest = writer.add_node("Relu", writer.add_node("Sub", x, writer.add_constant("one", 1.0)))
    return writer.add_node("Add", writer.add_node("Mul", h, h), rest)


def write_squareplus(writer: NodeWriter, x: str) -> str:
    b, half = writer.add_constant("b", writer["b"]), writer.add_constant("half", 0.5)
    root = writer.add_node("Sqrt", writer.add_node("Add", writer.add_node("Mul", x, x), b))
    return writer.add_node("Mul", writer.add_node("Add", x, root), half)


def write_softplus(writer: NodeWriter, x: str) -> str:
    if writer["beta"] == 1:
        return writer.add_node("Softplus", x)
    beta = writer.add_constant("beta", writer["beta"])
    return writer.add_node("Div", writer.add_node("Softplus", writer.add_node("Mul", x, beta)), beta)


def write_log_sigmoid(writer: NodeWriter, x: str) -> str:
    """Writes -Softplus(-x): the logarithm of a Sigmoid is infinite where that is rounded to 0."""
    return writer.add_node("Neg", writer.add_node("Softplus", writer.add_node("Neg", x)))


def write_tanhshrink(writer: NodeWriter, x: str) -> str:
    return writer.add_node("Sub", x, writer.add_node("Tanh", x))


def write_gelu(writer: NodeWriter, x: str) -> str:
    return writer.add_node("Gelu", x, approximate=writer["approximate"])


def read_gelu(reader: NodeReader) -> list[LayerWithWeights]:
    return [LayerWithWeights(GELU(reader.expect_attribute("approximate", "none", "tanh")))]


def write_silu(writer: NodeWriter, x: str) -> str:
    """Writes x * Sigmoid(x), since Swish is newer than the opset."""
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


WRITE_FUNCTIONS: dict[type[Layer], WriteFunction] = {
    Abs: write_as("Abs"),
    CELU: write_celu,
    ELU: write_elu,
    Exp: write_as("Exp"),
    GELU: write_gelu,
    HardSigmoid: write_hard_sigmoid,
    Hardshrink: write_hardshrink,
    Hardswish: write_as("HardSwish"),
    Hardtanh: write_hardtanh,
    LeakyReLU: write_leaky_relu,
    Log: write_as("Log"),
    LogSigmoid: write_log_sigmoid,
    Mish: write_as("Mish"),
    PReLU: write_prelu,
    ReLU: write_as("Relu"),
    Reciprocal: write_as("Reciprocal"),
    ReLU6: write_relu6,
    SELU: write_as("Selu"),
    SiLU: write_silu,
    Sigmoid: write_as("Sigmoid"),
    Softplus: write_softplus,
    Softshrink: write_softshrink,
    Softsign: write_as("Softsign"),
    SparsePlus: write_sparse_plus,
    Sqrt: write_as("Sqrt"),
    Square: lambda writer, x: writer.add_node("Mul", x, x),
    Squareplus: write_squareplus,
    Tanh: write_as("Tanh"),
    Tanhshrink: write_tanhshrink,
    Threshold: write_threshold,
}
READ_FUNCTIONS: dict[str, ReadFunction] = {
    "Abs": read_as(Abs),
    "Celu": read_with_alpha(CELU),
    "Clip": read_clip,
    "Elu": read_with_alpha(ELU),
    "Exp": read_as(Exp),
    "Gelu": read_gelu,
    "HardSigmoid": read_hard_sigmoid,
    "HardSwish": read_as(Hardswish),
    "LeakyRelu": read_leaky_relu,
    "Log": read_as(Log),
    "Mish": read_as(Mish),
    "PRelu": read_prelu,
    "Reciprocal": read_as(Reciprocal),
    "Relu": read_as(ReLU),
    "Selu": read_selu,
    "Shrink": read_shrink,
    "Sigmoid": read_as(Sigmoid),
    "Softplus": read_as(Softplus),
    "Softsign": read_as(Softsign),
    "Sqrt": read_as(Sqrt),
    "Swish": read_swish,
    "Tanh": read_as(Tanh),
    "ThresholdedRelu": read_thresholded_relu,
}
