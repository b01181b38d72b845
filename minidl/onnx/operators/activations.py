"""Activations and Softmax."""

from __future__ import annotations

import numpy as np

from minidl.layers import ELU, GELU, Hardswish, LeakyReLU, PReLU, ReLU, Sigmoid, SiLU, Softmax, Tanh
from minidl.layers.base import Layer
from minidl.onnx.node_reader import Made, Operator, Read, by_channel
from minidl.onnx.node_writer import Place, Write


def same(op: str) -> Write:
    """Writes a layer that is one operator without attributes."""
    return lambda at, x: at.node(op, x)


def plain(cls: type[Layer]) -> Read:
    """Reads an operator that is one layer without arguments."""
    return lambda operator: [Made(cls())]


def write_leaky_relu(at: Place, x: str) -> str:
    return at.node("LeakyRelu", x, alpha=float(at["negative_slope"]))


def read_leaky_relu(operator: Operator) -> list[Made]:
    return [Made(LeakyReLU(operator.attribute("alpha", 0.01)))]


def write_elu(at: Place, x: str) -> str:
    return at.node("Elu", x, alpha=float(at["alpha"]))


def read_elu(operator: Operator) -> list[Made]:
    return [Made(ELU(operator.attribute("alpha", 1.0)))]


def write_gelu(at: Place, x: str) -> str:
    return at.node("Gelu", x, approximate=at["approximate"])


def read_gelu(operator: Operator) -> list[Made]:
    return [Made(GELU(operator.expect("approximate", "none", "tanh")))]


def write_silu(at: Place, x: str) -> str:
    """x * Sigmoid(x): the operator Swish is younger than the opset. `minidl.onnx.joins` reads it."""
    return at.node("Mul", x, at.node("Sigmoid", x))


def read_swish(operator: Operator) -> list[Made]:
    operator.expect("alpha", 1.0)
    return [Made(SiLU())]


def write_prelu(at: Place, x: str) -> str:
    """ONNX's slopes belong to the last axes, minidl's to the first: axes of 1 go behind them."""
    slope, axes = at.param("weight"), len(at.in_shape) - 1
    if axes and not at["shared"]:
        slope = at.node("Unsqueeze", slope, at.whole("axes", range(1, axes + 1)))
    return at.node("PRelu", x, slope)


def read_prelu(operator: Operator) -> list[Made]:
    slope = by_channel(operator, 1)
    if slope is None:
        operator.refuse(f"expected one slope, or one a channel, got shape {operator.constant(1).shape}")
    return [Made(PReLU(shared=slope.size == 1), {"weight": np.array(slope)})]


def write_softmax(at: Place, x: str) -> str:
    return at.node("Softmax", x, axis=1)


def read_softmax(operator: Operator) -> list[Made]:
    """Before opset 13 all axes from this one on are one."""
    axis = operator.axis(operator.attribute("axis", 1 if operator.opset < 13 else -1))
    if axis != 1:
        operator.refuse(f"expected axis=1, the channels, got {axis}: no layer of minidl does that")
    if operator.opset < 13 and any(size > 1 for size in operator.shape[1:]):
        operator.refuse(f"expected vectors, got {operator.shape}: before opset 13 all numbers of an example are summed")
    return [Made(Softmax())]


WRITE: dict[type[Layer], Write] = {
    ELU: write_elu,
    GELU: write_gelu,
    Hardswish: same("HardSwish"),
    LeakyReLU: write_leaky_relu,
    PReLU: write_prelu,
    ReLU: same("Relu"),
    SiLU: write_silu,
    Sigmoid: same("Sigmoid"),
    Softmax: write_softmax,
    Tanh: same("Tanh"),
}
READ: dict[str, Read] = {
    "Elu": read_elu,
    "Gelu": read_gelu,
    "HardSwish": plain(Hardswish),
    "LeakyRelu": read_leaky_relu,
    "PRelu": read_prelu,
    "Relu": plain(ReLU),
    "Sigmoid": plain(Sigmoid),
    "Softmax": read_softmax,
    "Swish": read_swish,
    "Tanh": plain(Tanh),
}
