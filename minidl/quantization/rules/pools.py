"""Pools: maxima and averages over windows, over the whole image, and over axes."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from minidl import layers as ours
from minidl.layers.base import Layer
from minidl.quantization.folding import copied
from minidl.quantization.graph import Average, Evaluate, Maximum, Node
from minidl.quantization.program import Range
from minidl.quantization.site import Site, Translate
from minidl.utils.arrays import Array
from minidl.utils.validation import Shape, check_axes, check_pair, check_sides
from minidl_c.kernels.windows import pooling

Windows = tuple[tuple[Range, ...], Shape]  # their cells along an axis, and the numbers by which sums are divided

MOST_CELLS = 2**23  # of a window: a sum of 255 for each fits 32 bits


def translate_pool(kind: str, site: Site) -> Node:
    """Windows with a stride; those of a maximum may be dilated."""
    arguments, image = site.layer.config(), site.x.shape
    if len(site.layer.in_shape) == 2:  # a signal is an image of height 1
        size, stride, dilation = (
            (1, arguments[name] or arguments["pool_size"]) for name in ("pool_size", "stride", "dilation")
        )
        sides: Shape = (0, 0, *check_pair("padding", arguments["padding"], minimum=0))
    else:
        size, dilation = (check_pair(name, arguments[name]) for name in ("pool_size", "dilation"))
        stride = size if arguments["stride"] is None else check_pair("stride", arguments["stride"])
        sides = check_sides("padding", arguments["padding"])
    if kind == "average" and dilation != (1, 1):
        raise ValueError(f"expected dilation=1, got {arguments['dilation']!r}")
    _, counts, size, stride, sides, dilation = pooling(image, size, stride, sides, arguments["ceil_mode"], dilation)
    counts_padding = arguments.get("count_include_pad", False)
    axes = zip(image[1:], counts, size, stride, sides, dilation, strict=True)
    return _pool(kind, site, [_windows(*axis, counts_padding=counts_padding) for axis in axes], tuple(dilation))


def _windows(
    cells: int, n: int, size: int, stride: int, sides: tuple[int, int], dilation: int, *, counts_padding: bool
) -> Windows:
    """Returns the windows along one axis, cut at the border of the image."""
    ranges, divisors = [], []
    for start in range(-sides[0], n * stride - sides[0], stride):
        stop = start + (size - 1) * dilation + 1
        first = start + max(-(start // dilation), 0) * dilation
        ranges.append((first, min(stop, cells)))
        divisors.append(min(stop, cells + sides[1]) - start if counts_padding else ranges[-1][1] - first)
    return tuple(ranges), tuple(divisors)


def translate_adaptive_pool(kind: str, site: Site) -> Node:
    """Windows that cover the image; a global pool has one along each axis."""
    axes = []
    for cells, n in zip(site.x.shape[1:], site.shape[1:], strict=True):
        ranges = tuple((i * cells // n, -(-(i + 1) * cells // n)) for i in range(n))
        axes.append((ranges, tuple(stop - start for start, stop in ranges)))
    return _pool(kind, site, axes)


def translate_reduce(site: Site) -> Node:
    """A pool over the axes, which are moved to the end before; a sum is a mean that is not divided."""
    function, shape = site.layer.config()["function"], site.layer.in_shape
    if function not in ("mean", "sum", "max"):
        raise ValueError(f"expected function='mean', 'sum' or 'max', got {function!r}")
    axes = check_axes("axis", site.layer.config()["axis"], len(shape))
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    n = math.prod(shape[axis] for axis in axes)
    index = np.arange(math.prod(shape)).reshape(shape).transpose(*kept, *axes)
    image = site.x.shape if kept == [0] else (index.size // n, n, 1)
    moved = copied([site.x], index, image, site.label)
    divisor, reduce = (1 if function == "sum" else n), getattr(np, function)

    def evaluate(x: Array) -> Array:
        return np.asarray(reduce(x, axis=(2, 3), keepdims=True), x.dtype)

    windows: list[Windows] = [(((0, image[1]),), (divisor,)), (((0, image[2]),), (1,))]
    y = _pool("max" if function == "max" else "average", replace(site, x=moved), windows, evaluate=evaluate)
    return copied([y], np.arange(index.size // n), site.shape, site.label)


def _pool(kind: str, site: Site, axes: list[Windows], steps: Shape = (1, 1), evaluate: Evaluate | None = None) -> Node:
    (rows, row_counts), (columns, column_counts) = axes
    cells = [max(stop - start for start, stop in ranges) for ranges in (rows, columns)]
    if math.prod(cells) > MOST_CELLS:
        raise ValueError(f"expected windows of at most {MOST_CELLS} cells, got {cells[0]} x {cells[1]}")
    common: dict[str, Any] = {
        "label": site.label,
        "shape": (site.x.shape[0], len(rows), len(columns)),
        "inputs": (site.x,),
        "evaluate": evaluate or site.evaluate,
        "rows": rows,
        "columns": columns,
    }
    if kind == "max":
        return Maximum(**common, steps=(steps[0], steps[1]))
    return Average(**common, row_counts=row_counts, column_counts=column_counts)


TRANSLATIONS: dict[type[Layer], Translate] = {
    ours.AdaptiveAvgPool2D: partial(translate_adaptive_pool, "average"),
    ours.AdaptiveMaxPool2D: partial(translate_adaptive_pool, "max"),
    ours.AvgPool1D: partial(translate_pool, "average"),
    ours.AvgPool2D: partial(translate_pool, "average"),
    ours.GlobalAvgPool1D: partial(translate_adaptive_pool, "average"),
    ours.GlobalAvgPool2D: partial(translate_adaptive_pool, "average"),
    ours.GlobalMaxPool1D: partial(translate_adaptive_pool, "max"),
    ours.GlobalMaxPool2D: partial(translate_adaptive_pool, "max"),
    ours.MaxPool1D: partial(translate_pool, "max"),
    ours.MaxPool2D: partial(translate_pool, "max"),
    ours.Reduce: translate_reduce,
}
