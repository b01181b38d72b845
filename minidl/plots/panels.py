"""Panels: maps of a pool with its windows and their winners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minidl.plots.figures import ORANGE, PALE_BLUE, PALE_PURPLE
from minidl.plots.image_grid import Tiles
from minidl.plots.windows import Region, View
from minidl.utils.arrays import Array
from minidl.utils.data import Index

MIN_WINNER_FRAME = 0.045  # inches: size of the frame around a winner
OUTLINE_INSETS = 0.1, 0.25  # cells: alternating insets of the outlines of overlapping windows
CLIP_MARGIN = 0.015  # inches: half the width of a line on the edge
Line = Sequence[tuple[float, float]]


class Panel:
    """A view of a pool's input, as large as fits into a rectangle of the figure, at the top centre."""

    def __init__(self, tiles: Tiles, view: View, x: float, y: float, width: float, height: float) -> None:
        self.tiles, self.view = tiles, view
        self.top, self.left, rows, columns = view.region
        self.cell = min(width / columns, height / rows)
        self.width, self.height = columns * self.cell, rows * self.cell
        self.x, self.y = x + (width - self.width) / 2, y

    def draw_image(self, values: Array, colors: dict[str, Any]) -> None:
        """Draws the region of a map (h, w)."""
        self.tiles.draw_image(self.view.crop(values), self.x, self.y, self.width, self.height, **colors)

    def draw_outputs(self, values: Array, colors: dict[str, Any]) -> None:
        """Draws the values of windows from a map of the pool's output (oh, ow), each centred on its window."""
        windows, down, across = self.view.windows, self.view.window_rows, self.view.window_columns
        shift = [(size - stride) / 2 for size, stride in zip(windows.size, windows.stride, strict=True)]
        x, y = self._position(windows.start(down[0], 0) + shift[0], windows.start(across[0], 1) + shift[1])
        width, height = (self.cell * n * s for n, s in zip((len(across), len(down)), windows.stride[::-1], strict=True))
        visible = values[down[0] : down[-1] + 1, across[0] : across[-1] + 1]
        self._clip(self.tiles.draw_image(visible, x, y, width, height, framed=False, **colors))
        self.tiles.draw_frame(self.x, self.y, self.width, self.height)

    def draw_windows(self) -> None:
        """Outlines the windows; overlapping neighbours differ in colour and size. If three overlap, draws only one."""
        windows, down, across = self.view.windows, len(self.view.window_rows), len(self.view.window_columns)
        boxes, colors = [], []
        for k, (top, left, bottom, right) in enumerate(self.view.boxes()):
            position = divmod(k, across)
            v, h = (OUTLINE_INSETS[number % 2] * (windows.overlap[axis] > 1) for axis, number in enumerate(position))
            if windows.max_overlap <= 2 or position == (down // 2, across // 2):
                boxes.append(_box(*self._position(top + v, left + h), *self._position(bottom - v, right - h)))
                colors.append(PALE_PURPLE if windows.max_overlap == 2 and sum(position) % 2 else PALE_BLUE)
        self._add_lines(boxes, colors, self._line_width(self.cell / 6, 0.8))

    def draw_grid(self) -> None:
        """Outlines the windows in light grey."""
        self._add_lines(
            [_box(*self._position(*box[:2]), *self._position(*box[2:])) for box in self.view.boxes()], "0.8", 0.4
        )

    def draw_winners(self, cells: Index) -> None:
        """Frames the winners inside the region. cells: their flat indices."""
        middles = [self._cell_center(cell) for cell in self.view.cells_inside(cells)]
        half = max(self.cell, min(MIN_WINNER_FRAME, 0.6 * self.cell * min(self.view.windows.stride))) / 2
        width = self._line_width(half / 3, 1.5)
        half -= 0.35 * width / 72  # keeps the line inside its cell, and so inside the map
        boxes = [_box(x - half, y - half, x + half, y + half) for x, y in middles]
        self._add_lines(boxes, ORANGE, width)

    def draw_lines_to_winners(self, cells: Index) -> None:
        """Draws a line from the centre of each window to its winner."""
        starts = [
            self._position((top + bottom) / 2, (left + right) / 2) for top, left, bottom, right in self.view.boxes()
        ]
        width = self._line_width(self.cell / 10, 0.9)
        self._add_lines(
            [(start, self._cell_center(cell)) for start, cell in zip(starts, cells, strict=True)], ORANGE, width
        )
        x, y = zip(*starts, strict=True)
        (dots,) = self.tiles.axes.plot(x, y, "o", color=ORANGE, markersize=3.2 * width, markeredgewidth=0)
        self._clip(dots)

    def draw_ties(self, values: Array, cells: Index) -> None:
        """Draws equal signs on cells of a map (h, w) that tie with the winner of a window and win none."""
        won, equal = {int(cell) for cell in cells}, set()
        for (top, left, bottom, right), cell in zip(self.view.boxes(), cells, strict=True):
            rows, columns = np.nonzero(values[top:bottom, left:right] == values.flat[cell])
            equal |= {(row + top) * values.shape[1] + column + left for row, column in zip(rows, columns, strict=True)}
        half_width, half_gap = 0.17 * self.cell, 0.11 * self.cell
        middles = [self._cell_center(cell) for cell in sorted(equal - won)]
        signs = [
            [(x - half_width, y + side), (x + half_width, y + side)]
            for x, y in middles
            for side in (-half_gap, half_gap)
        ]
        self._add_lines(signs, ORANGE, self._line_width(self.cell / 12, 0.9))

    def draw_region(self, region: Region) -> None:
        """Draws a box around a region."""
        top, left, rows, columns = region
        self._add_lines([_box(*self._position(top, left), *self._position(top + rows, left + columns))], "black", 1.0)

    def _position(self, row: float, column: float) -> tuple[float, float]:
        """Returns the position in the figure of the upper left corner of a cell, which may be fractional."""
        return self.x + (column - self.left) * self.cell, self.y + (row - self.top) * self.cell

    def _cell_center(self, cell: int) -> tuple[float, float]:
        row, column = divmod(int(cell), self.view.windows.shape[1])
        return self._position(row + 0.5, column + 0.5)

    @staticmethod
    def _line_width(inches: float, limit: float) -> float:
        """Converts a line width to points, with an upper limit."""
        return min(72 * inches, limit)

    def _add_lines(self, lines: Sequence[Line], colors: str | list[str], width: float) -> None:
        from matplotlib.collections import LineCollection

        artist = LineCollection(lines, colors=colors, linewidths=width, joinstyle="miter")
        self.tiles.axes.add_collection(artist, autolim=False)
        self._clip(artist, CLIP_MARGIN)

    def _clip(self, artist: Any, margin: float = 0.0) -> None:
        """Clips an artist to the panel."""
        from matplotlib.patches import Rectangle

        corner, size = (self.x - margin, self.y - margin), (self.width + 2 * margin, self.height + 2 * margin)
        artist.set_clip_path(Rectangle(corner, *size, transform=self.tiles.axes.transData))


def _box(left: float, top: float, right: float, bottom: float) -> Line:
    return [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)]
