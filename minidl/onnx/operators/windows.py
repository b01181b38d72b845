"""Window attributes, which convolutions and pooling share: over images (c, h, w) and over signals (c, length).

Sizes along the axes of a window are (vertical, horizontal) or (size,), and sides (top, bottom, left, right) or
(left, right).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minidl.onnx.node_reader import NodeReader
from minidl.onnx.node_writer import NodeWriter
from minidl.utils.validation import Shape, check_pair, check_sides, resolve_padding, resolve_padding_1d

COUNTS = {2: "two", 4: "four"}


def layer_axes(writer: NodeWriter, name: str) -> Shape:
    """Returns an argument of a layer, an int or one per axis, as one per axis."""
    value = writer[name]
    return tuple(map(int, value if isinstance(value, (tuple, list)) else (value,) * (len(writer.in_shape) - 1)))


def layer_sides(writer: NodeWriter) -> Shape:
    """Returns the padding of a layer, in numbers, on each side."""
    if len(writer.in_shape) == 3:
        return check_sides("padding", writer["padding"])
    return check_pair("padding", writer["padding"], minimum=0)


def pads_attribute(sides: Sequence[int]) -> Shape:
    """Returns sides in the order of ONNX: all starts, then all ends."""
    return *sides[::2], *sides[1::2]


def int_axes(reader: NodeReader, name: str, default: int) -> Shape:
    """Returns an attribute of one integer per axis."""
    axes = len(reader.shape) - 1
    values: Shape = reader.attribute(name, (default,) * axes)
    if len(values) != axes:
        reader.refuse(f"expected {'one number' if axes == 1 else f'{axes} numbers'} for {name}, got {list(values)}")
    return values


def collapse(values: Sequence[int]) -> Any:
    """Returns one number for equal ones: 3 for (3, 3)."""
    return values[0] if len(set(values)) == 1 else tuple(values)


def collapse_sides(sides: Sequence[int]) -> Any:
    """Returns the shortest argument that means these sides."""
    if sides[::2] == sides[1::2]:
        return collapse(sides[::2])
    return tuple(sides)


def resolve_layer_padding(padding: Any, shape: Shape, kernel: Shape, stride: Shape, dilation: Shape) -> Shape:
    """Returns the sides of a convolution's padding argument for an input of this shape."""
    if len(shape) == 2:
        return resolve_padding_1d(padding, shape[1], kernel[0], stride[0], dilation[0])
    pairs = [(pair[0], pair[1]) for pair in (shape[1:], kernel, stride, dilation)]
    return resolve_padding(padding, *pairs)


def resolve_pads(reader: NodeReader, kernel: Shape, stride: Shape, dilation: Shape) -> Shape:
    """Returns the padding of `auto_pad` or `pads` on each side."""
    axes = len(reader.shape) - 1
    if axes not in (1, 2) or min(stride) < 1 or min(dilation) < 1:
        reader.refuse(
            f"expected windows over images or signals, got {reader.shape}, strides {stride}, dilations {dilation}"
        )
    auto_pad = reader.expect_attribute("auto_pad", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
    pads = reader.attribute("pads", (0,) * 2 * axes)
    if len(pads) != 2 * axes or min(pads) < 0:
        reader.refuse(f"expected {COUNTS[2 * axes]} pads of at least 0, got {list(pads)}")
    if auto_pad == "NOTSET":
        return tuple(side for pair in zip(pads[:axes], pads[axes:], strict=True) for side in pair)
    if auto_pad == "VALID":
        return (0,) * 2 * axes
    sides = resolve_layer_padding("same", reader.shape, kernel, stride, dilation)
    if auto_pad == "SAME_UPPER":
        return sides
    return tuple(side for pair in zip(sides[1::2], sides[::2], strict=True) for side in pair)
