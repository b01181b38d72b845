"""Windows: positions of a pool's windows in its input, and the most informative region of a large input."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from minidl.layers.base import Layer
from minidl.utils.arrays import Array
from minidl.utils.data import Index
from minidl.utils.validation import Pair, check_int, check_pair, check_sides

Region = tuple[int, int, int, int]  # (top, left, height, width) of an input, in cells


@dataclass(frozen=True)
class Windows:
    """Positions of a pool's windows: pairs (vertical, horizontal) in cells; axis 0 is vertical."""

    shape: Pair  # of the input
    count: Pair  # of windows: the shape of the output
    size: Pair
    stride: Pair
    padding: Pair  # before the first cell

    @classmethod
    def from_pool(cls, pool: Layer) -> Windows:
        """Returns the windows of a built pool; a global pool has one window. Raises ValueError for dilated ones."""
        config, (op,) = pool.config(), pool.ops
        shape, count = check_pair("shape", op.in_shape[1:]), check_pair("count", op.out_shape[1:])
        size = check_pair("pool_size", config.get("pool_size", shape))
        if check_pair("dilation", config.get("dilation", 1)) != (1, 1):
            raise ValueError(f"layer: expected a max-pool without dilation, got {pool!r}")
        stride = size if config.get("stride") is None else check_pair("stride", config["stride"])
        top, _, left, _ = check_sides("padding", config.get("padding", 0))
        return cls(shape, count, size, stride, (top, left))

    @property
    def overlap(self) -> Pair:
        """The largest number of windows along each axis that share a cell."""
        pairs = zip(self.size, self.stride, self.count, strict=True)
        down, across = (min(-(-size // stride), count) for size, stride, count in pairs)
        return down, across

    @property
    def max_overlap(self) -> int:
        """The larger overlap; 1: windows do not overlap."""
        return max(self.overlap)

    def start(self, index: int, axis: int) -> int:
        """Returns the first cell of the windows with this index along an axis; negative: in the padding."""
        return index * self.stride[axis] - self.padding[axis]

    def cells(self, index: int, axis: int) -> tuple[int, int]:
        """Returns the range of cells [first, end) of those windows, without the padding."""
        start = self.start(index, axis)
        return max(start, 0), min(start + self.size[axis], self.shape[axis])

    def windows_touching(self, first: int, end: int, axis: int) -> range:
        """Returns the indices, along an axis, of the windows that contain a cell of [first, end)."""
        cells = [self.cells(i, axis) for i in range(self.count[axis])]
        indices = [i for i, (low, high) in enumerate(cells) if low < end and high > first]
        return range(indices[0], indices[-1] + 1) if indices else range(0)


@dataclass(frozen=True)
class View:
    """A region of a pool's input, and the windows that contain a cell of it."""

    windows: Windows
    region: Region

    @property
    def is_whole(self) -> bool:
        """True if the region is the whole input."""
        return self.region == (0, 0, *self.windows.shape)

    @property
    def window_rows(self) -> range:
        """The indices of the windows along the vertical axis."""
        return self.windows.windows_touching(self.region[0], self.region[0] + self.region[2], 0)

    @property
    def window_columns(self) -> range:
        """The indices of the windows along the horizontal axis."""
        return self.windows.windows_touching(self.region[1], self.region[1] + self.region[3], 1)

    def boxes(self) -> Iterator[tuple[int, int, int, int]]:
        """Yields the cells of each window as (top, left, bottom, right), the last two exclusive."""
        for i in self.window_rows:
            for j in self.window_columns:
                (top, bottom), (left, right) = self.windows.cells(i, 0), self.windows.cells(j, 1)
                yield top, left, bottom, right

    def cells_inside(self, cells: Index) -> Index:
        """Returns those of the cells, flat indices of the input, that are in the region."""
        top, left, height, width = self.region
        rows, columns = np.divmod(cells, self.windows.shape[1])
        return cells[(rows >= top) & (rows < top + height) & (columns >= left) & (columns < left + width)]

    def crop(self, values: Array) -> Array:
        """Returns the region of a map (h, w)."""
        top, left, height, width = self.region
        return values[top : top + height, left : left + width]


def check_region(region: Any, windows: Windows) -> Region:
    """Returns a region; raises TypeError or ValueError unless it is in the input and contains part of a window."""
    if not isinstance(region, (tuple, list)) or len(region) != 4:
        raise TypeError(f"region: expected (top, left, height, width) in cells, got {region!r}")
    top, left = (check_int("region: top and left", value, minimum=0) for value in region[:2])
    height, width = (check_int("region: height and width", value) for value in region[2:])
    h, w = windows.shape
    if top + height > h or left + width > w:
        raise ValueError(f"region: expected (top, left, height, width) within {h} x {w} cells, got {tuple(region)}")
    view = View(windows, (top, left, height, width))
    if not (view.window_rows and view.window_columns):
        raise ValueError(f"region: expected one that contains a cell of a window, got {tuple(region)}")
    return view.region


def most_informative_region(windows: Windows, relevance: Array, max_cells: tuple[float, float]) -> Region:
    """Returns the whole input, or the region of at most `max_cells` (vertical, horizontal) with the largest relevance.

    It starts and ends at the edges of windows, and contains at least one window.
    """
    (height, tops), (width, lefts) = (_region_span(windows, axis, int(max_cells[axis])) for axis in (0, 1))
    sums = np.pad(relevance.cumsum(axis=0).cumsum(axis=1), ((1, 0), (1, 0)))

    def relevance_inside(corner: tuple[int, int]) -> float:
        top, left = corner
        upper, lower = sums[top], sums[top + height]
        return float(lower[left + width] - lower[left] - upper[left + width] + upper[left])

    top, left = max(((top, left) for top in tops for left in lefts), key=relevance_inside)
    return top, left, height, width


def _region_span(windows: Windows, axis: int, max_cells: int) -> tuple[int, list[int]]:
    """Returns the length of a region along an axis, and its possible starts."""
    shape, size, stride = windows.shape[axis], windows.size[axis], windows.stride[axis]
    if shape <= max(1.25 * max_cells, size):  # showing all is better if it is at most a quarter larger
        return shape, [0]
    length = size + max(max_cells - size, 0) // stride * stride
    starts = [windows.start(i, axis) for i in range(windows.count[axis])]
    return length, [start for start in starts if 0 <= start <= shape - length] or [0]
