"""Flatten, Reshape, Permute, ChannelShuffle, Columns, Pad2D: copies; reductions over axes."""

from __future__ import annotations

import math

from minidl.c_export.code_writer import CodeWriter, Tensor, declare_places
from minidl.layers import ChannelShuffle, Columns, Flatten, Pad2D, Permute, Reduce, Reshape
from minidl.utils.validation import check_axes, check_sides


def write_reshape(writer: CodeWriter, x: Tensor) -> Tensor:
    if x.channels == writer.out_shape[0]:
        return Tensor(x.storage, writer.out_shape)
    return writer.channels_last(writer.row_major(x), writer.out_shape)


def write_permute(writer: CodeWriter, x: Tensor) -> Tensor:
    """Walks through y in the order of its memory, channels last, with the steps in the memory of x."""
    last = [math.prod(x.shape[k + 1 :]) * x.channels for k in range(len(x.shape))]
    steps, order = [1, *last[1:]], [*range(1, len(x.shape)), 0]
    axes = writer["axes"]
    return _permute(writer, x, [writer.out_shape[k] for k in order], [steps[axes[k]] for k in order])


def write_shuffle(writer: CodeWriter, x: Tensor) -> Tensor:
    """Of each pixel, (groups, channels / groups) becomes (channels / groups, groups)."""
    groups = writer["groups"]
    size = x.channels // groups
    return _permute(writer, x, [x.pixels, size, groups], [x.channels, 1, size])


def _permute(writer: CodeWriter, x: Tensor, sizes: list[int], steps: list[int]) -> Tensor:
    return writer.call("permute", *declare_places(writer, sizes, steps), x)


def write_columns(writer: CodeWriter, x: Tensor) -> Tensor:
    start, columns = writer["start"] % x.channels, writer.out_shape[0]
    return writer.call("copy_columns", x.pixels, columns, x.channels, start, x, columns, 0)


def write_reduce(writer: CodeWriter, x: Tensor) -> Tensor:
    """Walks through y in the order of its memory, and for each number through x along the axes."""
    rank, axes = len(x.shape), check_axes("axis", writer["axis"], len(x.shape))
    last = [math.prod(x.shape[k + 1 :]) * x.channels for k in range(rank)]
    steps = [1, *last[1:]]
    kept = [k for k in range(rank) if k not in axes]
    channels = kept[:1] if not writer["keepdims"] or 0 in kept else []
    names = []
    for name, walk in (("outer", [*(k for k in kept if k not in channels), *channels]), ("over", list(axes))):
        sizes = [x.shape[k] for k in walk]
        numbers = [*declare_places(writer, sizes, [steps[k] for k in walk], f"{name}_"), math.prod(sizes)]
        names.append(writer.identifier(name))
        writer.declare(f"static const places {names[-1]} = {{{', '.join(map(str, numbers))}}};")
    return writer.call("reduce", f"REDUCE_{writer['function'].upper()}", *(f"&{name}" for name in names), x)


def write_pad(writer: CodeWriter, x: Tensor) -> Tensor:
    (channels, *image), (_, *size) = writer.in_shape, writer.out_shape
    top, _, left, _ = check_sides("padding", writer["padding"])
    return writer.call("crop", *image, -top, -left, *size, channels, writer.number(writer["value"]), x)


WRITE = {
    ChannelShuffle: write_shuffle,
    Columns: write_columns,
    Flatten: write_reshape,
    Pad2D: write_pad,
    Permute: write_permute,
    Reduce: write_reduce,
    Reshape: write_reshape,
}
