"""Elementwise functions: each calls the C function of its name with the layer's arguments."""

from __future__ import annotations

import math
from functools import partial

from minidl import layers
from minidl.c_export.code_writer import CodeWriter, Value, WriteFunction
from minidl.layers.base import Layer


def write_elementwise(function: str, writer: CodeWriter, x: Value) -> Value:
    """function(x, each of the constructor's arguments, in order)"""
    arguments = "".join(f", {writer.number(value)}" for value in writer.arguments.values())
    return writer.each(x, f"{function}(", f"{arguments})")


def write_relu6(writer: CodeWriter, x: Value) -> Value:
    return writer.each(x, "hardtanh(", f", 0, {writer.number(6)})")


def write_hardtanh(writer: CodeWriter, x: Value) -> Value:
    low, high = (math.nan if writer[bound] is None else writer[bound] for bound in ("min_val", "max_val"))
    return writer.each(x, "hardtanh(", f", {writer.number(low)}, {writer.number(high)})")


def write_gelu(writer: CodeWriter, x: Value) -> Value:
    return writer.each(x, "gelu_tanh(" if writer["approximate"] == "tanh" else "gelu(")


def write_rescale(writer: CodeWriter, x: Value) -> Value:
    """Two roundings."""
    return writer.each(x, f"flush(flush({writer.number(writer['scale'])} * ", f") + {writer.number(writer['offset'])})")


FUNCTIONS = {
    layers.ReLU: "relu",
    layers.LeakyReLU: "leaky_relu",
    layers.HardSigmoid: "hard_sigmoid",
    layers.Hardswish: "hardswish",
    layers.Threshold: "threshold",
    layers.Hardshrink: "hardshrink",
    layers.Softshrink: "softshrink",
    layers.SparsePlus: "sparse_plus",
    layers.Softsign: "softsign",
    layers.Squareplus: "squareplus",
    layers.ELU: "elu",
    layers.SELU: "selu",
    layers.CELU: "celu",
    layers.SiLU: "silu",
    layers.Mish: "mish",
    layers.Softplus: "softplus",
    layers.LogSigmoid: "log_sigmoid",
    layers.Sigmoid: "real_sigmoid",
    layers.Tanh: "real_tanh",
    layers.Tanhshrink: "tanhshrink",
    layers.Exp: "real_exp",
}
WRITE: dict[type[Layer], WriteFunction] = {
    **{layer: partial(write_elementwise, function) for layer, function in FUNCTIONS.items()},
    layers.ReLU6: write_relu6,
    layers.Hardtanh: write_hardtanh,
    layers.GELU: write_gelu,
    layers.Rescale: write_rescale,
}
