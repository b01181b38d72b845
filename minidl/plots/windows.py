"""Windows of a pool: their positions in its input, and the most informative region of a large input."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from minidl.layers.base import Layer
from minidl.utils.arrays import Array
from minidl.utils.data import Index
from minidl.utils.validation import Pair, check_int, check_pair

Region = tuple[int, int, int, int]  # of an input: top, left, height, width, in cells


@dataclass(frozen=True)
class Windows:
    """Geometry of a pool's windows, as (vertical, horizontal) pairs in cells; axis 0 is vertical."""

    shape: Pair  # of the input
    count: Pair  # of the output
    size: Pair
    stride: Pair
    padding: Pair

    @classmethod
    def of(cls, pool: Layer) -> Windows:
        """Returns the windows of a built pool; one without a pool_size has one window."""
        config, (op,) = pool.config(), pool.ops
        shape, count = check_pair("shape", op.in_shape[1:]), check_pair("count", op.out_shape[1:])
        size = check_pair("pool_size", config.get("pool_size", shape))
        stride = size if config.get("stride") is None else check_pair("stride", config["stride"])
        return cls(shape, count, size, stride, check_pair("padding", config.get("padding", 0), minimum=0))

    @property
    def depth(self) -> Pair:
        """The largest number of windows along each axis that contain the same cell."""
        pairs = zip(self.size, self.stride, self.count, strict=True)
        down, across = (min(-(-size // stride), count) for size, stride, count in pairs)
        return down, across

    @property
    def layers(self) -> int:
        """The larger depth; 1: windows do not overlap."""
        return max(self.depth)

    def start(self, number: int, axis: int) -> int:
        """Returns the first cell of window `number` along an axis; below 0: in the padding."""
        return number * self.stride[axis] - self.padding[axis]

    def cells(self, number: int, axis: int) -> tuple[int, int]:
        """Returns the range of cells of window `number` along an axis, without the padding."""
        begin = self.start(number, axis)
        return max(begin, 0), min(begin + self.size[axis], self.shape[axis])

    def overlapping(self, first: int, end: int, axis: int) -> range:
        """Returns the numbers of the windows along an axis that overlap cells first..end."""
        cells = [self.cells(i, axis) for i in range(self.count[axis])]
        numbers = [i for i, (low, high) in enumerate(cells) if low < end and high > first]
        return range(numbers[0], numbers[-1] + 1) if numbers else range(0)


@dataclass(frozen=True)
class View:
    """A region of a pool's input, and the windows that have a cell in it."""

    windows: Windows
    region: Region

    @property
    def whole(self) -> bool:
        """True if it is all of the input."""
        return self.region == (0, 0, *self.windows.shape)

    @property
    def down(self) -> range:
        """Numbers of the windows along the vertical axis."""
        return self.windows.overlapping(self.region[0], self.region[0] + self.region[2], 0)

    @property
    def across(self) -> range:
        """Numbers of the windows along the horizontal axis."""
        return self.windows.overlapping(self.region[1], self.region[1] + self.region[3], 1)

    def boxes(self) -> Iterator[tuple[int, int, int, int]]:
        """Yields the cells of each window: top, left, bottom and right, the last two exclusive."""
        for i in self.down:
            for j in self.across:
                (top, bottom), (left, right) = self.windows.cells(i, 0), self.windows.cells(j, 1)
                yield top, left, bottom, right

    def inside(self, cells: Index) -> Index:
        """Returns the cells in the region, of flat indices of cells in the input."""
        top, left, height, width = self.region
        rows, columns = np.divmod(cells, self.windows.shape[1])
        return cells[(rows >= top) & (rows < top + height) & (columns >= left) & (columns < left + width)]

    def crop(self, values: Array) -> Array:
        """Returns the region of a map (h, w)."""
        top, left, height, width = self.region
        return values[top : top + height, left : left + width]


def check_region(region: Any, windows: Windows) -> Region:
    """Returns the argument `region` if it has a window in it; else raises TypeError or ValueError."""
    if not isinstance(region, (tuple, list)) or len(region) != 4:
        raise TypeError(f"region: expected (top, left, height, width) in cells, got {region!r}")
    top, left = (check_int("region: top and left", one, minimum=0) for one in region[:2])
    height, width = (check_int("region: height and width", one) for one in region[2:])
    h, w = windows.shape
    if top + height > h or left + width > w:
        raise ValueError(f"region: expected (top, left, height, width) within {h} x {w} cells, got {tuple(region)}")
    view = View(windows, (top, left, height, width))
    if not (view.down and view.across):
        raise ValueError(f"region: expected one that overlaps a window, got {tuple(region)}")
    return view.region


def most_informative_region(windows: Windows, sizes: Array, most: tuple[float, float]) -> Region:
    """Returns the whole input, or the region of at most `most` cells per axis with the largest sum of `sizes`.

    A region starts and ends with a window, and has at least one.
    """
    (height, tops), (width, lefts) = (_span(windows, axis, int(most[axis])) for axis in (0, 1))
    sums = np.pad(sizes.cumsum(axis=0).cumsum(axis=1), ((1, 0), (1, 0)))

    def inside(corner: tuple[int, int]) -> float:
        top, left = corner
        upper, lower = sums[top], sums[top + height]
        return float(lower[left + width] - lower[left] - upper[left + width] + upper[left])

    top, left = max(((top, left) for top in tops for left in lefts), key=inside)
    return top, left, height, width


def _span(windows: Windows, axis: int, most: int) -> tuple[int, list[int]]:
    """Returns the number of cells of a region along an axis, and its possible starts."""
    shape, size, stride = windows.shape[axis], windows.size[axis], windows.stride[axis]
    if shape <= max(1.25 * most, size):  # rather a quarter more than a part
        return shape, [0]
    length = size + max(most - size, 0) // stride * stride
    begins = [windows.start(i, axis) for i in range(windows.count[axis])]
    return length, [begin for begin in begins if 0 <= begin <= shape - length] or [0]
