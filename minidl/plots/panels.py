"""Panels: the input of a pool in a figure, with its windows and the cells that are their maxima."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minidl.plots.image_grid import Tiles
from minidl.plots.windows import Region, View
from minidl.utils.arrays import Array
from minidl.utils.data import Index

ORANGE, SKY, PURPLE = (
    "#E69F00",
    "#56B4E9",
    "#CC79A7",
)  # Okabe and Ito: winners, windows, overlaps
MARK = 0.045  # inches: the least width of a winner's frame
INSETS = 0.1, 0.25  # cells from the edges of windows to their outlines, alternating, if windows overlap
EDGE = 0.015  # inches: half the width of a line on the edge
Line = Sequence[tuple[float, float]]


class Panel:
    """A view of a pool's input, as large as fits a box in the figure, at the centre of its upper edge."""

    def __init__(self, tiles: Tiles, view: View, x: float, y: float, width: float, height: float) -> None:
        self.tiles, self.view = tiles, view
        self.top, self.left, rows, columns = view.region
        self.cell = min(width / columns, height / rows)
        self.width, self.height = columns * self.cell, rows * self.cell
        self.x, self.y = x + (width - self.width) / 2, y

    def image(self, values: Array, color_scale: dict[str, Any]) -> None:
        """Draws the region of a map (h, w)."""
        self.tiles.image(self.view.crop(values), self.x, self.y, self.width, self.height, **color_scale)

    def outputs(self, values: Array, color_scale: dict[str, Any]) -> None:
        """Draws the pool's output (oh, ow), each value at the centre of its window."""
        windows, down, across = self.view.windows, self.view.down, self.view.across
        shift = [(size - stride) / 2 for size, stride in zip(windows.size, windows.stride, strict=True)]
        x, y = self._at(windows.start(down[0], 0) + shift[0], windows.start(across[0], 1) + shift[1])
        width, height = (self.cell * n * s for n, s in zip((len(across), len(down)), windows.stride[::-1], strict=True))
        part = values[down[0] : down[-1] + 1, across[0] : across[-1] + 1]
        self._clip(self.tiles.image(part, x, y, width, height, framed=False, **color_scale))
        self.tiles.frame(self.x, self.y, self.width, self.height)

    def outlines(self) -> None:
        """Draws the windows; overlapping neighbours differ in colour and size. With a depth above 2, draws only one."""
        windows, down, across = self.view.windows, len(self.view.down), len(self.view.across)
        boxes, color_scale = [], []
        for k, (top, left, bottom, right) in enumerate(self.view.boxes()):
            place = divmod(k, across)
            v, h = (INSETS[number % 2] * (windows.depth[axis] > 1) for axis, number in enumerate(place))
            if windows.layers <= 2 or place == (down // 2, across // 2):
                boxes.append(_box(*self._at(top + v, left + h), *self._at(bottom - v, right - h)))
                color_scale.append(PURPLE if windows.layers == 2 and sum(place) % 2 else SKY)
        self._lines(boxes, color_scale, self._points(self.cell / 6, 0.8))

    def grid(self) -> None:
        """Draws the windows in pale grey."""
        self._lines([_box(*self._at(*box[:2]), *self._at(*box[2:])) for box in self.view.boxes()], "0.8", 0.4)

    def frames(self, cells: Index) -> None:
        """Draws frames around the winners in the region."""
        middles = [self._middle(cell) for cell in self.view.inside(cells)]
        half = max(self.cell, min(MARK, 0.6 * self.cell * min(self.view.windows.stride))) / 2
        width = self._points(half / 3, 1.5)
        half -= 0.35 * width / 72  # inside its cell, so that it does not cross the edge of the map
        boxes = [_box(x - half, y - half, x + half, y + half) for x, y in middles]
        self._lines(boxes, ORANGE, width)

    def winner_lines(self, cells: Index) -> None:
        """Draws lines from the centre of each window to its winner."""
        starts = [self._at((top + bottom) / 2, (left + right) / 2) for top, left, bottom, right in self.view.boxes()]
        width = self._points(self.cell / 10, 0.9)
        self._lines([(start, self._middle(cell)) for start, cell in zip(starts, cells, strict=True)], ORANGE, width)
        x, y = zip(*starts, strict=True)
        (dots,) = self.tiles.axes.plot(x, y, "o", color=ORANGE, markersize=3.2 * width, markeredgewidth=0)
        self._clip(dots)

    def ties(self, values: Array, cells: Index) -> None:
        """Draws equal signs on cells of a map (h, w) that equal the winner of one of their windows but win none."""
        won, equal = {int(cell) for cell in cells}, set()
        for (top, left, bottom, right), cell in zip(self.view.boxes(), cells, strict=True):
            rows, columns = np.nonzero(values[top:bottom, left:right] == values.flat[cell])
            equal |= {(row + top) * values.shape[1] + column + left for row, column in zip(rows, columns, strict=True)}
        half_width, offset = 0.17 * self.cell, 0.11 * self.cell
        middles = [self._middle(cell) for cell in sorted(equal - won)]
        signs = [[(x - half_width, y + dy), (x + half_width, y + dy)] for x, y in middles for dy in (-offset, offset)]
        self._lines(signs, ORANGE, self._points(self.cell / 12, 0.9))

    def region(self, region: Region) -> None:
        """Draws a box around a region."""
        top, left, rows, columns = region
        self._lines([_box(*self._at(top, left), *self._at(top + rows, left + columns))], "black", 1.0)

    def _at(self, row: float, column: float) -> tuple[float, float]:
        """Returns the position of the upper left corner of a cell; fractions are between cells."""
        return self.x + (column - self.left) * self.cell, self.y + (row - self.top) * self.cell

    def _middle(self, cell: int) -> tuple[float, float]:
        row, column = divmod(int(cell), self.view.windows.shape[1])
        return self._at(row + 0.5, column + 0.5)

    @staticmethod
    def _points(text_width: float, most: float) -> float:
        """Returns the width of a line in points."""
        return min(72 * text_width, most)

    def _lines(self, lines: Sequence[Line], color_scale: str | list[str], width: float) -> None:
        from matplotlib.collections import LineCollection

        drawn = LineCollection(lines, colors=color_scale, linewidths=width, joinstyle="miter")
        self.tiles.axes.add_collection(drawn, autolim=False)
        self._clip(drawn, EDGE)

    def _clip(self, drawn: Any, margin: float = 0.0) -> None:
        """Clips a drawing to the region."""
        from matplotlib.patches import Rectangle

        corner, size = (self.x - margin, self.y - margin), (self.width + 2 * margin, self.height + 2 * margin)
        drawn.set_clip_path(Rectangle(corner, *size, transform=self.tiles.axes.transData))


def _box(left: float, top: float, right: float, bottom: float) -> Line:
    return [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)]
