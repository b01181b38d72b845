"""Flatten, Reshape, Permute, shuffles of channels and pixels, Columns, Pad1D, Pad2D: copies; reductions over axes."""

from __future__ import annotations

import math

from minidl.c_export.code_writer import CodeWriter, Tensor, declare_places
from minidl.layers import (
    ChannelShuffle,
    Columns,
    Flatten,
    Pad1D,
    Pad2D,
    Permute,
    PixelShuffle,
    PixelUnshuffle,
    Reduce,
    Reshape,
)
from minidl.utils.validation import check_axes, check_pair, check_sides


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


def write_pixel_shuffle(writer: CodeWriter, x: Tensor) -> Tensor:
    """Walks through y, with its blocks of pixels as axes of their own, whose numbers are neighbours in x."""
    (channels, *image), r, crd = x.shape, writer["upscale_factor"], writer["mode"] == "CRD"
    n = len(image)
    out = channels // r**n
    steps, sizes = [math.prod(image[i + 1 :]) * channels for i in range(n)], list[int]()
    walk = list[int]()
    for i in range(n):
        sizes += [image[i], r]
        walk += [steps[i], r ** (n - 1 - i) * (1 if crd else out)]
    return _permute(writer, x, [*sizes, out], [*walk, r**n if crd else 1])


def write_pixel_unshuffle(writer: CodeWriter, x: Tensor) -> Tensor:
    """Walks through y, whose channels are the pixels of a block and the channels of x."""
    (channels, *image), r = x.shape, writer["downscale_factor"]
    steps = [math.prod(image[i + 1 :]) * channels for i in range(len(image))]
    block = [(r, step) for step in steps]
    inner = [(channels, 1), *block] if writer["mode"] == "CRD" else [*block, (channels, 1)]
    walk = [*((size // r, step * r) for size, step in zip(image, steps, strict=True)), *inner]
    return _permute(writer, x, [size for size, _ in walk], [step for _, step in walk])


def write_columns(writer: CodeWriter, x: Tensor) -> Tensor:
    """Takes the columns of each row. In memory the channels are the last axis, with one number in a column."""
    axis, y = writer["axis"] % len(x.shape), writer.out_shape
    rows, n, inner = x.pixels, x.channels, 1
    if axis:
        rows, n, inner = math.prod(x.shape[1:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :]) * x.channels
    start, _, step = slice(writer["start"], writer["stop"], writer["step"]).indices(n)
    if step == 1:
        return writer.call("copy_columns", rows, y[axis] * inner, n * inner, start * inner, x, y[axis] * inner, 0)
    return writer.call("take_columns", rows, y[axis], n, inner, start, step, x)


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
    if len(image) == 1:
        top, left = 0, check_pair("padding", writer["padding"], minimum=0)[0]
        image, size = [1, *image], [1, *size]
    else:
        top, _, left, _ = check_sides("padding", writer["padding"])
    if writer["mode"] == "constant":
        return writer.call("crop", *image, -top, -left, *size, channels, writer.number(writer["value"]), x)
    return writer.call(f"pad_{writer['mode']}", *image, top, left, *size, channels, x)


WRITE = {
    ChannelShuffle: write_shuffle,
    Columns: write_columns,
    Flatten: write_reshape,
    Pad1D: write_pad,
    Pad2D: write_pad,
    Permute: write_permute,
    PixelShuffle: write_pixel_shuffle,
    PixelUnshuffle: write_pixel_unshuffle,
    Reduce: write_reduce,
    Reshape: write_reshape,
}
