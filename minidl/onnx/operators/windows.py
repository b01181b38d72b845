"""Window attributes, which convolutions and pooling share."""

from __future__ import annotations

from collections.abc import Sequence

from minidl.onnx.node_reader import NodeReader
from minidl.utils.validation import Padding4, Pair, check_image_shape, resolve_padding


def int_pair(reader: NodeReader, name: str, default: int) -> Pair:
    """Returns an attribute of two integers, vertical and horizontal."""
    values = reader.attribute(name, (default, default))
    if len(values) != 2:
        reader.refuse(f"expected two numbers for {name}, got {list(values)}")
    return values[0], values[1]


def collapse_sides(sides: Padding4) -> int | Pair | Padding4:
    """Returns the shortest argument that means these sides, (top, bottom, left, right)."""
    top, bottom, left, right = sides
    return collapse_pair((top, left)) if (top, left) == (bottom, right) else sides


def collapse_pair(values: Sequence[int]) -> int | Pair:
    """Returns one number for a pair of equal ones: 3 for (3, 3)."""
    vertical, horizontal = values
    return vertical if vertical == horizontal else (vertical, horizontal)


def resolve_pads(reader: NodeReader, kernel: Pair, stride: Pair, dilation: Pair) -> Padding4:
    """Returns the padding of `auto_pad` or `pads` as (top, bottom, left, right)."""
    if len(reader.shape) != 3 or min(stride) < 1 or min(dilation) < 1:
        reader.refuse(f"expected windows over images, got {reader.shape}, strides {stride}, dilations {dilation}")
    auto_pad = reader.expect_attribute("auto_pad", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
    pads = reader.attribute("pads", (0, 0, 0, 0))
    if len(pads) != 4 or min(pads) < 0:
        reader.refuse(f"expected four pads of at least 0, got {list(pads)}")
    if auto_pad == "NOTSET":
        return pads[0], pads[2], pads[1], pads[3]
    if auto_pad == "VALID":
        return 0, 0, 0, 0
    top, bottom, left, right = resolve_padding("same", check_image_shape(reader.shape)[1:], kernel, stride, dilation)
    return (top, bottom, left, right) if auto_pad == "SAME_UPPER" else (bottom, top, right, left)
