"""What convolutions and pools share: the attributes that say where windows lie."""

from __future__ import annotations

from collections.abc import Sequence

from minidl.onnx.node_reader import Operator
from minidl.utils.validation import Padding4, Pair, check_image_shape, resolve_padding


def whole_pair(operator: Operator, name: str, default: int) -> Pair:
    """An attribute of two integers, vertical and horizontal."""
    numbers = operator.attribute(name, (default, default))
    if len(numbers) != 2:
        operator.refuse(f"expected {name} for images, two numbers, got {list(numbers)}")
    return numbers[0], numbers[1]


def told(numbers: Sequence[int]) -> int | Pair:
    """A pair as a person writes it: 3 for (3, 3)."""
    vertical, horizontal = numbers
    return vertical if vertical == horizontal else (vertical, horizontal)


def sides_around(operator: Operator, kernel: Pair, stride: Pair, dilation: Pair) -> Padding4:
    """What `auto_pad` and `pads` put around the image: (top, bottom, left, right)."""
    if len(operator.shape) != 3 or min(stride) < 1 or min(dilation) < 1:
        operator.refuse(f"expected windows over images, got {operator.shape}, strides {stride}, dilations {dilation}")
    auto = operator.expect("auto_pad", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
    pads = operator.attribute("pads", (0, 0, 0, 0))
    if len(pads) != 4 or min(pads) < 0:
        operator.refuse(f"expected four pads of at least 0, got {list(pads)}")
    if auto == "NOTSET":
        return pads[0], pads[2], pads[1], pads[3]
    if auto == "VALID":
        return 0, 0, 0, 0
    top, bottom, left, right = resolve_padding("same", check_image_shape(operator.shape)[1:], kernel, stride, dilation)
    return (top, bottom, left, right) if auto == "SAME_UPPER" else (bottom, top, right, left)
