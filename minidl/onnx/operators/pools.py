"""Pooling over windows and over whole images.

The meaning of ceil_mode differs between versions of ONNX and between runtimes. It is therefore never written: windows
that reach beyond the end are expressed by pads at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

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
    Pad2D,
    Reshape,
)
from minidl.layers.base import Layer
from minidl.onnx.node_reader import LayerWithWeights, NodeReader, ReadFunction
from minidl.onnx.node_writer import NodeWriter, WriteFunction
from minidl.onnx.operators.windows import (
    collapse,
    collapse_sides,
    int_axes,
    layer_axes,
    layer_sides,
    pads_attribute,
    resolve_pads,
)
from minidl.utils.validation import Pair, Shape


@dataclass(frozen=True)
class PoolWindow:
    """Kernel, stride and dilation of a pooling along its axes, and its padding on each side."""

    kernel: Shape
    stride: Shape
    dilation: Shape
    sides: Shape

    def axes(self) -> Iterator[tuple[int, int, Pair]]:
        """Yields for each axis: what a window spans, the stride, and the padding before and after."""
        spans = [(k - 1) * e + 1 for k, e in zip(self.kernel, self.dilation, strict=True)]
        return zip(spans, self.stride, zip(self.sides[::2], self.sides[1::2], strict=True), strict=True)

    def attributes(self, pads: Shape) -> dict[str, Any]:
        """Returns the attributes of its node."""
        dilations = {"dilations": self.dilation} if max(self.dilation) > 1 else {}
        return {"kernel_shape": self.kernel, "strides": self.stride, "pads": pads, **dilations}

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments of its layer: no stride if windows neither overlap nor leave gaps."""
        return {
            "pool_size": collapse(self.kernel),
            "stride": None if self.stride == self.kernel else collapse(self.stride),
            "padding": collapse_sides(self.sides),
            "dilation": collapse(self.dilation),
        }


def get_window(writer: NodeWriter) -> PoolWindow:
    """Returns the window of a layer."""
    kernel = layer_axes(writer, "pool_size")
    stride = kernel if writer["stride"] is None else layer_axes(writer, "stride")
    return PoolWindow(kernel, stride, layer_axes(writer, "dilation"), layer_sides(writer))


def compute_pads(writer: NodeWriter, window: PoolWindow) -> tuple[Shape, Shape]:
    """Returns pads at the starts, and at the ends, that give as many windows as the layer has."""
    after = []
    for size, out, (span, step, (p, q)) in zip(writer.in_shape[1:], writer.out_shape[1:], window.axes(), strict=True):
        after.append(q if out == (size + p + q - span) // step + 1 else (out - 1) * step + span - size - p)
    return window.sides[::2], tuple(after)


def write_max_pool(writer: NodeWriter, x: str) -> str:
    window = get_window(writer)
    before, after = compute_pads(writer, window)
    return writer.add_node("MaxPool", x, **window.attributes(before + after))


def write_avg_pool(writer: NodeWriter, x: str) -> str:
    """Writes an AveragePool, after a Pad if padding counts and windows reach beyond it, where cells never count."""
    window, counts = get_window(writer), writer["count_include_pad"]
    before, after = compute_pads(writer, window)
    padded = window.sides[1::2]
    if counts and after != padded:
        if any(window.sides):
            x = writer.add_node("Pad", x, writer.add_int_constant("pads", (0, 0, *before, 0, 0, *padded)))
        after = tuple(end - pad for end, pad in zip(after, padded, strict=True))
        before, counts = (0,) * len(after), False
    return writer.add_node("AveragePool", x, **window.attributes(before + after), count_include_pad=int(counts))


def read_max_pool(reader: NodeReader) -> list[LayerWithWeights]:
    reader.attribute("storage_order", 0)  # of the second output, the indices
    window, ceil_mode = fit_window(reader, *read_window(reader))
    pool = MaxPool2D if len(window.kernel) == 2 else MaxPool1D
    return [LayerWithWeights(pool(**window.arguments(), ceil_mode=ceil_mode))]


def read_avg_pool(reader: NodeReader) -> list[LayerWithWeights]:
    """Reads an average pool; for an image after a Pad2D if sides differ, count, and are more than half a window."""
    window, ceil_mode = read_window(reader)
    counts = bool(reader.expect_attribute("count_include_pad", 0, 1)) and any(window.sides)
    before: list[LayerWithWeights] = []
    pool = AvgPool2D if len(window.kernel) == 2 else AvgPool1D
    if counts and window.sides[::2] != window.sides[1::2]:
        if ceil_mode:
            reader.refuse("expected ceil_mode=0 with asymmetric pads that count, got 1")
        halves = [k // 2 for k in window.kernel for _ in range(2)]
        if pool is AvgPool2D and any(side > half for side, half in zip(window.sides, halves, strict=True)):
            top, bottom, left, right = window.sides
            before, window = [LayerWithWeights(Pad2D((top, bottom, left, right)))], replace(window, sides=(0, 0, 0, 0))
    else:
        window, ceil_mode = fit_window(reader, window, ceil_mode)
    return [*before, LayerWithWeights(pool(**window.arguments(), ceil_mode=ceil_mode, count_include_pad=counts))]


def read_window(reader: NodeReader) -> tuple[PoolWindow, bool]:
    """Returns the window and ceil_mode of a node."""
    kernel, stride, dilation = (
        int_axes(reader, "kernel_shape", 0),
        int_axes(reader, "strides", 1),
        int_axes(reader, "dilations", 1),
    )
    ceil_mode = bool(reader.expect_attribute("ceil_mode", 0, 1))
    window = PoolWindow(kernel, stride, dilation, resolve_pads(reader, kernel, stride, dilation))
    if str(reader.node.attributes.get("auto_pad")).startswith("SAME"):
        for size, (span, step, _) in zip(reader.shape[1:], window.axes(), strict=True):
            if -(-size // step) * step - step + span < size:  # negative pads: some runtimes crop the start
                reader.refuse(
                    f"expected auto_pad with windows that reach the end of {size} pixels, got windows that do not"
                )
    return window, ceil_mode


def fit_window(reader: NodeReader, window: PoolWindow, ceil_mode: bool) -> tuple[PoolWindow, bool]:
    """Returns the layer's window and ceil_mode that give as many windows as the node has.

    Pads at the start determine the positions of windows; pads at the end only their number. They are equal to those at
    the start where possible.
    """
    axes = list(zip(reader.shape[1:], window.kernel, window.axes(), strict=True))
    counts = [count_windows(size, span, step, pads, ceil_mode) for size, _, (span, step, pads) in axes]
    whole = [-(-(size + sum(pads) - span) // step) + 1 for size, _, (span, step, pads) in axes]
    if ceil_mode and counts != whole and reader.opset < 22:
        reader.refuse("expected ceil_mode=0: before opset 22 ONNX did not say whether the last window counts")
    for equal, mode in product((True, False), (False, True)):
        ends = [find_end(*axis, n, equal, mode) for axis, n in zip(axes, counts, strict=True)]
        fitting = [end for end in ends if end is not None]
        if len(fitting) == len(ends):
            sides = tuple(side for pair in zip(window.sides[::2], fitting, strict=True) for side in pair)
            return replace(window, sides=sides), mode
    return reader.refuse(f"expected pads of at most half the window, got {list(pads_attribute(window.sides))}")


def find_end(size: int, kernel: int, axis: tuple[int, int, Pair], n: int, equal: bool, ceil_mode: bool) -> int | None:
    """Returns padding at the end of an axis that gives n windows, `equal` to that at the start, or None."""
    span, step, (before, after) = axis
    exact = (n - 1) * step + span - size - before  # the last window ends there
    ends = (before,) if equal else [end for end in (after, exact, 0) if 0 <= end <= kernel // 2]
    return next((end for end in ends if count_windows(size, span, step, (before, end), ceil_mode) == n), None)


def count_windows(size: int, span: int, step: int, pads: Pair, ceil_mode: bool) -> int:
    """Returns the number of windows along an axis; with ceil_mode, a last one that begins in padding does not count."""
    room = size + sum(pads) - span
    n = (-(-room // step) if ceil_mode else room // step) + 1
    return n - (ceil_mode and (n - 1) * step >= size + pads[0])


# ---- windows adapted to a size


def write_adaptive(pool: str, reduce: str) -> WriteFunction:
    """Returns a function that writes a pool where the size divides, else one reduction per window, axis by axis."""

    def write(writer: NodeWriter, x: str) -> str:
        axes = list(zip(range(2, 4), writer.in_shape[1:], writer.out_shape[1:], strict=True))
        if all(size % n == 0 for _, size, n in axes):
            window = tuple(size // n for _, size, n in axes)
            return writer.add_node(pool, x, kernel_shape=window, strides=window)
        for axis, size, n in axes:
            x = x if n == size else reduce_windows(writer, x, reduce, axis, size, n)
        return x

    return write


def reduce_windows(writer: NodeWriter, x: str, reduce: str, axis: int, size: int, n: int) -> str:
    """Writes a Slice and a reduction for each of n windows along an axis, and their Concat."""
    parts, axes = [], writer.add_int_constant(f"axes{axis}", (axis,))
    for i in range(n):
        start = writer.add_int_constant(f"start{axis}.{i}", (i * size // n,))
        end = writer.add_int_constant(f"end{axis}.{i}", (-(-(i + 1) * size // n),))
        part = writer.add_node("Slice", x, start, end, axes)
        parts.append(writer.add_node(reduce, part, axes, keepdims=1))
    return writer.add_node("Concat", *parts, axis=axis)


# ---- whole images


def write_global(op: str) -> WriteFunction:
    """Returns a function that writes a global pool, and a Flatten for the axes of size 1 that ONNX keeps."""
    return lambda writer, x: writer.add_node("Flatten", writer.add_node(op, x), axis=1)


def read_global(image_pool: type[Layer], signal_pool: type[Layer]) -> ReadFunction:
    """Returns a function that reads a global pool, with a Reshape for the axes of size 1 that ONNX keeps."""

    def read(reader: NodeReader) -> list[LayerWithWeights]:
        if len(reader.shape) not in (2, 3):
            reader.refuse(f"expected images or signals, got {reader.shape}")
        pool = image_pool() if len(reader.shape) == 3 else signal_pool()
        return [LayerWithWeights(pool), LayerWithWeights(Reshape((reader.shape[0], *(1,) * (len(reader.shape) - 1))))]

    return read


WRITE_FUNCTIONS: dict[type[Layer], WriteFunction] = {
    AdaptiveAvgPool2D: write_adaptive("AveragePool", "ReduceMean"),
    AdaptiveMaxPool2D: write_adaptive("MaxPool", "ReduceMax"),
    AvgPool1D: write_avg_pool,
    AvgPool2D: write_avg_pool,
    GlobalAvgPool1D: write_global("GlobalAveragePool"),
    GlobalAvgPool2D: write_global("GlobalAveragePool"),
    GlobalMaxPool1D: write_global("GlobalMaxPool"),
    GlobalMaxPool2D: write_global("GlobalMaxPool"),
    MaxPool1D: write_max_pool,
    MaxPool2D: write_max_pool,
}
READ_FUNCTIONS: dict[str, ReadFunction] = {
    "AveragePool": read_avg_pool,
    "GlobalAveragePool": read_global(GlobalAvgPool2D, GlobalAvgPool1D),
    "GlobalMaxPool": read_global(GlobalMaxPool2D, GlobalMaxPool1D),
    "MaxPool": read_max_pool,
}
