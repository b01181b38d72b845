"""Tiles: many small images in one Axes, which stays fast with hundreds of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from minidl.plots.figures import GREY, PAD, SMALL, TEXT, figure_size, prepare_figure, wrap
from minidl.utils.arrays import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.image import AxesImage
    from matplotlib.text import Text

GAP, LABEL, BAR, MARGIN = 0.06, 0.14, 0.8, 2 * PAD  # inches: between tiles, of a line of text, of a colour bar
RISE = 0.03  # inches between a tile and the text above it
MIN_TILE, MAX_TILE = 0.22, 0.95  # inches: widths of a tile
MIN_WIDTH = 3.3  # inches: of a new figure, one column of a printed page
TARGET_HEIGHT, MAX_HEIGHT = 3.0, 6.75  # inches: of the tiles of a new figure; the second if they do not fit


@dataclass(frozen=True)
class Grid:
    """A layout of units: `shown` of them, in columns and rows, each of one or more tiles of `cell` inches."""

    shown: int
    columns: int
    rows: int
    cell: float


def fit_grid(
    n: int,
    width: float,
    height: float | None,
    ratio: float = 1.0,
    across: int = 1,
    lead: int = 0,
    side: float = 0.0,
    above: float = LABEL,
    text: float = 0.0,
    minimum: float = MIN_TILE,
    blocks: int = 1,
    tallest: float = MAX_HEIGHT,
) -> Grid:
    """Returns the grid that shows the most of n units, with large tiles and full rows.

    height: None: as needed, up to `tallest`. ratio: height by width of a tile. across: tiles side by side in a unit;
    lead: tiles before the first column; side, above: inches of text beside and above a unit; text: the width of that
    above;
    least: the least width of a tile; blocks: the number of such grids, one below the other.
    """

    def grid(columns: int, height: float) -> Grid | None:
        cell = min(MAX_TILE, (width - columns * side) / (columns * across + lead) - GAP)
        rows = -(-n // columns)
        if (height / rows - above - GAP) / ratio < minimum:
            rows = int(height / (minimum * ratio + above + GAP))
        if cell < minimum or width / columns < text + GAP or not rows:
            return None
        cell = min(cell, (height / rows - above - GAP) / ratio)
        return Grid(min(n, rows * columns), min(n, columns), -(-min(n, rows * columns) // columns), cell)

    best, most = Grid(1, 1, 1, minimum), TARGET_HEIGHT if height is None else height
    while True:
        found = filter(None, (grid(columns, most / blocks) for columns in range(1, n + 1)))
        best = max(found, default=best, key=lambda g: (g.shown, g.cell * (g.shown / g.columns / g.rows) ** 2))
        if best.shown == n or height is not None or most >= tallest:
            return best
        most *= 1.5


def tile_area(figure: Figure | SubFigure | None, bar: bool = False) -> tuple[float, float | None]:
    """Width and height for tiles in a figure, below a title of two lines, as `room` has them; raises as `room`."""
    width, height = figure_size(figure)
    return width - MARGIN - BAR * bar, None if height is None else height - MARGIN - 3 * LABEL


class Tiles:
    """Images and text at positions in inches from the upper left corner of a figure's content.

    figure: None: a new one of the right size; bar: leave space for a colour bar.
    """

    def __init__(
        self, figure: Figure | SubFigure | None, width: float, height: float, title: str, bar: bool = False
    ) -> None:
        whole = max(width + BAR * bar + MARGIN, MIN_WIDTH) if figure is None else figure.bbox.width / figure.dpi
        title = wrap(title, whole - 2 * MARGIN)
        lines = title.count("\n") + 1
        self.figure: Figure = prepare_figure(figure, whole, height + 1.3 * lines * TEXT / 72 + 0.06 + MARGIN)
        self.axes: Axes = self.figure.add_subplot()
        self.axes.set_axis_off()
        self.axes.set_title(title, loc="left", fontsize=TEXT, parse_math=False)
        self.width, self.height = width + BAR * bar, height

    def image(
        self, pixels: Array, x: float, y: float, width: float, height: float, framed: bool = True, **color_scale: Any
    ) -> AxesImage:
        """Draws an image (h, w) on a color scale, or (h, w, 3) in its own colours, with a thin frame."""
        image = self.axes.imshow(
            pixels, extent=(x, x + width, y + height, y), interpolation="nearest", aspect="auto", **color_scale
        )
        if framed:
            self.frame(x, y, width, height)
        return image

    def frame(self, x: float, y: float, width: float, height: float) -> None:
        """Draws a thin frame."""
        from matplotlib.patches import Rectangle

        self.axes.add_patch(Rectangle((x, y), width, height, fill=False, edgecolor=GREY, linewidth=0.4))

    def text(self, text: str, x: float, y: float, ha: str = "center", va: str = "baseline") -> Text:
        """Draws text without interpreting markup."""
        return self.axes.text(x, y, text, fontsize=SMALL, ha=ha, va=va, linespacing=1.15, parse_math=False)

    def heading(self, text: str, y: float) -> None:
        """Draws text above a position at the left edge; the layout reserves no space beyond its width."""
        self.text(text, 0, y - RISE, ha="left", va="bottom").set_in_layout(False)

    def finish(self, image: AxesImage | None = None, label: str = "") -> Figure:
        """Sets the limits, adds the colour bar of an image, and returns the figure."""
        self.axes.set(xlim=(0, self.width), ylim=(self.height, 0))
        self.axes.set_aspect("equal", anchor="NW")
        if image is not None:
            height = min(1.0, 2.5 / self.height)
            left = (self.width - BAR + 0.1) / self.width
            inset = self.axes.inset_axes((left, 1 - height, 0.1 / self.width, height))
            bar = self.figure.colorbar(image, cax=inset)
            bar.set_label(label, fontsize=SMALL)
            bar.ax.tick_params(labelsize=SMALL)
            bar.ax.locator_params(nbins=5 if height * self.height > 1 else 3)
        return self.figure


def color_scale(numbers: Array, signed: bool = False) -> dict[str, Any]:
    """Returns the color scale of values: blue, white (0), red with negative ones; else dark (0) to bright."""
    finite = numbers[np.isfinite(numbers)].astype(np.float64)
    most = float(np.abs(finite).max(initial=0)) or 1.0
    if signed or finite.min(initial=0) < 0:
        return {"cmap": "RdBu_r", "vmin": -most, "vmax": most}
    return {"cmap": "viridis", "vmin": 0, "vmax": most}


def displayed_images(images: Array) -> tuple[Array, dict[str, Any]]:
    """Returns images (n, c, h, w) for display: (n, h, w, 3) in 0..1 or (n, h, w); and arguments of imshow.

    uint8 colours and colours in 0..1 are kept. Others are scaled by the range of all images together, which includes 0.
    With another number of channels than 1 and 3, the mean is shown in grey.
    """
    numbers = images.astype(np.float64)
    if images.shape[1] != 3:
        numbers = numbers.mean(axis=1)
    low, high = float(numbers.min(initial=0)), float(numbers.max(initial=0))
    if images.shape[1] != 3:
        return numbers, {"cmap": "gray", "vmin": low, "vmax": high if high > low else low + 1}
    if images.dtype == np.uint8:
        high = 255.0
    elif low == 0 and high <= 1:
        high = 1.0
    return np.moveaxis((numbers - low) / (high - low), 1, -1), {}


def tile_ratio(h: int, w: int) -> float:
    """Returns height by width of a tile for images of this size, from 1/4 to 4."""
    return min(max(h / w, 1 / 4), 4.0)
