"""Pictures of examples in tiles: images, and signals as lines over time, with bands of colour under the lines."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minidl.plots.figures import count_label, text_width
from minidl.plots.image_grid import (
    GAP,
    LABEL_HEIGHT,
    LABEL_OFFSET,
    MAX_TILE,
    Tiles,
    prepare_images,
    tile_ratio,
)
from minidl.utils.arrays import Array
from minidl.utils.validation import Shape

if TYPE_CHECKING:
    from matplotlib.image import AxesImage

MAX_LANES = 8  # channels of a signal that are drawn
LANE, MIN_RATIO = 0.1, 0.38  # height of a lane, and the least one of a tile, as parts of the width of a tile
MARGIN = 0.08  # of a lane, above and below its line
BINS = 512  # of a long signal: each is drawn as a stroke from its least value to its largest
OPACITY, STROKES = 0.65, 0.4  # of bands, where the darkest shows a line; of strokes, which show a band


def is_signal(shape: Shape) -> bool:
    """True for shapes (channels, length), and for images of one row or one column, which are signals, too."""
    return len(shape) == 2 or (len(shape) == 3 and min(shape[1:]) == 1 < max(shape[1:]))


def as_signals(x: Array) -> Array:
    """Returns arrays (n, channels, length) of examples that are signals; others, such as images, unchanged."""
    return x.reshape(*x.shape[:2], max(x.shape[2:])) if is_signal(x.shape[1:]) else x


class Images:
    """Images (n, channels, height, width)."""

    max_tile, min_tile = MAX_TILE, 0.6  # inches: the largest width of a tile, the smallest in a new figure
    side_width = foot_height = 0.0  # inches: of the text beside and below a tile

    def __init__(self, x: Array) -> None:
        self._pixels, self._colours = prepare_images(x)
        self.ratio, channels = tile_ratio(*x.shape[2:]), x.shape[1]
        self.note = "" if channels in (1, 3) else f"; input: mean of its {channels} channels"

    def draw(self, tiles: Tiles, i: int, x: float, y: float, width: float, labels: bool = True) -> None:
        """Draws image i in a tile, which has no labels."""
        tiles.draw_image(self._pixels[i], x, y, width, width * self.ratio, **self._colours)


class Signals:
    """Signals (n, channels, length): a line for each channel, in a lane of its own, the first one at the top.

    A lane has the same scale for all examples, from the least to the largest value. ratio: height / width of a tile, at
    least.
    """

    max_tile, min_tile = 2.6, 1.5
    foot_height = LABEL_HEIGHT

    def __init__(self, x: Array, ratio: float = MIN_RATIO) -> None:
        channels, self._length = x.shape[1:]
        self.lanes = min(channels, MAX_LANES)
        self.ratio = max(ratio, LANE * self.lanes)
        self._times, self._values = _strokes(x[:, : self.lanes].astype(np.float64))
        finite = np.where(np.isfinite(self._values), self._values, np.nan)
        self._low, self._high = (f.reduce(f.reduce(finite, axis=2), axis=0) for f in (np.fmin, np.fmax))
        self.note, self._marks = "", [(0.0, f"{self._high[0]:.3g}"), (1.0, f"{self._low[0]:.3g}")]
        if channels > 1:
            shown = count_label(channels, "channel", self.lanes)
            self.note = f"; input: {shown}, each on a scale of its own"
            self._marks = [((c + 0.5) / self.lanes, str(c)) for c in range(self.lanes)]
        elif self._marks[0][1] == self._marks[1][1]:
            self._marks = [(0.5, self._marks[0][1])]
        self.side_width = max(text_width(text) for _, text in self._marks) + GAP

    def draw(self, tiles: Tiles, i: int, x: float, y: float, width: float, labels: bool = True) -> None:
        """Draws signal i in a tile. labels: with the range of one channel, or the numbers of several, and the times."""
        height, lane = width * self.ratio, width * self.ratio / self.lanes
        style: dict[str, Any] = {"color": "black", "linewidth": 0.6, "solid_joinstyle": "round"}
        if self._length == 1:
            style |= {"marker": ".", "markersize": 3}
        if len(self._times) < self._length:
            style |= {"alpha": STROKES}
        for c, (low, high) in enumerate(zip(self._low, self._high, strict=True)):
            level = (self._values[i, c] - low) / (high - low) if high > low else self._values[i, c] * 0 + 0.5
            where = y + lane * (c + 1 - MARGIN - (1 - 2 * MARGIN) * level)
            tiles.axes.plot(x + width * self._times / self._length, where, **style)
        tiles.draw_frame(x, y, width, height)
        if labels:
            self._draw_labels(tiles, x, y, width, height)

    def _draw_labels(self, tiles: Tiles, x: float, y: float, width: float, height: float) -> None:
        """Draws the marks at the left of a tile and the times below it, as far as there is space for them."""
        every = max(1, math.ceil(LABEL_HEIGHT * len(self._marks) / height))
        for place, text in self._marks[::every]:
            va = {0.0: "top", 1.0: "baseline"}.get(place, "center")
            tiles.draw_text(text, x - LABEL_OFFSET, y + place * height, ha="right", va=va)
        last, below = str(self._length - 1), y + height + LABEL_HEIGHT - LABEL_OFFSET
        used = text_width("0") + GAP + text_width(last)
        if self._length > 1 and used <= width:
            tiles.draw_text("0", x, below, ha="left")
            tiles.draw_text(last, x + width, below, ha="right")
        if used + text_width("time") + GAP + abs(text_width(last) - text_width("0")) <= width:
            tiles.draw_text("time", x + width / 2, below)


def pictures_of(x: Array) -> Images | Signals:
    """Returns pictures of examples (n, channels, height, width) or (n, channels, length)."""
    signals = as_signals(x)
    return Signals(signals) if signals.ndim == 3 else Images(x)


def draw_band(
    tiles: Tiles, values: Array, x: float, y: float, width: float, height: float, **colours: Any
) -> AxesImage:
    """Draws values (rows, length) under the lines of a tile, as bands of colour; a long one by its largest values."""
    if values.shape[1] > 2 * BINS:
        low, high = (f.reduceat(values, _edges(values.shape[1]), axis=1) for f in (np.fmin, np.fmax))
        values = np.where(high >= -low, high, low)
    return tiles.draw_image(values, x, y, width, height, framed=False, alpha=OPACITY, **colours)


def _strokes(values: NDArray[np.float64]) -> tuple[Array, Array]:
    """Returns times and values (..., points) of lines; those of a long signal go up and down in each bin."""
    length = values.shape[-1]
    if length <= 2 * BINS:
        return np.arange(length) + 0.5, values
    edges = _edges(length)
    both = [f.reduceat(values, edges, axis=-1) for f in (np.fmin, np.fmax)]
    middles = (edges + np.append(edges[1:], length)) / 2
    return np.repeat(middles, 2), np.stack(both, axis=-1).reshape(*values.shape[:-1], -1)


def _edges(length: int) -> NDArray[np.int64]:
    """Returns the first element of each bin."""
    return np.arange(BINS, dtype=np.int64) * length // BINS
