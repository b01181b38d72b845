"""Layers that, in inference, change each number by itself or not at all: scales, Dropout, random images."""

from __future__ import annotations

import numpy as np

from minidl.layers import DepthwiseConv2D, Dropout, Normalize, RandomFlip, RandomShift, Rescale
from minidl.layers.base import Layer
from minidl.onnx.node_reader import Made, Operator, Read, by_channel, spread
from minidl.onnx.node_writer import Place, Write
from minidl.utils.arrays import Array


def write_rescale(at: Place, x: str) -> str:
    y = at.node("Mul", x, at.constant("scale", at["scale"]))
    return at.node("Add", y, at.constant("offset", at["offset"])) if at["offset"] else y


def write_normalize(at: Place, x: str) -> str:
    shape = (-1,) + (1,) * (len(at.in_shape) - 1)
    mean, std = (np.asarray(at[name], "float64") for name in ("mean", "std"))
    std = np.where(std == 0, 1.0, std)
    if mean.ndim or std.ndim:
        channels = at.in_shape[0]
        mean, std = spread(mean, channels).reshape(shape), spread(std, channels).reshape(shape)
    return at.node("Div", at.node("Sub", x, at.constant("mean", mean)), at.constant("std", std))


def write_dropout(at: Place, x: str) -> str:
    """In inference y = x; the rate stays in the graph for whoever trains it."""
    return at.node("Dropout", x, at.constant("ratio", at["rate"]))


def read_dropout(operator: Operator) -> list[Made]:
    if operator.given(2) and operator.constant(2).any():
        operator.refuse("expected training_mode=False, got True")
    operator.attribute("seed", 0)
    if operator.opset >= 12 and operator.given(1):
        return [Made(Dropout(operator.number(1)))]
    return [Made(Dropout(operator.attribute("ratio", 0.5)))]


def write_nothing(at: Place, x: str) -> str:
    """What only changes examples in training: an Identity keeps its place."""
    return at.node("Identity", x)


def read_identity(operator: Operator) -> list[Made]:
    return []


def read_alone(operator: Operator) -> list[Made]:
    """A Sum or Concat of one input."""
    operator.attribute("axis", 0)
    return []


def read_cast(operator: Operator) -> list[Made]:
    kind = {1: "float32", 11: "float64"}.get(to := operator.attribute("to", 0))
    operator.attribute("saturate", 1)
    if kind != operator.dtype:
        operator.refuse(f"expected {operator.dtype}, the dtype of the graph's input, got to={to}")
    return []


# ---- arithmetic with a constant


def constant_of(operator: Operator) -> Array:
    """The other input: one number, or one a channel."""
    numbers = by_channel(operator, 1 - operator.x)
    if numbers is None:
        shape = operator.constant(1 - operator.x).shape
        operator.refuse(f"expected one number, or one a channel of {operator.shape}, got a constant of shape {shape}")
    return numbers


def only_behind(operator: Operator) -> None:
    if operator.x != 0:
        operator.refuse("expected what is computed from the examples as its first input, got a constant")


def shifted(numbers: Array) -> list[Made]:
    """x - numbers, exactly."""
    if numbers.size == 1:
        return [Made(Rescale(1.0, -float(numbers[0])))]
    return [Made(Normalize(numbers.tolist(), [1.0] * numbers.size))]


def read_add(operator: Operator) -> list[Made]:
    return shifted(-constant_of(operator))


def read_sub(operator: Operator) -> list[Made]:
    only_behind(operator)
    return shifted(constant_of(operator))


def read_mul(operator: Operator) -> list[Made]:
    """Where each channel has a factor, a convolution of 1x1 within each channel."""
    numbers = constant_of(operator)
    if numbers.size == 1:
        return [Made(Rescale(float(numbers[0])))]
    if len(operator.shape) != 3:
        operator.refuse(f"expected one number for vectors, got {numbers.size}")
    return [Made(DepthwiseConv2D(1, use_bias=False), {"weight": numbers.reshape(-1, 1, 1, 1)})]


def read_div(operator: Operator) -> list[Made]:
    only_behind(operator)
    numbers = constant_of(operator)
    if (numbers <= 0).any():
        operator.refuse("expected to divide by numbers above 0, got others")
    return [
        Made(
            Normalize([0.0] * numbers.size, numbers.tolist()) if numbers.size > 1 else Normalize(0.0, float(numbers[0]))
        )
    ]


WRITE: dict[type[Layer], Write] = {
    Dropout: write_dropout,
    Normalize: write_normalize,
    RandomFlip: write_nothing,
    RandomShift: write_nothing,
    Rescale: write_rescale,
}
READ: dict[str, Read] = {
    "Add": read_add,
    "Cast": read_cast,
    "Concat": read_alone,
    "Div": read_div,
    "Dropout": read_dropout,
    "Identity": read_identity,
    "Mul": read_mul,
    "Sub": read_sub,
    "Sum": read_alone,
}
