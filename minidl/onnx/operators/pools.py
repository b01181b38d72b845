"""Pooling over windows and over whole images.

The meaning of ceil_mode differs between versions of ONNX and between runtimes. It is therefore never written: windows
that reach beyond the end are expressed by pads at the end.
"""

from __future__ import annotations

from typing import Any

from minidl.layers import AvgPool2D, GlobalAvgPool2D, GlobalMaxPool2D, MaxPool2D, Pad2D, Reshape
from minidl.layers.base import Layer
from minidl.onnx.node_reader import LayerWithWeights, NodeReader, ReadFunction
from minidl.onnx.node_writer import NodeWriter, WriteFunction
from minidl.onnx.operators.windows import collapse_pair, int_pair, resolve_pads
from minidl.utils.validation import Padding4, Pair, check_pair


def get_window(writer: NodeWriter) -> tuple[Pair, Pair, Pair]:
    """Returns kernel, stride and padding of a layer."""
    kernel = check_pair("pool_size", writer["pool_size"])
    stride = kernel if writer["stride"] is None else check_pair("stride", writer["stride"])
    return kernel, stride, check_pair("padding", writer["padding"], minimum=0)


def compute_pads(writer: NodeWriter, kernel: Pair, stride: Pair, padding: Pair) -> tuple[int, ...]:
    """Returns pads (top, left, bottom, right) that give as many windows as the layer has."""
    after = []
    for size, out, k, s, p in zip(writer.in_shape[1:], writer.out_shape[1:], kernel, stride, padding, strict=True):
        after.append(p if out == (size + 2 * p - k) // s + 1 else (out - 1) * s + k - size - p)
    return *padding, *after


def write_max_pool(writer: NodeWriter, x: str) -> str:
    kernel, stride, padding = get_window(writer)
    pads = compute_pads(writer, kernel, stride, padding)
    return writer.add_node("MaxPool", x, kernel_shape=kernel, strides=stride, pads=pads)


def write_avg_pool(writer: NodeWriter, x: str) -> str:
    """Writes an AveragePool, after a Pad if padding counts and windows reach beyond it, where cells never count."""
    kernel, stride, padding = get_window(writer)
    pads, counts = compute_pads(writer, kernel, stride, padding), writer["count_include_pad"]
    if counts and pads != padding * 2:
        if any(padding):
            x = writer.add_node("Pad", x, writer.add_int_constant("pads", (0, 0, *padding) * 2))
        pads, counts = (0, 0, *(after - p for after, p in zip(pads[2:], padding, strict=True))), False
    return writer.add_node(
        "AveragePool", x, kernel_shape=kernel, strides=stride, pads=pads, count_include_pad=int(counts)
    )


def read_max_pool(reader: NodeReader) -> list[LayerWithWeights]:
    reader.attribute("storage_order", 0)  # of the second output, the indices
    kernel, stride, pads, ceil_mode = read_window(reader)
    padding, ceil_mode = fit_padding(reader, kernel, stride, pads, ceil_mode)
    return [LayerWithWeights(MaxPool2D(collapse_pair(kernel), stride_argument(kernel, stride), padding, ceil_mode))]


def read_avg_pool(reader: NodeReader) -> list[LayerWithWeights]:
    """Reads an AvgPool2D, after a Pad2D for asymmetric padding that counts."""
    kernel, stride, pads, ceil_mode = read_window(reader)
    top, bottom, left, right = pads
    counts = bool(reader.expect_attribute("count_include_pad", 0, 1)) and any(pads)
    if counts and (top, left) != (bottom, right):
        if ceil_mode:
            reader.refuse("expected ceil_mode=0 with asymmetric pads that count, got 1")
        return [
            LayerWithWeights(Pad2D(pads)),
            LayerWithWeights(AvgPool2D(collapse_pair(kernel), stride_argument(kernel, stride))),
        ]
    padding, ceil_mode = fit_padding(reader, kernel, stride, pads, ceil_mode)
    return [
        LayerWithWeights(AvgPool2D(collapse_pair(kernel), stride_argument(kernel, stride), padding, ceil_mode, counts))
    ]


def read_window(reader: NodeReader) -> tuple[Pair, Pair, Padding4, bool]:
    """Returns kernel, stride, pads (top, bottom, left, right) and ceil_mode."""
    kernel = int_pair(reader, "kernel_shape", 0)
    stride, ceil_mode = int_pair(reader, "strides", 1), bool(reader.expect_attribute("ceil_mode", 0, 1))
    reader.expect_attribute("dilations", (1, 1))
    if str(reader.node.attributes.get("auto_pad")).startswith("SAME"):
        for size, k, s in zip(reader.shape[1:], kernel, stride, strict=False):
            if s > 0 and -(-size // s) * s - s + k < size:  # negative pads: some runtimes crop the start
                reader.refuse(
                    f"expected auto_pad with windows that reach the end of {size} pixels, got windows that do not"
                )
    return kernel, stride, resolve_pads(reader, kernel, stride, (1, 1)), ceil_mode


def stride_argument(kernel: Pair, stride: Pair) -> int | Pair | None:
    """Returns a stride as in the layer's constructor: None if windows do not overlap or leave gaps."""
    return None if stride == kernel else collapse_pair(stride)


def fit_padding(
    reader: NodeReader, kernel: Pair, stride: Pair, pads: Padding4, ceil_mode: bool
) -> tuple[int | Pair, bool]:
    """Returns the layer's padding and ceil_mode that give as many windows as the node has.

    Pads at the start determine the positions of windows; pads at the end only their number.
    """
    modes = {False, True}
    axes = zip(reader.shape[1:], kernel, stride, (pads[:2], pads[2:]), strict=True)
    for size, k, s, (before, after) in axes:
        windows = count_windows(size + before + after - k, s, ceil_mode)
        if ceil_mode and (windows - 1) * s >= size + before:
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
        top, bottom, left, right = pads
        reader.refuse(f"expected equal pads on both sides, got {[top, left, bottom, right]}")
    return collapse_pair(pads[::2]), min(modes)


def count_windows(last_start: int, stride: int, ceil_mode: bool) -> int:
    """Returns the number of windows if the last one may begin at `last_start`."""
    return (-(-last_start // stride) if ceil_mode else last_start // stride) + 1


# ---- whole images


def write_global(op: str) -> WriteFunction:
    """Returns a function that writes a global pool, and a Flatten for the axes of size 1 that ONNX keeps."""
    return lambda writer, x: writer.add_node("Flatten", writer.add_node(op, x), axis=1)


def read_global(cls: type[Layer]) -> ReadFunction:
    """Returns a function that reads a global pool, with a Reshape for the axes of size 1 that ONNX keeps."""

    def read(reader: NodeReader) -> list[LayerWithWeights]:
        if len(reader.shape) != 3:
            reader.refuse(f"expected images, got {reader.shape}")
        return [LayerWithWeights(cls()), LayerWithWeights(Reshape((reader.shape[0], 1, 1)))]

    return read


def read_reduce(cls: type[Layer], since: int) -> ReadFunction:
    """Returns a function that reads a reduction over height and width; axes are an input from opset `since` on."""

    def read(reader: NodeReader) -> list[LayerWithWeights]:
        axes: Any = reader.ints_or_attribute("axes", 1, since)
        reader.expect_attribute("noop_with_empty_axes", 0, 1)  # only for omitted axes
        if len(reader.shape) != 3 or axes is None or {reader.normalize_axis(axis) for axis in axes} != {2, 3}:
            reader.refuse(f"expected axes (2, 3) of images, got {axes} of {reader.shape}")
        keepdims = reader.expect_attribute("keepdims", 1, 0)
        return [LayerWithWeights(cls()), *([LayerWithWeights(Reshape((reader.shape[0], 1, 1)))] if keepdims else [])]

    return read


WRITE_FUNCTIONS: dict[type[Layer], WriteFunction] = {
    AvgPool2D: write_avg_pool,
    GlobalAvgPool2D: write_global("GlobalAveragePool"),
    GlobalMaxPool2D: write_global("GlobalMaxPool"),
    MaxPool2D: write_max_pool,
}
READ_FUNCTIONS: dict[str, ReadFunction] = {
    "AveragePool": read_avg_pool,
    "GlobalAveragePool": read_global(GlobalAvgPool2D),
    "GlobalMaxPool": read_global(GlobalMaxPool2D),
    "MaxPool": read_max_pool,
    "ReduceMax": read_reduce(GlobalMaxPool2D, since=18),
    "ReduceMean": read_reduce(GlobalAvgPool2D, since=18),
}
