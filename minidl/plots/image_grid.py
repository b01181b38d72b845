"""Tiles: many small images in one Axes, which is fast even for hundreds of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from minidl.plots.figures import (
    DIVERGING,
    GREY,
    PAD,
    SEQUENTIAL,
    TEXT_POINTS,
    TITLE_POINTS,
    figure_size,
    prepare_figure,
    wrap,
)
from minidl.utils.arrays import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.image import AxesImage
    from matplotlib.text import Text

GAP, LABEL_HEIGHT = 0.06, 0.14  # inches: between tiles, for a line of text
COLORBAR_WIDTH, MARGIN = 0.8, 2 * PAD  # inches
LABEL_OFFSET = 0.03  # inches between a tile and its label
MIN_TILE, MAX_TILE = 0.22, 0.95  # inches: width of a tile
MIN_FIGURE_WIDTH = 3.3  # inches: one column of a printed page
DEFAULT_HEIGHT, MAX_HEIGHT = 3.0, 6.75  # inches: height of the tiles in a new figure; it grows only if needed


@dataclass(frozen=True)
class Grid:
    """Layout of units, `shown` of them in columns and rows; each has one or more tiles of `tile_width` inches."""

    shown: int
    columns: int
    rows: int
    tile_width: float


def fit_grid(
    n: int,
    width: float,
    height: float | None,
    ratio: float = 1.0,
    tiles_per_unit: int = 1,
    leading_tiles: int = 0,
    side_width: float = 0.0,
    label_height: float = LABEL_HEIGHT,
    min_column: float = 0.0,
    min_tile: float = MIN_TILE,
    n_blocks: int = 1,
    max_height: float = MAX_HEIGHT,
    default_height: float = DEFAULT_HEIGHT,
    max_tile: float = MAX_TILE,
) -> Grid:
    """Returns the grid that shows as many of n units as possible, with large tiles and full rows.

    Widths and heights are in inches. height: None: `default_height`, or as much as needed, up to `max_height`. ratio:
    height / width of a tile. tiles_per_unit: side by side. leading_tiles: before the first column. side_width,
    label_height: for text beside and above a unit. min_column: width of a unit, for the text above it. n_blocks: grids
    below each other.
    """

    def grid(columns: int, height: float) -> Grid | None:
        tile_width = min(max_tile, (width - columns * side_width) / (columns * tiles_per_unit + leading_tiles) - GAP)
        rows = -(-n // columns)
        if (height / rows - label_height - GAP) / ratio < min_tile:
            rows = int(height / (min_tile * ratio + label_height + GAP))
        if tile_width < min_tile or width / columns < min_column + GAP or not rows:
            return None
        tile_width = min(tile_width, (height / rows - label_height - GAP) / ratio)
        return Grid(min(n, rows * columns), min(n, columns), -(-min(n, rows * columns) // columns), tile_width)

    best, limit = Grid(1, 1, 1, min_tile), default_height if height is None else height
    while True:
        grids = filter(None, (grid(columns, limit / n_blocks) for columns in range(1, n + 1)))
        best = max(grids, default=best, key=lambda g: (g.shown, g.tile_width * (g.shown / g.columns / g.rows) ** 2))
        if best.shown == n or height is not None or limit >= max_height:
            return best
        limit *= 1.5


def tile_area(figure: Figure | SubFigure | None, bar: bool = False) -> tuple[float, float | None]:
    """Returns width and height of the area for tiles below a title of two lines; otherwise as `figure_size`."""
    width, height = figure_size(figure)
    return width - MARGIN - COLORBAR_WIDTH * bar, None if height is None else height - MARGIN - 3 * LABEL_HEIGHT


class Tiles:
    """Axes for images and text at positions in inches from the upper left corner.

    figure: None: a new one that fits. bar: leave space for a colour bar.
    """

    def __init__(
        self, figure: Figure | SubFigure | None, width: float, height: float, title: str, bar: bool = False
    ) -> None:
        figure_width = (
            max(width + COLORBAR_WIDTH * bar + MARGIN, MIN_FIGURE_WIDTH)
            if figure is None
            else figure.bbox.width / figure.dpi
        )
        title = wrap(title, figure_width - 2 * MARGIN)
        lines = title.count("\n") + 1
        self.figure: Figure = prepare_figure(
            figure, figure_width, height + 1.3 * lines * TITLE_POINTS / 72 + 0.06 + MARGIN
        )
        self.axes: Axes = self.figure.add_subplot()
        self.axes.set_axis_off()
        self.axes.set_title(title, loc="left", fontsize=TITLE_POINTS, parse_math=False)
        self.width, self.height = width + COLORBAR_WIDTH * bar, height

    def draw_image(
        self, pixels: Array, x: float, y: float, width: float, height: float, framed: bool = True, **colours: Any
    ) -> AxesImage:
        """Draws an image (h, w) with a colour map, or (h, w, 3) in RGB, with a thin frame."""
        image = self.axes.imshow(
            pixels, extent=(x, x + width, y + height, y), interpolation="nearest", aspect="auto", **colours
        )
        if framed:
            self.draw_frame(x, y, width, height)
        return image

    def draw_frame(self, x: float, y: float, width: float, height: float) -> None:
        """Draws a thin frame."""
        from matplotlib.patches import Rectangle

        self.axes.add_patch(Rectangle((x, y), width, height, fill=False, edgecolor=GREY, linewidth=0.4))

    def draw_text(self, text: str, x: float, y: float, ha: str = "center", va: str = "baseline") -> Text:
        """Draws text without parsing TeX."""
        return self.axes.text(x, y, text, fontsize=TEXT_POINTS, ha=ha, va=va, linespacing=1.15, parse_math=False)

    def draw_heading(self, text: str, y: float) -> None:
        """Draws text above `y` at the left edge; the layout does not reserve space for its width."""
        self.draw_text(text, 0, y - LABEL_OFFSET, ha="left", va="bottom").set_in_layout(False)

    def finish(self, image: AxesImage | None = None, label: str = "") -> Figure:
        """Sets the limits, and adds a colour bar for an image; returns the figure."""
        self.axes.set(xlim=(0, self.width), ylim=(self.height, 0))
        self.axes.set_aspect("equal", anchor="NW")
        if image is not None:
            height = min(1.0, 2.5 / self.height)
            left = (self.width - COLORBAR_WIDTH + 0.1) / self.width
            ticks = 5 if height * self.height > 1 else 3
            draw_bar(self.axes, image, label, (left, 1 - height, 0.1 / self.width, height), ticks)
        return self.figure


def draw_bar(
    axes: Axes, image: AxesImage, label: str, bounds: tuple[float, float, float, float], max_ticks: int
) -> None:
    """Draws a colour bar for an image beside it. bounds: left, bottom, width and height, as fractions of the axes."""
    inset = axes.inset_axes(bounds)
    bar = axes.figure.colorbar(image, cax=inset)
    bar.set_label(label, fontsize=TEXT_POINTS)
    bar.outline.set(edgecolor=GREY, linewidth=0.4)
    inset.tick_params(labelsize=TEXT_POINTS, length=2)
    inset.yaxis.get_offset_text().set_fontsize(TEXT_POINTS)  # a power of ten above the bar
    inset.locator_params(nbins=max_ticks)


def color_scale(values: Array, signed: bool = False) -> dict[str, Any]:
    """Returns colour map and limits: blue to red around white (0) if signed or negative; else white to blue."""
    finite = values[np.isfinite(values)].astype(np.float64)
    limit = float(np.abs(finite).max(initial=0)) or 1.0
    if signed or finite.min(initial=0) < 0:
        return {"cmap": DIVERGING, "vmin": -limit, "vmax": limit}
    return {"cmap": SEQUENTIAL, "vmin": 0, "vmax": limit}


def prepare_images(images: Array) -> tuple[Array, dict[str, Any]]:
    """Returns images (n, c, h, w) for imshow, and its colour map: RGB (n, h, w, 3) in 0..1, or grey (n, h, w).

    RGB bytes, and values in 0..1, are shown as they are. All others are scaled by the minimum and maximum over all
    images and 0. If there are neither 1 nor 3 channels, their mean is shown.
    """
    values = images.astype(np.float64)
    if images.shape[1] != 3:
        values = values.mean(axis=1)
    low, high = float(values.min(initial=0)), float(values.max(initial=0))
    if images.shape[1] != 3:
        return values, {"cmap": "gray", "vmin": low, "vmax": high if high > low else low + 1}
    if images.dtype == np.uint8:
        high = 255.0
    elif low == 0 and high <= 1:
        high = 1.0
    return np.moveaxis((values - low) / (high - low), 1, -1), {}


def tile_ratio(h: int, w: int) -> float:
    """Returns height / width of a tile for images of that size, limited to 1/4..4."""
    return min(max(h / w, 1 / 4), 4.0)
