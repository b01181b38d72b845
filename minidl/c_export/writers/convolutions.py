"""Convolutions, of images and of signals, which are images of height 1."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from minidl.c_export.code_writer import CodeWriter, Tensor
from minidl.layers import Conv1D, Conv2D, ConvTranspose1D, ConvTranspose2D, DepthwiseConv1D, DepthwiseConv2D
from minidl.utils.arrays import Array
from minidl.utils.validation import Pair, Shape, resolve_padding

PATCHES = 12  # that Winograd's algorithm takes through all points together

Axis = tuple[list[Shape], Shape]  # runs of outputs with the same taps, and steps: `run` and `axis` of convolutions.c


def _declare(writer: CodeWriter, groups: Shape, kernel: Shape, widths: Pair, axes: Sequence[Axis]) -> str:
    """Declares a `convolution` of C. groups: their number, channels and filters; axes: rows and columns."""
    numbers: list[int | str] = [*groups, *kernel, *widths]
    for name, (runs, steps) in zip(("rows", "columns"), axes, strict=True):
        identifier = writer.identifier(name)
        lines = ", ".join(_initializer(*run) for run in runs)
        writer.declare(f"static const run {identifier}[] = {{{lines}}};")
        numbers.append(_initializer(identifier, len(runs), *steps))
    identifier = writer.identifier("sizes")
    writer.declare(f"static const convolution {identifier} = {_initializer(*numbers)};")
    return f"&{identifier}"


def _initializer(*members: int | str) -> str:
    return f"{{{', '.join(map(str, members))}}}"


def write_conv(writer: CodeWriter, x: Tensor) -> Tensor:
    filters, groups, size = writer.out_shape[0], writer["groups"], _sizes(writer.out_shape)
    weight = _weight(writer).transpose(1, 2, 3, 0)
    if writer.op.uses_winograd:
        return _write_winograd(writer, x, weight)
    axes, image, kernel = writer.op.axes, _sizes(x.shape), weight.shape[1:3]
    if kernel == (1, 1) and image == size and all(pixel_step == 1 for _, (_, pixel_step, _, _) in axes):
        image = size = (1, math.prod(size))  # pixels are one long row
        axes = [([(n, 0, 0, 1, 0)], steps) for n, (_, steps) in zip(size, axes, strict=True)]
    widths = image[1], size[1]
    sizes = _declare(writer, (groups, x.channels // groups, filters // groups), kernel, widths, axes)
    tables = writer.constant("weight", weight), writer.param("bias")
    return writer.call("convolve", sizes, filters // groups, filters, x, *tables)


def write_transposed_conv(writer: CodeWriter, x: Tensor) -> Tensor:
    groups, widths, weight = writer["groups"], (x.shape[-1], writer.out_shape[-1]), _weight(writer)
    channels, filters, *kernel = x.channels // groups, *weight.shape[1:]
    sizes = _declare(writer, (groups, channels, filters), tuple(kernel), widths, writer.op.axes)
    tables = writer.constant("weight", weight.transpose(0, 2, 3, 1)), writer.param("bias")
    return writer.call("convolve", sizes, weight[:channels].size, filters, x, *tables)


def write_depthwise_conv(writer: CodeWriter, x: Tensor) -> Tensor:
    multiplier, widths = writer["depth_multiplier"], (x.shape[-1], writer.out_shape[-1])
    weight = _weight(writer)[:, 0].transpose(1, 2, 0)
    sizes = _declare(writer, (x.channels, 1, multiplier), weight.shape[:2], widths, writer.op.axes)
    tables = writer.constant("weight", weight), writer.param("bias")
    return writer.call("convolve_channels", sizes, multiplier, x, *tables)


def _write_winograd(writer: CodeWriter, x: Tensor, weight: Array) -> Tensor:
    (filters, *size), image, identifier = writer.out_shape, _sizes(x.shape), writer.identifier("sizes")
    top, _, left, _ = resolve_padding(writer["padding"], image, (3, 3), (1, 1), (1, 1))
    together = min(math.prod(-(-n // 4) for n in size), PATCHES)
    numbers = (x.channels, filters, *image, top, left, *size, together)
    writer.declare(f"static const winograd {identifier} = {_initializer(*numbers)};")
    if writer.transforms_in_c:
        table = writer.constant("weight", weight)
        u = writer.transform(f"winograd_weights({x.channels}, {filters}, {table}", 36 * x.channels * filters)
    else:
        u = writer.constant("weight", writer.op.transformed_weights(np.ascontiguousarray(weight)))
    scratch = 36 * together * (x.channels + filters)
    return writer.call("convolve_winograd", f"&{identifier}", x, u, writer.param("bias"), scratch=scratch)


def _weight(writer: CodeWriter) -> Array:
    """Returns the weight; that of a signal becomes that of an image of height 1."""
    weight = writer.arrays()["weight"]
    return weight if weight.ndim == 4 else weight[:, :, np.newaxis]


def _sizes(shape: Shape) -> Pair:
    """Returns height and width; a signal has a height of 1."""
    return (shape[1], shape[2]) if len(shape) == 3 else (1, shape[1])


WRITE = {
    Conv1D: write_conv,
    Conv2D: write_conv,
    ConvTranspose1D: write_transposed_conv,
    ConvTranspose2D: write_transposed_conv,
    DepthwiseConv1D: write_depthwise_conv,
    DepthwiseConv2D: write_depthwise_conv,
}
