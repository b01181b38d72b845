"""Windows of a quantized net's pools as attributes of ONNX, where they are those of one kernel and stride."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from minidl.quantization.program import Range


@dataclass(frozen=True)
class PoolAxis:
    """Windows along one axis: their cells, the stride, and the padding that they need before and after."""

    kernel: int
    stride: int
    before: int
    after: int


def pool_axis(ranges: Sequence[Range], size: int, step: int = 1) -> PoolAxis | None:
    """Returns the geometry of windows along an axis of this size; None if they are no pool that ONNX has.

    step: between the cells of a window, its dilation.
    """
    n, kernel = len(ranges), max(len(range(*cells, step)) for cells in ranges)
    extent = (kernel - 1) * step + 1
    before = extent - ranges[0][1]
    starts, ends = zip(*ranges, strict=True)
    gaps = {b - a for places in (starts, ends) for a, b in pairwise(places)}
    for stride in sorted(gap for gap in gaps or {size} if gap > 0):
        after = max((n - 1) * stride + extent - size - before, 0)
        fits = 0 <= before < kernel > after and (size + before + after - extent) // stride + 1 == n
        if fits and tuple(ranges) == _windows(n, size, extent, stride, before, step):
            return PoolAxis(kernel, stride, before, after)
    return None


def _windows(n: int, size: int, extent: int, stride: int, before: int, step: int) -> tuple[Range, ...]:
    """Returns the cells of each window in an axis of this size, without those of the padding."""
    starts = range(-before, n * stride - before, stride)
    return tuple((start + max(-(start // step), 0) * step, min(start + extent, size)) for start in starts)
