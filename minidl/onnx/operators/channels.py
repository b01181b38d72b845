"""Layers that choose, add or reorder elements: Columns, Permute, ChannelShuffle, PixelShuffle, PixelUnshuffle."""

from __future__ import annotations

import math

import numpy as np

from minidl.layers import ChannelShuffle, Columns, Flatten, Permute, PixelShuffle, PixelUnshuffle, Reshape
from minidl.layers.base import Layer
from minidl.onnx.graph import ANY_BATCH
from minidl.onnx.node_reader import LayerWithWeights, NodeReader, ReadFunction
from minidl.onnx.node_writer import NodeWriter, WriteFunction
from minidl.onnx.operators.shapes import reshape_to
from minidl.utils.validation import Shape

MAX_SIZE = 2**31 - 1  # the end of a Slice that means all, where exporters write 32 bits


def write_columns(writer: NodeWriter, x: str) -> str:
    axis = int(writer["axis"]) % len(writer.in_shape)
    n, count = writer.in_shape[axis], writer.out_shape[axis]
    start, _, step = slice(writer["start"], writer["stop"], writer["step"]).indices(n)
    end = start + count * step
    inputs = {"starts": [start], "ends": [end if end >= 0 else -n - 1], "axes": [axis + 1]}
    if step != 1:
        inputs["steps"] = [step]
    return writer.add_node("Slice", x, *(writer.add_int_constant(name, values) for name, values in inputs.items()))


def read_slice(reader: NodeReader) -> list[LayerWithWeights]:
    starts, ends = reader.int_list(1), reader.int_list(2)
    axes = reader.int_list(3) if reader.has_input(3) else tuple(range(len(starts)))
    steps = reader.int_list(4) if reader.has_input(4) else (1,) * len(starts)
    lengths = {len(starts), len(ends), len(axes), len(steps)}
    if len(lengths) > 1 or 0 in steps or len({axis % (len(reader.shape) + 1) for axis in axes}) < len(axes):
        refused = f"got {starts}, {ends} and {steps}"
        reader.refuse(f"expected a start, an end and a step other than 0 for each of axes {axes}, {refused}")
    layers = []
    for axis, start, end, step in zip(map(reader.normalize_axis, axes), starts, ends, steps, strict=True):
        if axis == 0:
            if (start, step) != (0, 1) or end < MAX_SIZE:
                reader.refuse(f"expected all examples, or axes after the batch, got {start} to {end} of axis 0")
            continue
        layers += make_columns(reader, axis, *slice(start, end, step).indices(reader.shape[axis - 1]))
    return layers


def make_columns(reader: NodeReader, axis: int, start: int, stop: int, step: int = 1) -> list[LayerWithWeights]:
    """Returns the layer for a range of one axis, counted with the batch; none if it is all of the axis."""
    size = reader.shape[axis - 1]
    columns = range(start, stop, step)
    if not columns:
        of = f"{start} to {stop} of axis {axis} of {reader.shape} in steps of {step}"
        reader.refuse(f"expected a range of at least one element, got {of}")
    if columns == range(size):
        return []
    end = None if stop < 0 else stop  # of a range down to the first element
    return [LayerWithWeights(Columns(start, end, step, axis - 1))]


def read_split_part(reader: NodeReader) -> list[LayerWithWeights]:
    """Reads one output of a Split: given by its range, or as one of equal parts, of which the last may be smaller.

    A Split into others than its axis has, such as empty ones, is invalid, also if only its first output is used.
    """
    axis = reader.normalize_axis(reader.attribute("axis", 0))
    index, count, start, stop = (reader.attribute(name, 0) for name in ("index", "count", "start", "stop"))
    if axis == 0:
        reader.refuse("expected an axis after the batch, got 0")
    size = reader.shape[axis - 1]
    whole = reader.attribute("size", size)
    if count:
        part = -(-size // count)
        if part * (count - 1) >= size or (size % count and reader.opset < 18):
            reader.refuse(f"expected an axis of {size} in parts, got {count} of them")
        start, stop = index * part, min((index + 1) * part, size)
    if whole != size or not 0 <= start < stop <= size:
        reader.refuse(f"expected a part of {size}, got {start} to {stop} of {whole}")
    return make_columns(reader, axis, start, stop)


def read_gather(reader: NodeReader) -> list[LayerWithWeights]:
    """Reads one element of an axis after the batch; refuses what `expect_float_indices` has not made a lookup."""
    axis = reader.normalize_axis(reader.attribute("axis", 0))
    index = reader.constant(1) if axis and reader.x == 0 else np.empty(0)
    if index.size != 1 or index.ndim > 1 or index.dtype.kind != "i":
        expected = (
            "expected one element of an axis after the batch, or rows at elements of the graph's input, as indices"
        )
        reader.refuse(f"{expected}, got others, of axis {axis}")
    size, place = reader.shape[axis - 1], int(index.reshape(()))
    if not -size <= place < size:
        reader.refuse(f"expected an index from {-size} to {size - 1} for axis {axis}, got {place}")
    rest = (*reader.shape[: axis - 1], *index.shape, *reader.shape[axis:])
    if not rest:
        reader.refuse(f"expected examples of some axes, got one element of {reader.shape}")
    layers = make_columns(reader, axis, place % size, place % size + 1)
    return layers if index.ndim else [*layers, LayerWithWeights(Flatten() if len(rest) == 1 else Reshape(rest))]


def write_permute(writer: NodeWriter, x: str) -> str:
    return writer.add_node("Transpose", x, perm=[0, *(int(axis) + 1 for axis in writer["axes"])])


def read_transpose(reader: NodeReader) -> list[LayerWithWeights]:
    perm = reader.attribute("perm", tuple(range(len(reader.shape), -1, -1)))
    if sorted(perm) != list(range(len(reader.shape) + 1)) or perm[0] != 0:
        reader.refuse(f"expected a permutation that leaves the batch first, got {perm} of {reader.shape}")
    axes = tuple(axis - 1 for axis in perm[1:])
    return [LayerWithWeights(Permute(axes))] if axes != tuple(sorted(axes)) else []


def write_channel_shuffle(writer: NodeWriter, x: str) -> str:
    """Writes the three nodes of PyTorch's exporters: groups as an axis, exchanged with the next one."""
    groups, (channels, *rest) = int(writer["groups"]), writer.in_shape
    split = writer.add_int_constant("groups", (0, groups, channels // groups, *rest))
    x = writer.add_node("Reshape", x, split)
    x = writer.add_node("Transpose", x, perm=[0, 2, 1, *range(3, 3 + len(rest))])
    return writer.add_node("Reshape", x, writer.add_int_constant("shape", (0, channels, *rest)))


def write_pixel_shuffle(writer: NodeWriter, x: str) -> str:
    """Writes a DepthToSpace, for a signal the three nodes that it stands for."""
    factor = int(writer["upscale_factor"])
    if len(writer.in_shape) == 3:
        return writer.add_node("DepthToSpace", x, blocksize=factor, mode=writer["mode"])
    channels, length = writer.out_shape[0], writer.in_shape[1]
    crd = writer["mode"] == "CRD"
    split, perm = (
        ((0, channels, factor, length), [0, 1, 3, 2]) if crd else ((0, factor, channels, length), [0, 2, 3, 1])
    )
    return _rearrange(writer, x, split, perm)


def write_pixel_unshuffle(writer: NodeWriter, x: str) -> str:
    """Writes a SpaceToDepth; the three nodes that it stands for if it has another order, or for a signal."""
    factor, (channels, *image) = int(writer["downscale_factor"]), writer.in_shape
    if len(image) == 2 and writer["mode"] == "DCR":
        return writer.add_node("SpaceToDepth", x, blocksize=factor)
    split = (0, channels, *(part for size in image for part in (size // factor, factor)))
    block, pixels = [3, 5][: len(image)], [2, 4][: len(image)]
    perm = [0, 1, *block, *pixels] if writer["mode"] == "CRD" else [0, *block, 1, *pixels]
    return _rearrange(writer, x, split, perm)


def _rearrange(writer: NodeWriter, x: str, split: Shape, perm: list[int]) -> str:
    x = writer.add_node("Reshape", x, writer.add_int_constant("split", split))
    x = writer.add_node("Transpose", x, perm=perm)
    return writer.add_node("Reshape", x, writer.add_int_constant("shape", (0, *writer.out_shape)))


def read_depth_to_space(reader: NodeReader) -> list[LayerWithWeights]:
    _check_image(reader)
    mode = reader.expect_attribute("mode", "DCR", "CRD")
    return [LayerWithWeights(PixelShuffle(reader.attribute("blocksize", 0), mode))]


def read_space_to_depth(reader: NodeReader) -> list[LayerWithWeights]:
    _check_image(reader)
    return [LayerWithWeights(PixelUnshuffle(reader.attribute("blocksize", 0), "DCR"))]


def _check_image(reader: NodeReader) -> None:
    if len(reader.shape) != 3:
        reader.refuse(f"expected images, got {reader.shape}")


def read_strided_view(reader: NodeReader) -> list[LayerWithWeights]:
    """Reads a view that has all elements in their order, for any batch; others are refused."""
    for batch, indices in reader.constants_by_batch(1).items():
        shape = indices.shape[1:]
        if not np.array_equal(indices, np.arange(batch * math.prod(reader.shape)).reshape(batch, *shape)):
            reader.refuse(f"expected the indices of all elements of {reader.shape} in their order, got others")
    return reshape_to(reader, shape)


def read_channel_steps(reader: NodeReader) -> list[LayerWithWeights]:
    """Reads every channel in steps; the node was written for images of this shape, and a batch of this size or any."""
    shape, batch = reader.attribute("shape", ()), reader.attribute("batch", -1)
    if shape != reader.shape or batch not in (-1, reader.batch):
        size = "any size" if reader.batch == ANY_BATCH else reader.batch
        reader.refuse(f"expected images of {shape}, in a batch of {size}, got {reader.shape}, in one of {batch}")
    return make_columns(reader, 1, reader.attribute("index", 0), shape[0], reader.attribute("groups", 1))


WRITE_FUNCTIONS: dict[type[Layer], WriteFunction] = {
    ChannelShuffle: write_channel_shuffle,
    Columns: write_columns,
    Permute: write_permute,
    PixelShuffle: write_pixel_shuffle,
    PixelUnshuffle: write_pixel_unshuffle,
}
READ_FUNCTIONS: dict[str, ReadFunction] = {
    "DepthToSpace": read_depth_to_space,
    "Gather": read_gather,
    "Slice": read_slice,
    "SpaceToDepth": read_space_to_depth,
    "Transpose": read_transpose,
}
