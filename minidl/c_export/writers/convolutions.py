"""Convolutions, of images and of signals, which are images of height 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from minidl.c_export.code_writer import CodeWriter, Tensor
from minidl.c_export.writers.winograd import transformed_weights
from minidl.layers import Conv1D, Conv2D, ConvTranspose1D, ConvTranspose2D, DepthwiseConv1D, DepthwiseConv2D
from minidl.utils.arrays import Array
from minidl.utils.validation import Pair, Shape, check_pair, check_sides, resolve_padding, resolve_padding_1d
from minidl_c.kernels.windows import convolution, transposed

PATCHES = 12  # that Winograd's algorithm takes through all points together


@dataclass(frozen=True)
class Window:
    """The arguments of a convolution: pairs (vertical, horizontal), and the zeros (top, bottom, left, right)."""

    image: Pair
    kernel: Pair
    stride: Pair
    dilation: Pair
    padding: Shape


@dataclass(frozen=True)
class Run:
    """Outputs along an axis with the same taps: see minidl_c/kernels/axes.pyx, and `run` in convolutions.c."""

    n: int
    out: int
    tap: int
    taps: int
    source: int


def _pair(writer: CodeWriter, name: str, other: int = 1, minimum: int = 1) -> Pair:
    """Returns an argument as a pair; `other`: of a signal's height."""
    return check_pair(name, writer[name], minimum) if len(writer.in_shape) == 3 else (other, writer[name])


def _window_of(writer: CodeWriter) -> Window:
    image = _sizes(writer.in_shape)
    kernel, stride, dilation = _pair(writer, "kernel_size"), _pair(writer, "stride"), _pair(writer, "dilation")
    if len(writer.in_shape) == 3:
        padding: Shape = resolve_padding(writer["padding"], image, kernel, stride, dilation)
    else:
        padding = (0, 0, *resolve_padding_1d(writer["padding"], image[1], kernel[1], stride[1], dilation[1]))
    return Window(image, kernel, stride, dilation, padding)


def forward_runs(outputs: int, size: int, taps: int, stride: int, padding: int, dilation: int) -> list[Run]:
    """Returns the runs of outputs; output i reads i * stride - padding + tap * dilation where that is inside."""
    found = []
    for i in range(outputs):
        start = i * stride - padding
        inside = [tap for tap in range(taps) if 0 <= start + tap * dilation < size]
        found.append((i, inside, start + inside[0] * dilation if inside else 0))
    return _joined(found)


def transposed_runs(outputs: int, size: int, taps: int, stride: int, padding: int, dilation: int) -> list[Run]:
    """The same if it is transposed: output i gets input j by a tap if i + padding - tap * dilation = j * stride."""
    runs = []
    for first in range(min(stride, outputs)):
        found = []
        for i in range(first, outputs, stride):
            reached = [(tap, *divmod(i + padding - tap * dilation, stride)) for tap in range(taps)]
            inside = [(tap, j) for tap, j, rest in reached if rest == 0 and 0 <= j < size]
            found.append((i, [tap for tap, _ in inside], inside[0][1] if inside else 0))
        runs += _joined(found)
    return runs


def _joined(found: list[tuple[int, list[int], int]]) -> list[Run]:
    """Joins neighbouring outputs with the same taps; an output without taps is its own run."""
    runs: list[Run] = []
    for out, inside, source in found:
        tap, taps = (inside[0], len(inside)) if inside else (0, 0)
        if runs and taps and (runs[-1].tap, runs[-1].taps) == (tap, taps):
            runs[-1] = Run(runs[-1].n + 1, *(getattr(runs[-1], name) for name in ("out", "tap", "taps", "source")))
        else:
            runs.append(Run(1, out, tap, taps, source))
    return runs


@dataclass(frozen=True)
class Axis:
    """The runs along an axis, and the steps: to the next output in y and in x, to the next tap in w and in x."""

    runs: list[Run]
    out_step: int
    pixel_step: int
    tap_step: int
    source_step: int


def _declare(writer: CodeWriter, groups: Shape, kernel: Pair, widths: Pair, axes: Sequence[Axis]) -> str:
    """Declares a `convolution` of C. groups: their number, channels and filters; axes: of rows and columns."""
    numbers = [str(n) for n in (*groups, *kernel, *widths)]
    for name, axis in zip(("rows", "columns"), axes, strict=True):
        identifier = writer.identifier(name)
        lines = ", ".join(f"{{{r.n}, {r.out}, {r.tap}, {r.taps}, {r.source}}}" for r in axis.runs)
        writer.declare(f"static const run {identifier}[] = {{{lines}}};")
        steps = axis.out_step, axis.pixel_step, axis.tap_step, axis.source_step
        numbers.append(f"{{{identifier}, {len(axis.runs)}, {', '.join(map(str, steps))}}}")
    identifier = writer.identifier("sizes")
    writer.declare(f"static const convolution {identifier} = {{{', '.join(numbers)}}};")
    return f"&{identifier}"


def _checked(window: Window, channels: int, filters: int, groups: int) -> Window:
    """Returns the window with the stride and the dilation that the kernel has: not longer than the image."""
    _, _, _, _, stride, _, dilation, _, _ = convolution(
        (channels, *window.image), filters, window.kernel, window.stride, window.padding, window.dilation, groups
    )
    return replace(window, stride=tuple(stride), dilation=tuple(dilation))


def _forward_axes(window: Window, size: Pair) -> list[Axis]:
    axes = []
    for k in (0, 1):
        step, spread = window.stride[k], window.dilation[k]
        runs = forward_runs(size[k], window.image[k], window.kernel[k], step, window.padding[2 * k], spread)
        axes.append(Axis(runs, 1, step, 1, spread))
    return axes


def write_conv(writer: CodeWriter, x: Tensor) -> Tensor:
    filters, groups, size = writer.out_shape[0], writer["groups"], _sizes(writer.out_shape)
    window = _checked(_window_of(writer), x.channels, filters, groups)
    weight = _as_image(writer.arrays()["weight"]).transpose(1, 2, 3, 0)
    if writer.uses_winograd:
        return _write_winograd(writer, x, window, weight)
    if window.kernel == window.stride == (1, 1) and window.image == size and not any(window.padding):
        size = (1, math.prod(size))  # pixels are one long row
        window = replace(window, image=size)
    widths, axes = (window.image[1], size[1]), _forward_axes(window, size)
    sizes = _declare(writer, (groups, x.channels // groups, filters // groups), window.kernel, widths, axes)
    tables = writer.constant("weight", weight), writer.param("bias")
    return writer.call("convolve", sizes, filters // groups, filters, x, *tables)


def write_transposed_conv(writer: CodeWriter, x: Tensor) -> Tensor:
    """A convolution from y to x has these weights, stride, dilation and padding."""
    filters, groups, image, size = writer.out_shape[0], writer["groups"], _sizes(x.shape), _sizes(writer.out_shape)
    kernel, stride, dilation = _pair(writer, "kernel_size"), _pair(writer, "stride"), _pair(writer, "dilation")
    extra = _pair(writer, "output_padding", 0, 0)
    if len(x.shape) == 3:
        sides = check_sides("padding", writer["padding"])
    else:
        sides = (0, 0, *check_pair("padding", writer["padding"], minimum=0))
    shape, padding = transposed((x.channels, *image), filters, kernel, stride, sides, extra, dilation, groups)
    window = _checked(Window(shape[1:], kernel, stride, dilation, padding), shape[0], x.channels, groups)
    axes = []
    for k in (0, 1):
        step, spread = window.stride[k], window.dilation[k]
        runs = transposed_runs(size[k], image[k], kernel[k], step, padding[2 * k], spread)
        shared = math.gcd(step, spread)
        axes.append(Axis(runs, step, 1, step // shared, -(spread // shared)))
    channels, outputs = x.channels // groups, filters // groups
    sizes = _declare(writer, (groups, channels, outputs), kernel, (image[1], size[1]), axes)
    weight = writer.constant("weight", _as_image(writer.arrays()["weight"]).transpose(0, 2, 3, 1))
    return writer.call(
        "convolve", sizes, channels * math.prod(kernel) * outputs, outputs, x, weight, writer.param("bias")
    )


def write_depthwise_conv(writer: CodeWriter, x: Tensor) -> Tensor:
    multiplier, size = writer["depth_multiplier"], _sizes(writer.out_shape)
    window = _checked(_window_of(writer), x.channels, writer.out_shape[0], x.channels)
    widths, axes = (window.image[1], size[1]), _forward_axes(window, size)
    sizes = _declare(writer, (x.channels, 1, multiplier), window.kernel, widths, axes)
    weight = writer.constant("weight", _as_image(writer.arrays()["weight"])[:, 0].transpose(1, 2, 0))
    return writer.call("convolve_channels", sizes, multiplier, x, weight, writer.param("bias"))


def _write_winograd(writer: CodeWriter, x: Tensor, window: Window, weight: Array) -> Tensor:
    (filters, *size), identifier = writer.out_shape, writer.identifier("sizes")
    together = min(math.prod(-(-n // 4) for n in size), PATCHES)
    numbers = (x.channels, filters, *window.image, window.padding[0], window.padding[2], *size, together)
    writer.declare(f"static const winograd {identifier} = {{{', '.join(map(str, numbers))}}};")
    tables = writer.constant("weight", transformed_weights(weight)), writer.param("bias")
    scratch = 36 * together * (x.channels + filters)
    return writer.call("convolve_winograd", f"&{identifier}", x, *tables, scratch=scratch)


def _as_image(weight: Array) -> Array:
    """Returns the weight of a signal as that of an image of height 1."""
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
