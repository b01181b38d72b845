"""Attributes of windows, which convolutions and pools share."""

from __future__ import annotations

from collections.abc import Sequence

from minidl.onnx.node_reader import NodeReader
from minidl.utils.validation import Padding4, Pair, check_image_shape, resolve_padding


def pair_attribute(reader: NodeReader, name: str, default: int) -> Pair:
    """Returns an attribute of two integers, vertical and horizontal."""
    numbers = reader.attribute(name, (default, default))
    if len(numbers) != 2:
        reader.refuse(f"expected {name} for images, two numbers, got {list(numbers)}")
    return numbers[0], numbers[1]


def compact_pair(numbers: Sequence[int]) -> int | Pair:
    """Returns a pair in its shortest form: 3 for (3, 3)."""
    vertical, horizontal = numbers
    return vertical if vertical == horizontal else (vertical, horizontal)


def read_padding(reader: NodeReader, kernel: Pair, stride: Pair, dilation: Pair) -> Padding4:
    """Returns the padding of `auto_pad` and `pads`: (top, bottom, left, right)."""
    if len(reader.shape) != 3 or min(stride) < 1 or min(dilation) < 1:
        reader.refuse(f"expected windows over images, got {reader.shape}, strides {stride}, dilations {dilation}")
    auto = reader.expect("auto_pad", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
    pads = reader.attribute("pads", (0, 0, 0, 0))
    if len(pads) != 4 or min(pads) < 0:
        reader.refuse(f"expected four pads of at least 0, got {list(pads)}")
    if auto == "NOTSET":
        return pads[0], pads[2], pads[1], pads[3]
    if auto == "VALID":
        return 0, 0, 0, 0
    top, bottom, left, right = resolve_padding("same", check_image_shape(reader.shape)[1:], kernel, stride, dilation)
    return (top, bottom, left, right) if auto == "SAME_UPPER" else (bottom, top, right, left)
