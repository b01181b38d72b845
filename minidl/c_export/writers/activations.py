"""Elementwise functions: each calls the C function of its name with the layer's arguments."""

from __future__ import annotations

import math
from functools import partial

from minidl.c_export import tables
from minidl.c_export.code_writer import CodeWriter, Tensor, WriteFunction
from minidl.layers import (
    CELU,
    ELU,
    GELU,
    SELU,
    Exp,
    Hardshrink,
    HardSigmoid,
    Hardswish,
    Hardtanh,
    LeakyReLU,
    LogSigmoid,
    Mish,
    ReLU,
    ReLU6,
    Rescale,
    Sigmoid,
    SiLU,
    Softplus,
    Softshrink,
    Softsign,
    SparsePlus,
    Squareplus,
    Tanh,
    Tanhshrink,
    Threshold,
)
from minidl.layers.base import Layer


def write_elementwise(function: str, writer: CodeWriter, x: Tensor) -> Tensor:
    """function(x, each of the constructor's arguments, in order)"""
    arguments = "".join(f", {writer.number(value)}" for value in writer.arguments.values())
    return writer.each(x, f"{function}(", f"{arguments})")


def write_relu6(writer: CodeWriter, x: Tensor) -> Tensor:
    return writer.each(x, "hardtanh(", f", 0, {writer.number(6)})")


def write_hardtanh(writer: CodeWriter, x: Tensor) -> Tensor:
    """A bound of NaN is none."""
    bounds = (math.nan if writer[bound] is None else writer[bound] for bound in ("min_val", "max_val"))
    low, high = (tables.number(bound, writer.dtype) for bound in bounds)
    return writer.each(x, "hardtanh(", f", {low}, {high})")


def write_gelu(writer: CodeWriter, x: Tensor) -> Tensor:
    return writer.each(x, "gelu_tanh(" if writer["approximate"] == "tanh" else "gelu(")


def write_rescale(writer: CodeWriter, x: Tensor) -> Tensor:
    """Two roundings."""
    return writer.each(x, f"flush(flush({writer.number(writer['scale'])} * ", f") + {writer.number(writer['offset'])})")


FUNCTIONS = {
    ReLU: "relu",
    LeakyReLU: "leaky_relu",
    HardSigmoid: "hard_sigmoid",
    Hardswish: "hardswish",
    Threshold: "threshold",
    Hardshrink: "hardshrink",
    Softshrink: "softshrink",
    SparsePlus: "sparse_plus",
    Softsign: "softsign",
    Squareplus: "squareplus",
    ELU: "elu",
    SELU: "selu",
    CELU: "celu",
    SiLU: "silu",
    Mish: "mish",
    Softplus: "softplus",
    LogSigmoid: "log_sigmoid",
    Sigmoid: "real_sigmoid",
    Tanh: "real_tanh",
    Tanhshrink: "tanhshrink",
    Exp: "real_exp",
}
WRITE: dict[type[Layer], WriteFunction] = {
    **{layer: partial(write_elementwise, function) for layer, function in FUNCTIONS.items()},
    ReLU6: write_relu6,
    Hardtanh: write_hardtanh,
    GELU: write_gelu,
    Rescale: write_rescale,
}
