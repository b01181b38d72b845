"""Layers that choose, add or reorder channels and axes: Columns, Permute, ChannelShuffle."""

from __future__ import annotations

import math

import numpy as np

from minidl.layers import ChannelShuffle, Columns, Permute
from minidl.layers.base import Layer
from minidl.onnx.node_reader import LayerWithWeights, NodeReader, ReadFunction
from minidl.onnx.node_writer import NodeWriter, WriteFunction
from minidl.onnx.operators.shapes import reshape_to

MAX_SIZE = 2**31 - 1  # the end of a Slice that means all, where exporters write 32 bits


def write_columns(writer: NodeWriter, x: str) -> str:
    start = int(writer["start"]) % writer.in_shape[0]
    ends = {"starts": [start], "ends": [start + writer.out_shape[0]], "axes": [1]}
    return writer.add_node("Slice", x, *(writer.add_int_constant(name, values) for name, values in ends.items()))


def read_slice(reader: NodeReader) -> list[LayerWithWeights]:
    """Reads a Slice with steps of 1."""
    starts, ends = reader.int_list(1), reader.int_list(2)
    axes = reader.int_list(3) if reader.has_input(3) else tuple(range(len(starts)))
    steps = reader.int_list(4) if reader.has_input(4) else (1,) * len(starts)
    if len({len(starts), len(ends), len(axes), len(steps)}) > 1:
        reader.refuse(f"expected a start, end and step for each of axes {axes}, got {starts}, {ends} and {steps}")
    layers = []
    for axis, start, end, step in zip(map(reader.normalize_axis, axes), starts, ends, steps, strict=True):
        if axis == 0:
            if (start, step) != (0, 1) or end < MAX_SIZE:
                reader.refuse(f"expected all examples, or axes after the batch, got {start} to {end} of axis 0")
            continue
        size = reader.shape[axis - 1]
        first, last, _ = slice(start, end).indices(size)
        if (first, last, step) != (0, size, 1):
            layers += make_columns(reader, axis, first, last, step)
    return layers


def make_columns(reader: NodeReader, axis: int, start: int, stop: int, step: int = 1) -> list[LayerWithWeights]:
    """Returns the layers for a range of one axis: Columns, between two Permutes unless it is the first."""
    if step != 1 or start >= stop:
        of = f"{start} to {stop} of axis {axis} of {reader.shape} in steps of {step}"
        reader.refuse(f"expected a range in steps of 1, got {of}")
    axes = list(range(len(reader.shape)))
    axes[0], axes[axis - 1] = axes[axis - 1], axes[0]
    before, after = ([] if axis == 1 else [LayerWithWeights(Permute(tuple(axes)))] for _ in range(2))
    return [*before, LayerWithWeights(Columns(start, stop)), *after]


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
    return make_columns(reader, axis, start, stop) if (start, stop) != (0, size) else []


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


def read_strided_view(reader: NodeReader) -> list[LayerWithWeights]:
    """Reads a view that has all elements in their order, for any batch; others are refused."""
    for batch, indices in reader.constants_by_batch(1).items():
        shape = indices.shape[1:]
        if not np.array_equal(indices, np.arange(batch * math.prod(reader.shape)).reshape(batch, *shape)):
            reader.refuse(f"expected the indices of all elements of {reader.shape} in their order, got others")
    return reshape_to(reader, shape)


WRITE_FUNCTIONS: dict[type[Layer], WriteFunction] = {
    ChannelShuffle: write_channel_shuffle,
    Columns: write_columns,
    Permute: write_permute,
}
READ_FUNCTIONS: dict[str, ReadFunction] = {
    "Slice": read_slice,
    "Transpose": read_transpose,
}
