"""Normalizations, scales per channel, softmax."""

from __future__ import annotations

import math

import numpy as np

from minidl.c_export.code_writer import CodeWriter, Tensor, declare_places
from minidl.layers import (
    BatchNorm1D,
    BatchNorm2D,
    GroupNorm,
    LayerNorm,
    LocalResponseNorm,
    LogSoftmax,
    Normalize,
    PReLU,
    RMSNorm,
    Scale,
    Softmax,
    Softmin,
)
from minidl.utils.validation import check_axes


def write_batch_norm(writer: CodeWriter, x: Tensor) -> Tensor:
    """(x - mean) * slope + shift: the kernel's numbers, which it computes in float64 from the running statistics."""
    state = {name: array.astype(np.float64) for name, array in writer.arrays().items()}
    with np.errstate(all="ignore"):
        slope = state.get("weight", 1.0) * (1 / np.sqrt(state["running_var"] + writer["eps"]))
    shift = state.get("bias", np.zeros(x.channels))
    numbers = {"mean": state["running_mean"], "slope": slope, "shift": shift}
    tables = [writer.constant(name, value) for name, value in numbers.items()]
    return writer.call("batch_norm", x.pixels, x.channels, x, *tables, in_place=True)


def write_normalize(writer: CodeWriter, x: Tensor) -> Tensor:
    mean, std = (np.broadcast_to(np.asarray(writer[name], float), x.channels) for name in ("mean", "std"))
    tables = writer.constant("mean", mean), writer.constant("std", np.where(std == 0, 1, std))
    return writer.call("normalize", x.pixels, x.channels, x, *tables, in_place=True)


def write_scale(writer: CodeWriter, x: Tensor) -> Tensor:
    axes, weight, bias = check_axes("axis", writer["axis"], len(x.shape)), writer.param("weight"), writer.param("bias")
    if axes == (0,):
        return writer.call("scale_channels", x.pixels, x.channels, x, weight, bias, in_place=True)
    order = [*range(1, len(x.shape)), 0]
    sizes = {axis: x.shape[axis] for axis in axes}
    steps = [math.prod(size for k, size in sizes.items() if k > axis) if axis in sizes else 0 for axis in order]
    places = declare_places(writer, [x.shape[axis] for axis in order], steps)
    return writer.call("scale_places", *places, x, weight, bias, in_place=True)


def write_prelu(writer: CodeWriter, x: Tensor) -> Tensor:
    weights = 1 if writer["shared"] else x.channels
    return writer.call("prelu", x.pixels, x.channels, weights, x, writer.param("weight"), in_place=True)


def write_group_norm(writer: CodeWriter, x: Tensor) -> Tensor:
    groups, eps = writer["groups"], writer.number(writer["eps"])
    sizes = (x.pixels, groups, x.channels // groups)
    return writer.call("group_norm", *sizes, eps, x, writer.param("weight"), writer.param("bias"))


def write_layer_norm(writer: CodeWriter, x: Tensor) -> Tensor:
    """Without an axis, the whole example is one pixel, whose channels are its elements in the order of its shape."""
    centered, eps = int(writer.kind is LayerNorm), writer.number(writer["eps"])
    parameters = writer.param("weight"), writer.param("bias")
    if writer["axis"] is not None:
        return writer.call("layer_norm", x.pixels, x.channels, centered, eps, x, *parameters)
    vector = writer.row_major(x)
    y = writer.call("layer_norm", 1, x.size, centered, eps, vector, *parameters, to=(x.size,))
    return writer.channels_last(y, x.shape)


def write_softmax(writer: CodeWriter, x: Tensor) -> Tensor:
    """Over the axes in the order of memory, unless they are the channels and others."""
    axes, sign = check_axes("axis", writer["axis"], len(x.shape)), [-1 if writer.kind is Softmin else 1]
    function, options = ("log_softmax", []) if writer.kind is LogSoftmax else ("softmax", sign)
    by_pixel = 0 not in axes or axes == (0,)
    sizes = (*x.shape[1:], x.channels) if by_pixel else x.shape
    first, n = (axes[0] - 1) % len(sizes) if by_pixel else axes[0], len(axes)
    runs = math.prod(sizes[:first]), math.prod(sizes[first : first + n]), math.prod(sizes[first + n :])
    if by_pixel:
        return writer.call(function, *runs, *options, x, in_place=True)
    vector = writer.row_major(x)
    return writer.channels_last(writer.call(function, *runs, *options, vector, to=vector.shape, in_place=True), x.shape)


def write_local_response_norm(writer: CodeWriter, x: Tensor) -> Tensor:
    reach = min(writer["size"] // 2, x.channels)
    numbers = (writer.number(value) for value in (writer["alpha"] / writer["size"], writer["beta"], writer["k"]))
    return writer.call("local_response_norm", x.pixels, x.channels, reach, *numbers, x)


WRITE = {
    BatchNorm1D: write_batch_norm,
    BatchNorm2D: write_batch_norm,
    GroupNorm: write_group_norm,
    LayerNorm: write_layer_norm,
    LocalResponseNorm: write_local_response_norm,
    LogSoftmax: write_softmax,
    Normalize: write_normalize,
    PReLU: write_prelu,
    RMSNorm: write_layer_norm,
    Scale: write_scale,
    Softmax: write_softmax,
    Softmin: write_softmax,
}
