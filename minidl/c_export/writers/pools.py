"""Pools, global and adaptive ones, and upsampling."""

from __future__ import annotations

import math
from functools import partial

from minidl.c_export.code_writer import CodeWriter, Tensor, WriteFunction
from minidl.layers import (
    AdaptiveAvgPool2D,
    AdaptiveMaxPool2D,
    AvgPool1D,
    AvgPool2D,
    GlobalAvgPool1D,
    GlobalAvgPool2D,
    GlobalMaxPool1D,
    GlobalMaxPool2D,
    MaxPool1D,
    MaxPool2D,
    Upsample2D,
)
from minidl.layers.base import Layer
from minidl.utils.validation import Pair, Shape, check_pair, check_sides
from minidl_c.kernels.image_shapes import interpolated
from minidl_c.kernels.windows import pooling

FUNCTIONS = {"max": "max_pool", "average": "average_pool"}


def write_pool(kind: str, writer: CodeWriter, x: Tensor) -> Tensor:
    image, kernel, stride, padding, dilation = _window_of(writer)
    ceil_mode = writer["ceil_mode"]
    shape = (x.channels, *image)
    _, windows, kernel, stride, sides, dilation = pooling(shape, kernel, stride, padding, ceil_mode, dilation)
    counts = kind == "average" and writer["count_include_pad"]
    names = []
    for axis, name in enumerate(("rows", "columns")):
        before, after = sides[axis]
        end = image[axis] + after if counts else 0
        numbers = (image[axis], windows[axis], kernel[axis], stride[axis], before, dilation[axis], end)
        names.append(_declare_windows(writer, name, numbers))
    return writer.call(FUNCTIONS[kind], *names, x.channels, x)


def write_adaptive_pool(kind: str, writer: CodeWriter, x: Tensor) -> Tensor:
    """Windows that cover the image; a global pool has one."""
    image, size = (1, 1, *x.shape[1:])[-2:], (1, 1, *writer.out_shape[1:])[-2:]
    axes = zip(("rows", "columns"), image, size, strict=True)
    names = [_declare_windows(writer, name, (cells, n, 0, 0, 0, 1, 0)) for name, cells, n in axes]
    return writer.call(FUNCTIONS[kind], *names, x.channels, x)


def _window_of(writer: CodeWriter) -> tuple[Shape, Pair, Pair, Shape, Pair]:
    """Returns image, kernel, stride, padding (four sides) and dilation; a signal is an image of height 1."""
    if len(writer.in_shape) == 2:
        size = writer["pool_size"]
        left, right = check_pair("padding", writer["padding"], minimum=0)
        stride = size if writer["stride"] is None else writer["stride"]
        return (1, writer.in_shape[1]), (1, size), (1, stride), (0, 0, left, right), (1, writer["dilation"])
    kernel = check_pair("pool_size", writer["pool_size"])
    stride = kernel if writer["stride"] is None else check_pair("stride", writer["stride"])
    padding, dilation = check_sides("padding", writer["padding"]), check_pair("dilation", writer["dilation"])
    return writer.in_shape[1:], kernel, stride, padding, dilation


def _declare_windows(writer: CodeWriter, name: str, numbers: tuple[int, ...]) -> str:
    identifier = writer.identifier(name)
    writer.declare(f"static const windows {identifier} = {{{', '.join(map(str, numbers))}}};")
    return f"&{identifier}"


def write_upsample(writer: CodeWriter, x: Tensor) -> Tensor:
    (_, *image), (_, *size) = x.shape, writer.out_shape
    if writer["mode"] == "nearest":
        factors = (m // n for n, m in zip(image, size, strict=True))
        return writer.call("repeat_pixels", *image, *factors, x.channels, x)
    scale = writer["scale"]
    if scale is None:
        scale = [m / n for n, m in zip(image, size, strict=True)]
    pair = tuple(scale) if isinstance(scale, (tuple, list)) else (scale, scale)
    align = writer["align_corners"]
    _, _, steps = interpolated(x.shape, size, pair, align)
    rows, columns = (
        _declare_blends(writer, name, size[axis], image[axis], steps[axis], align)
        for axis, name in enumerate(("rows", "columns"))
    )
    return writer.call("interpolate", rows, size[0], columns, size[1], image[1], x.channels, x)


def _declare_blends(writer: CodeWriter, name: str, outputs: int, size: int, step: float, align_corners: bool) -> str:
    """Declares the two pixels around each output along an axis, and their weights: upsample2d.pyx."""
    blends = []
    for i in range(outputs):
        source = min(max(i * step if align_corners else (i + 0.5) * step - 0.5, 0.0), size - 1.0)
        low = math.floor(source)
        weight = source - low
        blends.append(f"{{{low}, {min(low + 1, size - 1)}, {writer.number(1 - weight)}, {writer.number(weight)}}}")
    identifier, lines = writer.identifier(name), ",\n".join(blends)
    writer.declare(f"static const blend {identifier}[] = {{\n{lines}\n}};")
    return identifier


WRITE: dict[type[Layer], WriteFunction] = {
    AdaptiveAvgPool2D: partial(write_adaptive_pool, "average"),
    AdaptiveMaxPool2D: partial(write_adaptive_pool, "max"),
    AvgPool1D: partial(write_pool, "average"),
    AvgPool2D: partial(write_pool, "average"),
    GlobalAvgPool1D: partial(write_adaptive_pool, "average"),
    GlobalAvgPool2D: partial(write_adaptive_pool, "average"),
    GlobalMaxPool1D: partial(write_adaptive_pool, "max"),
    GlobalMaxPool2D: partial(write_adaptive_pool, "max"),
    MaxPool1D: partial(write_pool, "max"),
    MaxPool2D: partial(write_pool, "max"),
    Upsample2D: write_upsample,
}
