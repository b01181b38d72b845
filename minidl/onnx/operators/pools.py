"""Pools over windows and over whole images.

The meaning of ceil_mode differs between versions of ONNX and between runtimes. It is therefore never written: windows
that reach beyond the end are expressed by larger pads at the end.
"""

from __future__ import annotations

from typing import Any

from minidl.layers import AvgPool2D, GlobalAvgPool2D, GlobalMaxPool2D, MaxPool2D, Pad2D, Reshape
from minidl.layers.base import Layer
from minidl.onnx.node_reader import LayerWithWeights, NodeReader, ReadFunction
from minidl.onnx.node_writer import NodeWriter, WriteFunction
from minidl.onnx.operators.windows import compact_pair, pair_attribute, read_padding
from minidl.utils.validation import Padding4, Pair, check_pair


def pool_window(writer: NodeWriter) -> tuple[Pair, Pair, Pair]:
    """Returns kernel, stride and padding of a layer."""
    kernel = check_pair("pool_size", writer["pool_size"])
    stride = kernel if writer["stride"] is None else check_pair("stride", writer["stride"])
    return kernel, stride, check_pair("padding", writer["padding"], minimum=0)


def onnx_pads(writer: NodeWriter, kernel: Pair, stride: Pair, padding: Pair) -> tuple[int, ...]:
    """Returns the pads (top, left, bottom, right) that give the number of windows of the layer."""
    after = []
    for size, out, k, s, p in zip(writer.in_shape[1:], writer.out_shape[1:], kernel, stride, padding, strict=True):
        after.append(p if out == (size + 2 * p - k) // s + 1 else (out - 1) * s + k - size - p)
    return *padding, *after


def write_max_pool(writer: NodeWriter, x: str) -> str:
    kernel, stride, padding = pool_window(writer)
    pads = onnx_pads(writer, kernel, stride, padding)
    return writer.add_node("MaxPool", x, kernel_shape=kernel, strides=stride, pads=pads)


def write_avg_pool(writer: NodeWriter, x: str) -> str:
    """Writes AveragePool. Padding may count, pixels beyond it never do: with both, a Pad makes padding part of x."""
    kernel, stride, padding = pool_window(writer)
    pads, counts = onnx_pads(writer, kernel, stride, padding), writer["count_include_pad"]
    if counts and pads != padding * 2:
        if any(padding):
            x = writer.add_node("Pad", x, writer.add_ints("pads", (0, 0, *padding) * 2))
        pads, counts = (0, 0, *(after - p for after, p in zip(pads[2:], padding, strict=True))), False
    return writer.add_node(
        "AveragePool", x, kernel_shape=kernel, strides=stride, pads=pads, count_include_pad=int(counts)
    )


def read_max_pool(reader: NodeReader) -> list[LayerWithWeights]:
    reader.attribute("storage_order", 0)  # of the indices of the maxima, an unused output
    kernel, stride, sides, ceil = read_window(reader)
    padding, ceil = fit_padding(reader, kernel, stride, sides, ceil)
    return [LayerWithWeights(MaxPool2D(compact_pair(kernel), compact_stride(kernel, stride), padding, ceil))]


def read_avg_pool(reader: NodeReader) -> list[LayerWithWeights]:
    """Reads AveragePool; uneven padding that counts becomes a Pad2D."""
    kernel, stride, sides, ceil = read_window(reader)
    top, bottom, left, right = sides
    counts = bool(reader.expect("count_include_pad", 0, 1)) and any(sides)
    if counts and (top, left) != (bottom, right):
        if ceil:
            reader.refuse("expected ceil_mode=0 with uneven pads that count, got 1")
        return [
            LayerWithWeights(Pad2D(sides)),
            LayerWithWeights(AvgPool2D(compact_pair(kernel), compact_stride(kernel, stride))),
        ]
    padding, ceil = fit_padding(reader, kernel, stride, sides, ceil)
    return [LayerWithWeights(AvgPool2D(compact_pair(kernel), compact_stride(kernel, stride), padding, ceil, counts))]


def read_window(reader: NodeReader) -> tuple[Pair, Pair, Padding4, bool]:
    """Returns kernel, stride, padding (top, bottom, left, right) and ceil_mode."""
    kernel = pair_attribute(reader, "kernel_shape", 0)
    stride, ceil = pair_attribute(reader, "strides", 1), bool(reader.expect("ceil_mode", 0, 1))
    reader.expect("dilations", (1, 1))
    if str(reader.node.attributes.get("auto_pad")).startswith("SAME"):
        for size, k, s in zip(reader.shape[1:], kernel, stride, strict=False):
            if s > 0 and -(-size // s) * s - s + k < size:  # negative pads: some runtimes crop the start
                reader.refuse(f"expected windows that reach the end of {size} pixels with auto_pad=SAME")
    return kernel, stride, read_padding(reader, kernel, stride, (1, 1)), ceil


def compact_stride(kernel: Pair, stride: Pair) -> int | Pair | None:
    """Returns a stride in its shortest form: None if windows do not overlap and leave no gap."""
    return None if stride == kernel else compact_pair(stride)


def fit_padding(reader: NodeReader, kernel: Pair, stride: Pair, sides: Padding4, ceil: bool) -> tuple[int | Pair, bool]:
    """Returns the layer's padding and ceil_mode that give the number of windows of the node.

    Pads at the start decide where windows begin, pads at the end only the number of windows.
    """
    modes = {False, True}
    axes = zip(reader.shape[1:], kernel, stride, (sides[:2], sides[2:]), strict=True)
    for size, k, s, (before, after) in axes:
        windows = count_windows(size + before + after - k, s, ceil)
        if ceil and (windows - 1) * s >= size + before:
            if reader.opset < 22:
                reader.refuse("expected ceil_mode=0: before opset 22 ONNX did not say whether the last window counts")
            windows -= 1
        ceiled = count_windows(size + 2 * before - k, s, True)
        ceiled -= (ceiled - 1) * s >= size + before
        modes &= {
            mode
            for mode, n in ((False, count_windows(size + 2 * before - k, s, False)), (True, ceiled))
            if n == windows
        }
    if not modes:
        top, bottom, left, right = sides
        reader.refuse(f"expected equal pads on both sides, got {[top, left, bottom, right]}")
    return compact_pair(sides[::2]), min(modes)


def count_windows(last_start: int, stride: int, ceil: bool) -> int:
    """Returns the number of windows if the last one may start at `last_start`."""
    return (-(-last_start // stride) if ceil else last_start // stride) + 1


# ---- whole images


def write_global(op: str) -> WriteFunction:
    return lambda writer, x: writer.add_node("Flatten", writer.add_node(op, x), axis=1)


def read_global(cls: type[Layer]) -> ReadFunction:
    """Returns the function that reads a global pool. ONNX keeps axes of size 1; a Flatten after it removes them."""

    def read(reader: NodeReader) -> list[LayerWithWeights]:
        if len(reader.shape) != 3:
            reader.refuse(f"expected images, got {reader.shape}")
        return [LayerWithWeights(cls()), LayerWithWeights(Reshape((reader.shape[0], 1, 1)))]

    return read


def read_reduce(cls: type[Layer], since: int) -> ReadFunction:
    """Returns the function that reads a mean or maximum over height and width; since this opset, axes are an input."""

    def read(reader: NodeReader) -> list[LayerWithWeights]:
        axes: Any = reader.ints_or_attribute("axes", 1, since)
        reader.expect("noop_with_empty_axes", 0, 1)  # of omitted axes
        if len(reader.shape) != 3 or axes is None or {reader.normalize_axis(axis) for axis in axes} != {2, 3}:
            reader.refuse(f"expected axes (2, 3) of images, got {axes} of {reader.shape}")
        kept = reader.expect("keepdims", 1, 0)
        return [LayerWithWeights(cls()), *([LayerWithWeights(Reshape((reader.shape[0], 1, 1)))] if kept else [])]

    return read


WRITE: dict[type[Layer], WriteFunction] = {
    AvgPool2D: write_avg_pool,
    GlobalAvgPool2D: write_global("GlobalAveragePool"),
    GlobalMaxPool2D: write_global("GlobalMaxPool"),
    MaxPool2D: write_max_pool,
}
READ: dict[str, ReadFunction] = {
    "AveragePool": read_avg_pool,
    "GlobalAveragePool": read_global(GlobalAvgPool2D),
    "GlobalMaxPool": read_global(GlobalMaxPool2D),
    "MaxPool": read_max_pool,
    "ReduceMax": read_reduce(GlobalMaxPool2D, since=18),
    "ReduceMean": read_reduce(GlobalAvgPool2D, since=18),
}
