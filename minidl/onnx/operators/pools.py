"""Pools over windows and over whole images.

What ceil_mode means differed between versions of ONNX and between runtimes. So it is never written: windows that reach
beyond the end are told by pads behind.
"""

from __future__ import annotations

from typing import Any

from minidl.layers import AvgPool2D, GlobalAvgPool2D, GlobalMaxPool2D, MaxPool2D, Pad2D, Reshape
from minidl.layers.base import Layer
from minidl.onnx.node_reader import Made, Operator, Read
from minidl.onnx.node_writer import Place, Write
from minidl.onnx.operators.windows import sides_around, told, whole_pair
from minidl.utils.validation import Padding4, Pair, check_pair


def window_of(at: Place) -> tuple[Pair, Pair, Pair]:
    """Kernel, stride and padding of a layer."""
    kernel = check_pair("pool_size", at["pool_size"])
    stride = kernel if at["stride"] is None else check_pair("stride", at["stride"])
    return kernel, stride, check_pair("padding", at["padding"], least=0)


def pads_of(at: Place, kernel: Pair, stride: Pair, padding: Pair) -> tuple[int, ...]:
    """(top, left, bottom, right) with which as many windows fit as the layer has."""
    behind = []
    for size, out, k, s, p in zip(at.in_shape[1:], at.out_shape[1:], kernel, stride, padding, strict=True):
        behind.append(p if out == (size + 2 * p - k) // s + 1 else (out - 1) * s + k - size - p)
    return *padding, *behind


def write_max_pool(at: Place, x: str) -> str:
    kernel, stride, padding = window_of(at)
    pads = pads_of(at, kernel, stride, padding)
    return at.node("MaxPool", x, kernel_shape=kernel, strides=stride, pads=pads)


def write_avg_pool(at: Place, x: str) -> str:
    """Padding may count, what lies behind it never does: where there are both, a Pad makes the padding a part of x."""
    kernel, stride, padding = window_of(at)
    pads, counts = pads_of(at, kernel, stride, padding), at["count_include_pad"]
    if counts and pads != padding * 2:
        if any(padding):
            x = at.node("Pad", x, at.whole("pads", (0, 0, *padding) * 2))
        pads, counts = (0, 0, *(behind - p for behind, p in zip(pads[2:], padding, strict=True))), False
    return at.node("AveragePool", x, kernel_shape=kernel, strides=stride, pads=pads, count_include_pad=int(counts))


def read_max_pool(operator: Operator) -> list[Made]:
    operator.attribute("storage_order", 0)  # of the places of the maxima, an output that nobody reads
    kernel, stride, sides, ceil = read_window(operator)
    padding, ceil = fitted(operator, kernel, stride, sides, ceil)
    return [Made(MaxPool2D(told(kernel), stride_of(kernel, stride), padding, ceil))]


def read_avg_pool(operator: Operator) -> list[Made]:
    """Zeros that count are a Pad2D where they are not the same on both sides."""
    kernel, stride, sides, ceil = read_window(operator)
    top, bottom, left, right = sides
    counts = bool(operator.expect("count_include_pad", 0, 1)) and any(sides)
    if counts and (top, left) != (bottom, right):
        if ceil:
            operator.refuse("expected ceil_mode=0 where pads that count are not the same on both sides, got 1")
        return [Made(Pad2D(sides)), Made(AvgPool2D(told(kernel), stride_of(kernel, stride)))]
    padding, ceil = fitted(operator, kernel, stride, sides, ceil)
    return [Made(AvgPool2D(told(kernel), stride_of(kernel, stride), padding, ceil, counts))]


def read_window(operator: Operator) -> tuple[Pair, Pair, Padding4, bool]:
    """Kernel, stride, (top, bottom, left, right), ceil_mode."""
    kernel = whole_pair(operator, "kernel_shape", 0)
    stride, ceil = whole_pair(operator, "strides", 1), bool(operator.expect("ceil_mode", 0, 1))
    operator.expect("dilations", (1, 1))
    if str(operator.node.attributes.get("auto_pad")).startswith("SAME"):
        for size, k, s in zip(operator.shape[1:], kernel, stride, strict=False):
            if s > 0 and -(-size // s) * s - s + k < size:  # pads below 0: some runtimes cut the front off
                operator.refuse(f"expected windows up to the end of {size} pixels, where pads are made for that")
    return kernel, stride, sides_around(operator, kernel, stride, (1, 1)), ceil


def stride_of(kernel: Pair, stride: Pair) -> int | Pair | None:
    """A stride as a person writes it: None where windows lie side by side."""
    return None if stride == kernel else told(stride)


def fitted(operator: Operator, kernel: Pair, stride: Pair, sides: Padding4, ceil: bool) -> tuple[int | Pair, bool]:
    """The layer's padding and ceil_mode: those that give as many windows as the node has.

    What lies in front decides where windows begin, and what is behind only how many there are.
    """
    modes = {False, True}
    axes = zip(operator.shape[1:], kernel, stride, (sides[:2], sides[2:]), strict=True)
    for size, k, s, (front, behind) in axes:
        windows = count(size + front + behind - k, s, ceil)
        if ceil and (windows - 1) * s >= size + front:
            if operator.opset < 22:
                operator.refuse("expected ceil_mode=0: before opset 22 ONNX did not say whether the last window counts")
            windows -= 1
        ceiled = count(size + 2 * front - k, s, True)
        ceiled -= (ceiled - 1) * s >= size + front
        modes &= {mode for mode, n in ((False, count(size + 2 * front - k, s, False)), (True, ceiled)) if n == windows}
    if not modes:
        top, bottom, left, right = sides
        operator.refuse(f"expected as many pads on both sides, got {[top, left, bottom, right]}")
    return told(sides[::2]), min(modes)


def count(room: int, stride: int, ceil: bool) -> int:
    """How many windows fit where the last one can begin at `room`."""
    return (-(-room // stride) if ceil else room // stride) + 1


# ---- whole images


def write_global(op: str) -> Write:
    return lambda at, x: at.node("Flatten", at.node(op, x), axis=1)


def read_global(cls: type[Layer]) -> Read:
    """ONNX keeps axes of 1; the Reshape goes again where a Flatten follows."""

    def read(operator: Operator) -> list[Made]:
        if len(operator.shape) != 3:
            operator.refuse(f"expected images, got {operator.shape}")
        return [Made(cls()), Made(Reshape((operator.shape[0], 1, 1)))]

    return read


def read_reduce(cls: type[Layer], since: int) -> Read:
    """A mean or maximum over height and width; since this opset axes are an input."""

    def read(operator: Operator) -> list[Made]:
        axes: Any = operator.whole_or_attribute("axes", 1, since)
        operator.expect("noop_with_empty_axes", 0, 1)  # of axes that are left out
        if len(operator.shape) != 3 or axes is None or {operator.axis(axis) for axis in axes} != {2, 3}:
            operator.refuse(f"expected axes (2, 3) of images, got {axes} of {operator.shape}")
        kept = operator.expect("keepdims", 1, 0)
        return [Made(cls()), *([Made(Reshape((operator.shape[0], 1, 1)))] if kept else [])]

    return read


WRITE: dict[type[Layer], Write] = {
    AvgPool2D: write_avg_pool,
    GlobalAvgPool2D: write_global("GlobalAveragePool"),
    GlobalMaxPool2D: write_global("GlobalMaxPool"),
    MaxPool2D: write_max_pool,
}
READ: dict[str, Read] = {
    "AveragePool": read_avg_pool,
    "GlobalAveragePool": read_global(GlobalAvgPool2D),
    "GlobalMaxPool": read_global(GlobalMaxPool2D),
    "MaxPool": read_max_pool,
    "ReduceMax": read_reduce(GlobalMaxPool2D, since=18),
    "ReduceMean": read_reduce(GlobalAvgPool2D, since=18),
}
