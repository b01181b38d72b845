"""Layers that give examples another shape: Flatten, Reshape, Pad2D, Upsample2D, RandomCrop."""

from __future__ import annotations

import math

from minidl.layers import Flatten, Pad2D, RandomCrop, Reshape, Upsample2D
from minidl.layers.base import Layer
from minidl.onnx.graph import BATCH
from minidl.onnx.node_reader import Made, Operator, Read
from minidl.onnx.node_writer import Place, Write
from minidl.onnx.operators.windows import told
from minidl.utils.validation import Shape, check_pair


def write_flatten(at: Place, x: str) -> str:
    return at.node("Flatten", x, axis=1)


def write_reshape(at: Place, x: str) -> str:
    """A size of 0 is that of x: the batch's."""
    return at.node("Reshape", x, at.whole("shape", (0, *at.out_shape)))


def reshaped(operator: Operator, shape: Shape) -> list[Made]:
    """x in this shape."""
    if shape == operator.shape:
        return []
    return [Made(Flatten() if len(shape) == 1 else Reshape(shape))]


def read_flatten(operator: Operator) -> list[Made]:
    if (axis := operator.axis(operator.attribute("axis", 1))) != 1:
        operator.refuse(f"expected axis=1, which leaves examples apart, got {axis}")
    return reshaped(operator, (math.prod(operator.shape),))


def read_reshape(operator: Operator) -> list[Made]:
    """The batch has to stay in front: as 0, -1, its size in the file, or what Shape says of it."""
    sizes, numbers, same = operator.whole(1), math.prod(operator.shape), not operator.expect("allowzero", 0, 1)
    first, rest = sizes[:1], list(sizes[1:])
    for i, size in enumerate(rest[: len(operator.shape)]):
        rest[i] = operator.shape[i] if same and size == 0 else size
    if rest.count(-1) == 1 and (known := -math.prod(rest)) > 0:
        rest[rest.index(-1)] = numbers // known
    if first not in [(-1,), (BATCH,), (operator.batch,), *([(0,)] if same else [])] or not _fills(rest, numbers):
        operator.refuse(f"expected a shape for examples of {operator.shape} that leaves them apart, got {list(sizes)}")
    return reshaped(operator, tuple(rest))


def _fills(shape: list[int], numbers: int) -> bool:
    return len(shape) > 0 and min(shape) > 0 and math.prod(shape) == numbers


def read_squeeze(operator: Operator) -> list[Made]:
    axes = operator.whole_or_attribute("axes", 1, since=13)
    gone = {operator.axis(axis) for axis in axes or (0,)}
    if any(axis == 0 or operator.shape[axis - 1] != 1 for axis in gone):
        operator.refuse(f"expected axes of size 1 behind the batch, got {axes} of {operator.shape}")
    return reshaped(operator, tuple(size for i, size in enumerate(operator.shape, 1) if i not in gone))


def read_unsqueeze(operator: Operator) -> list[Made]:
    axes = operator.whole_or_attribute("axes", 1, since=13) or ()
    shape, rank = list(operator.shape), len(operator.shape) + 1 + len(axes)
    new = sorted(axis % rank for axis in axes if -rank <= axis < rank)
    if len(new) != len(axes) or len(set(new)) != len(axes) or 0 in new:
        operator.refuse(f"expected new axes behind the batch, got {axes} for {operator.shape}")
    for axis in new:
        shape.insert(axis - 1, 1)
    return reshaped(operator, tuple(shape))


def write_pad(at: Place, x: str) -> str:
    """The layer's kernel knows the four sides; `padding` may be shorter."""
    (_, height, width), (_, tall, wide) = at.in_shape, at.out_shape
    padding = at["padding"]
    four = isinstance(padding, (tuple, list)) and len(padding) == 4
    top, left = (padding[0], padding[2]) if four else check_pair("padding", padding, least=0)
    pads = (0, 0, top, left, 0, 0, tall - height - top, wide - width - left)
    return at.node("Pad", x, at.whole("pads", pads), at.constant("value", at["value"]), mode="constant")


def read_pad(operator: Operator) -> list[Made]:
    operator.expect("mode", "constant")
    pads, rank = operator.whole(1), len(operator.shape) + 1
    value = operator.number(2) if operator.given(2) else 0.0
    axes = operator.whole(3) if operator.given(3) else tuple(range(rank))
    if len(pads) != 2 * len(axes) or len(operator.shape) != 3:
        operator.refuse(f"expected pads of images, got {list(pads)} for {operator.shape}")
    front, behind = [0] * rank, [0] * rank
    for axis, before, after in zip(axes, pads, pads[len(axes) :], strict=False):
        front[operator.axis(axis)], behind[operator.axis(axis)] = before, after
    if any(front[:2] + behind[:2]) or min(pads, default=0) < 0:
        operator.refuse(f"expected pads of at least 0 around height and width alone, got {list(pads)}")
    sides = (front[2], behind[2], front[3], behind[3])
    return [Made(Pad2D(sides, value))] if any(sides) else []


def write_upsample(at: Place, x: str) -> str:
    scales = at.constant("scales", (1, 1, *check_pair("scale", at["scale"])), "float32")
    options = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return at.node("Resize", x, "", scales, **options)


def read_resize(operator: Operator) -> list[Made]:
    """Whole scales to the nearest pixel, in the modes in which that is the pixel at the same place."""
    for name, only in (("mode", "nearest"), ("antialias", 0), ("keep_aspect_ratio_policy", "stretch")):
        operator.expect(name, only)
    for name, default in (("cubic_coeff_a", -0.75), ("exclude_outside", 0), ("extrapolation_value", 0.0)):
        operator.attribute(name, default)  # of other modes
    where = operator.attribute("coordinate_transformation_mode", "half_pixel")
    nearest = operator.attribute("nearest_mode", "round_prefer_floor")
    rounds = where in ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel") and nearest.startswith("round_")
    if not rounds and (where, nearest) != ("asymmetric", "floor"):
        operator.refuse(f"expected modes asymmetric and floor, or half_pixel and round_*, got {where} and {nearest}")
    if operator.given(1):
        operator.constant(1)  # the region of a mode that is refused
    if len(operator.shape) != 3:
        operator.refuse(f"expected images, got {operator.shape}")
    scales = _scales(operator)
    whole = [int(scale) for scale in scales if 1 <= scale <= 2**31 and scale == int(scale)]
    if len(whole) != 4 or whole[:2] != [1, 1]:
        operator.refuse(f"expected whole scales for height and width, got {list(scales)}")
    return [Made(Upsample2D(told(whole[2:])))]


def _scales(operator: Operator) -> list[float]:
    if operator.given(2) and (scales := operator.constant(2)).size:
        return [float(one) for one in scales.reshape(-1)]
    sizes = operator.whole(3)
    if len(sizes) != 4:
        operator.refuse(f"expected sizes of images, got {list(sizes)}")
    if sizes[0] not in (BATCH, operator.batch):
        batch = "a batch of any size" if operator.batch == BATCH else f"the graph's batch of {operator.batch}"
        operator.refuse(
            f"expected sizes for {batch}, got {list(sizes)}, which gives {sizes[0]} whatever comes in: "
            "export it with scales in place of sizes, or from an input with a batch of 1"
        )
    return [1.0, *(new / old for new, old in zip(sizes[1:], operator.shape, strict=True))]


def write_crop(at: Place, x: str) -> str:
    """The centre, as in inference: a Pad where it reaches beyond the image, a Slice where it does not."""
    before, behind, starts = [0, 0], [0, 0], [0, 0]
    for axis, (size, out) in enumerate(zip(at.in_shape[1:], at.out_shape[1:], strict=True)):
        first = (size + out) // 2 - out
        before[axis], behind[axis], starts[axis] = max(-first, 0), max(first + out - size, 0), max(first, 0)
    if any(before + behind):
        x = at.node("Pad", x, at.whole("pads", (0, 0, *before, 0, 0, *behind)))
    ends = [start + out for start, out in zip(starts, at.out_shape[1:], strict=True)]
    return at.node("Slice", x, at.whole("starts", starts), at.whole("ends", ends), at.whole("axes", (2, 3)))


WRITE: dict[type[Layer], Write] = {
    Flatten: write_flatten,
    Pad2D: write_pad,
    RandomCrop: write_crop,
    Reshape: write_reshape,
    Upsample2D: write_upsample,
}
READ: dict[str, Read] = {
    "Flatten": read_flatten,
    "Pad": read_pad,
    "Reshape": read_reshape,
    "Resize": read_resize,
    "Squeeze": read_squeeze,
    "Unsqueeze": read_unsqueeze,
}
