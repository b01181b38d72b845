"""Elementwise functions: each calls the C function of its name with the layer's arguments."""

from __future__ import annotations

import math
from functools import partial

from minidl.c_export import tables
from minidl.c_export.code_writer import CodeWriter, Tensor, WriteFunction
from minidl.layers import GELU, Hardtanh, ReLU, ReLU6, Rescale
from minidl.layers.activations import FUNCTIONS
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


C_NAMES = {
    name: f"real_{name}" for name in ("exp", "log", "sigmoid", "sqrt", "tanh")
}  # the C library has these, or most
C_NAMES["abs"] = "magnitude"
WRITE: dict[type[Layer], WriteFunction] = {
    **{layer: partial(write_elementwise, C_NAMES.get(name, name)) for layer, name in FUNCTIONS.items()},
    ReLU: partial(write_elementwise, "relu"),
    ReLU6: write_relu6,
    Hardtanh: write_hardtanh,
    GELU: write_gelu,
    Rescale: write_rescale,
}
