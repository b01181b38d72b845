"""Layers that change the shape of examples: Flatten, Reshape, Pad2D, Upsample2D, RandomCrop."""

from __future__ import annotations

import math

from minidl.layers import Flatten, Pad2D, RandomCrop, Reshape, Upsample2D
from minidl.layers.base import Layer
from minidl.onnx.graph import BATCH
from minidl.onnx.node_reader import LayerWithWeights, NodeReader, ReadFunction
from minidl.onnx.node_writer import NodeWriter, WriteFunction
from minidl.onnx.operators.windows import compact_pair
from minidl.utils.validation import Shape, check_pair


def write_flatten(writer: NodeWriter, x: str) -> str:
    return writer.add_node("Flatten", x, axis=1)


def write_reshape(writer: NodeWriter, x: str) -> str:
    """Writes Reshape; a size of 0 is copied from x: the batch size."""
    return writer.add_node("Reshape", x, writer.add_ints("shape", (0, *writer.out_shape)))


def reshape(reader: NodeReader, shape: Shape) -> list[LayerWithWeights]:
    """Returns the layer that gives x this shape, if it changes."""
    if shape == reader.shape:
        return []
    return [LayerWithWeights(Flatten() if len(shape) == 1 else Reshape(shape))]


def read_flatten(reader: NodeReader) -> list[LayerWithWeights]:
    if (axis := reader.normalize_axis(reader.attribute("axis", 1))) != 1:
        reader.refuse(f"expected axis=1, which keeps examples separate, got {axis}")
    return reshape(reader, (math.prod(reader.shape),))


def read_reshape(reader: NodeReader) -> list[LayerWithWeights]:
    """Reads Reshape, which must keep the batch axis first: as 0, -1, its size in the file, or from Shape."""
    sizes, numbers, same = reader.ints(1), math.prod(reader.shape), not reader.expect("allowzero", 0, 1)
    first, rest = sizes[:1], list(sizes[1:])
    for i, size in enumerate(rest[: len(reader.shape)]):
        rest[i] = reader.shape[i] if same and size == 0 else size
    if rest.count(-1) == 1 and (known := -math.prod(rest)) > 0:
        rest[rest.index(-1)] = numbers // known
    if first not in [(-1,), (BATCH,), (reader.batch,), *([(0,)] if same else [])] or not _is_full(rest, numbers):
        reader.refuse(f"expected a shape that keeps examples of {reader.shape} separate, got {list(sizes)}")
    return reshape(reader, tuple(rest))


def _is_full(shape: list[int], numbers: int) -> bool:
    return len(shape) > 0 and min(shape) > 0 and math.prod(shape) == numbers


def read_squeeze(reader: NodeReader) -> list[LayerWithWeights]:
    axes = reader.ints_or_attribute("axes", 1, since=13)
    gone = {reader.normalize_axis(axis) for axis in axes or (0,)}
    if any(axis == 0 or reader.shape[axis - 1] != 1 for axis in gone):
        reader.refuse(f"expected axes of size 1 after the batch, got {axes} of {reader.shape}")
    return reshape(reader, tuple(size for i, size in enumerate(reader.shape, 1) if i not in gone))


def read_unsqueeze(reader: NodeReader) -> list[LayerWithWeights]:
    axes = reader.ints_or_attribute("axes", 1, since=13) or ()
    shape, rank = list(reader.shape), len(reader.shape) + 1 + len(axes)
    new = sorted(axis % rank for axis in axes if -rank <= axis < rank)
    if len(new) != len(axes) or len(set(new)) != len(axes) or 0 in new:
        reader.refuse(f"expected new axes after the batch, got {axes} for {reader.shape}")
    for axis in new:
        shape.insert(axis - 1, 1)
    return reshape(reader, tuple(shape))


def write_pad(writer: NodeWriter, x: str) -> str:
    """Writes Pad. The argument `padding` may have one, two or four numbers; shapes give the rest."""
    (_, height, width), (_, tall, wide) = writer.in_shape, writer.out_shape
    padding = writer["padding"]
    four = isinstance(padding, (tuple, list)) and len(padding) == 4
    top, left = (padding[0], padding[2]) if four else check_pair("padding", padding, minimum=0)
    pads = (0, 0, top, left, 0, 0, tall - height - top, wide - width - left)
    return writer.add_node(
        "Pad", x, writer.add_ints("pads", pads), writer.add_constant("value", writer["value"]), mode="constant"
    )


def read_pad(reader: NodeReader) -> list[LayerWithWeights]:
    reader.expect("mode", "constant")
    pads, rank = reader.ints(1), len(reader.shape) + 1
    value = reader.scalar(2) if reader.has_input(2) else 0.0
    axes = reader.ints(3) if reader.has_input(3) else tuple(range(rank))
    if len(pads) != 2 * len(axes) or len(reader.shape) != 3:
        reader.refuse(f"expected pads of images, got {list(pads)} for {reader.shape}")
    pads_before, pads_after = [0] * rank, [0] * rank
    for axis, before, after in zip(axes, pads, pads[len(axes) :], strict=False):
        pads_before[reader.normalize_axis(axis)], pads_after[reader.normalize_axis(axis)] = before, after
    if any(pads_before[:2] + pads_after[:2]) or min(pads, default=0) < 0:
        reader.refuse(f"expected pads of at least 0, for height and width only, got {list(pads)}")
    sides = (pads_before[2], pads_after[2], pads_before[3], pads_after[3])
    return [LayerWithWeights(Pad2D(sides, value))] if any(sides) else []


def write_upsample(writer: NodeWriter, x: str) -> str:
    scales = writer.add_constant("scales", (1, 1, *check_pair("scale", writer["scale"])), "float32")
    options = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return writer.add_node("Resize", x, "", scales, **options)


def read_resize(reader: NodeReader) -> list[LayerWithWeights]:
    """Reads Resize with integer scales and nearest-neighbour modes that repeat each pixel."""
    for name, only in (("mode", "nearest"), ("antialias", 0), ("keep_aspect_ratio_policy", "stretch")):
        reader.expect(name, only)
    for name, default in (("cubic_coeff_a", -0.75), ("exclude_outside", 0), ("extrapolation_value", 0.0)):
        reader.attribute(name, default)  # of other modes
    where = reader.attribute("coordinate_transformation_mode", "half_pixel")
    nearest = reader.attribute("nearest_mode", "round_prefer_floor")
    rounds = where in ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel") and nearest.startswith("round_")
    if not rounds and (where, nearest) != ("asymmetric", "floor"):
        reader.refuse(f"expected modes asymmetric and floor, or half_pixel and round_*, got {where} and {nearest}")
    if reader.has_input(1):
        reader.constant(1)  # the region, which only a refused mode uses
    if len(reader.shape) != 3:
        reader.refuse(f"expected images, got {reader.shape}")
    scales = _scales(reader)
    whole = [int(scale) for scale in scales if 1 <= scale <= 2**31 and scale == int(scale)]
    if len(whole) != 4 or whole[:2] != [1, 1]:
        reader.refuse(f"expected integer scales for height and width, got {list(scales)}")
    return [LayerWithWeights(Upsample2D(compact_pair(whole[2:])))]


def _scales(reader: NodeReader) -> list[float]:
    if reader.has_input(2) and (scales := reader.constant(2)).size:
        return [float(one) for one in scales.reshape(-1)]
    sizes = reader.ints(3)
    if len(sizes) != 4:
        reader.refuse(f"expected sizes of images, got {list(sizes)}")
    if sizes[0] not in (BATCH, reader.batch):
        batch = "a batch of any size" if reader.batch == BATCH else f"the graph's batch of {reader.batch}"
        reader.refuse(
            f"expected sizes for {batch}, got {list(sizes)}, which always gives {sizes[0]} examples: "
            "export it with scales instead of sizes, or with a batch of 1"
        )
    return [1.0, *(new / old for new, old in zip(sizes[1:], reader.shape, strict=True))]


def write_crop(writer: NodeWriter, x: str) -> str:
    """Writes the centre crop of inference: a Pad if it exceeds the image, and a Slice."""
    before, after, starts = [0, 0], [0, 0], [0, 0]
    for axis, (size, out) in enumerate(zip(writer.in_shape[1:], writer.out_shape[1:], strict=True)):
        first = (size + out) // 2 - out
        before[axis], after[axis], starts[axis] = max(-first, 0), max(first + out - size, 0), max(first, 0)
    if any(before + after):
        x = writer.add_node("Pad", x, writer.add_ints("pads", (0, 0, *before, 0, 0, *after)))
    ends = [start + out for start, out in zip(starts, writer.out_shape[1:], strict=True)]
    return writer.add_node(
        "Slice", x, writer.add_ints("starts", starts), writer.add_ints("ends", ends), writer.add_ints("axes", (2, 3))
    )


WRITE: dict[type[Layer], WriteFunction] = {
    Flatten: write_flatten,
    Pad2D: write_pad,
    RandomCrop: write_crop,
    Reshape: write_reshape,
    Upsample2D: write_upsample,
}
READ: dict[str, ReadFunction] = {
    "Flatten": read_flatten,
    "Pad": read_pad,
    "Reshape": read_reshape,
    "Resize": read_resize,
    "Squeeze": read_squeeze,
    "Unsqueeze": read_unsqueeze,
}
