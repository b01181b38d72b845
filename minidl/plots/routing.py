"""pool_routing: the winner of each window of a max-pool, example by example, and the way of the gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from minidl.engine.layer_paths import LayerPath, layer_paths, resolve_path
from minidl.layers.base import Layer
from minidl.losses import Loss
from minidl.losses import get as loss_named
from minidl.plots.figures import SMALL, count_label, wrap
from minidl.plots.image_grid import GAP, LABEL, MARGIN, MIN_TILE, MIN_WIDTH, RISE, Tiles, color_scale, tile_area
from minidl.plots.models import layer_title, model_in
from minidl.plots.panels import Panel
from minidl.plots.predictions import class_indices
from minidl.plots.receptive_fields import POOLS, PoolTrace, trace_pool, winners
from minidl.plots.windows import View, Windows, check_region, most_informative_region
from minidl.sequential import Sequential
from minidl.training.labeled_data import LabeledData
from minidl.utils.arrays import Array
from minidl.utils.validation import check_int

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

MIN_MAP_WIDTH, MAX_MAP = 0.66, 1.7  # inches: a column of maps
CELL = 0.13, 0.16  # inches: the preferred least width of a cell; with overlapping windows
MIN_CELL = 0.05  # inches: the least width of a cell in a small figure
SPACE = 0.12  # inches between rows, and before the column of all examples
MIN_MAP = 0.75  # inches: the least height of maps below long texts


def pool_routing(
    model: object,
    X: ArrayLike,
    y: ArrayLike,
    layer: int | str | None = None,
    channel: int | None = None,
    max_examples: int = 4,
    region: Sequence[int] | None = None,
    loss: str | Loss | None = None,
    figure: Figure | SubFigure | None = None,
) -> Figure:
    """Plots which pixel wins in each window of a max-pool, and where the gradient goes; returns the figure.

    model: a Sequential, or a fitted estimator of one.
    X, y: as in `fit`; the first `max_examples` are drawn, as far as they fit, and the sum over all.
    layer: the index of a MaxPool2D or GlobalMaxPool2D, such as 3, or its name, such as "3.body.1"; None: the first.
    channel: the channel to draw; None: the one with the largest gradients, without those at the minimum of their map,
        which the ReLU before most pools blocks.
    region: (top, left, height, width) in cells of the part of the pool's input to draw; None: all of it, or the part of
        a large one with the largest gradients.
    loss: as in Trainer; None: that of the estimator, or softmax_cross_entropy for a Sequential.
    figure: an empty Figure or SubFigure to draw into; None: a new one, not registered in pyplot.

    Each column is an example. Top: the input, its windows (blue; overlapping neighbours also purple; without padding)
    and the winner of each window (orange); = marks pixels of the same value that come later and get no gradient. If
    windows overlap, a line connects the centre of each with its winner. Middle: the gradient w.r.t. the output, one
    value per window. Bottom: the gradient w.r.t. the input, which is these values at the winners (summed if a pixel
    wins several windows) and 0 elsewhere. Blue is below 0, red above, on one scale per example, since gradients of
    examples may differ by a factor of a thousand. "Reached" is the fraction of the channel's inputs with a gradient
    other than 0.
    The last column is for all examples: the number of examples that reach each input, and the sum of the gradients. If
    the other columns show a region, this one shows the whole input with a box around the region.

    Gradients are those of each example's own loss, without division. Forward and backward are the model's own, on
    copies
    of its layers, in inference mode: batch norm uses running statistics, dropout and augmentation are off. Layers in
    NumPy after the pool, or in a container with it, run in training mode, one example at a time. The model is
    unchanged.

    Raises TypeError or ValueError for a layer that is not a max-pool, an unknown channel or region, X and y of another
    shape, a model that is not built or layers that cannot be copied; RuntimeError while another thread trains it.
    """
    net = model_in(model)
    name, way = _pool(net, layer)
    pool, max_examples, windows = way[-1], check_int("max_examples", max_examples), Windows.of(way[-1])
    channels = pool.in_shape[0]
    if channel is not None and check_int("channel", channel, minimum=0) >= channels:
        raise ValueError(f"channel: expected a number from 0 to {channels - 1}, got {channel}")
    asked = None if region is None else check_region(region, windows)
    data, loss = _examples(model, net, X, y, loss)
    width, height = tile_area(figure)
    n = min(max_examples, len(data.examples), max(1, int((width - SPACE - GAP) / (MIN_MAP_WIDTH + GAP)) - 1))
    trace = trace_pool(net, way, int(name.partition(".")[0]), data, loss, n)
    there = trace.saliency().sum(axis=0)
    if channel is None:
        channel = int(there.sum(axis=(1, 2)).argmax())
    page = Page(n, trace.count, width, height, windows.layers)
    view = View(windows, asked or most_informative_region(windows, there[channel], page.cells))
    title = f"{layer_title(name, pool)}: channel {channel} of {channels}, {count_label(trace.count, 'example', n)}"
    if not view.whole:
        (top, left, high, wide), (h, w) = view.region, windows.shape
        title += f"; rows {top} to {top + high - 1} and columns {left} to {left + wide - 1} of {h} x {w}"
    return _draw(figure, title, page, view, trace, pool, channel)


def _pool(net: Sequential, layer: int | str | None) -> tuple[str, LayerPath]:
    """Returns the name of a max-pool and the path to it. Raises TypeError or ValueError for another layer."""
    found = layer_paths(net.layers)
    if layer is None:
        name = next((name for name, way in found.items() if isinstance(way[-1], POOLS)), None)
        if name is None:
            raise ValueError("layer: expected a model with a MaxPool2D or GlobalMaxPool2D, got one without")
        return name, found[name]
    name = resolve_path(found, layer)
    if not isinstance(found[name][-1], POOLS):
        raise ValueError(f"layer: expected a MaxPool2D or GlobalMaxPool2D, got {layer_title(name, found[name][-1])}")
    return name, found[name]


def _examples(
    model: Any, net: Sequential, X: ArrayLike, y: ArrayLike, loss: str | Loss | None
) -> tuple[LabeledData, Loss]:
    """Returns X and y in the form of the loss, and the loss. Raises TypeError or ValueError."""
    if loss is None:
        loss = getattr(getattr(model, "trainer_", None), "loss", "softmax_cross_entropy")
    if hasattr(model, "classes_") and np.ndim(y) == 1:
        y = class_indices(y, np.asarray(model.classes_), np.shape(y)[0])
    loss = loss_named(loss)
    data = LabeledData.from_arrays(net, loss, X, y)
    if not len(data.examples):
        raise ValueError("X: expected at least one example, got none")
    return data, loss


class Page:
    """The layout of three rows of maps with text above each: n columns for examples and one for all of them."""

    def __init__(self, n: int, count: int, width: float, height: float | None, layers: int) -> None:
        self.n, self.min_cell, self.columns = n, CELL[layers > 1], n + (count > 1)
        self.map_width = min(MAX_MAP, (width - SPACE - GAP) / self.columns - GAP)  # width of a map
        blue = ("the windows (blue)", "the windows (blue, purple)", "one of the windows (blue)")[min(layers, 3) - 1]
        leads = "; lines connect the centre of each window with its winner" * (layers > 1)
        long = (
            f"x, the input: {blue}, the winner of each (orange), later pixels of the same value (=){leads}",
            "dy, the gradient w.r.t. the output: one value per window; blue is below 0, red above",
            "dx, the gradient w.r.t. the input: dy at the winners" + ", summed for winners of several" * (layers > 1),
        )
        brief = ("x: windows and winners", "dy: w.r.t. output", "dx: w.r.t. input")
        self._set_texts(long, width, height)
        if height is not None and self.map_height < MIN_MAP:
            self._set_texts(brief, width, height)
            self.min_cell = MIN_CELL

    def _set_texts(self, texts: Sequence[str], width: float, height: float | None) -> None:
        """Sets the texts above the rows; the rest of the height is for maps."""
        whole = 0.96 * max(self.left(self.columns) - GAP, min(width, MIN_WIDTH - MARGIN))  # hinting may widen it
        beside = 0.96 * (self.left(self.n) - SPACE - GAP) if self.columns > self.n else whole  # the last column's text
        first, *others = texts
        self.texts = [wrap(first, whole, SMALL), *(wrap(text, beside, SMALL) for text in others)]
        self.map_height = self.map_width if height is None else max((height - self.tops(0.0)[-1]) / 3, MIN_TILE)

    @property
    def cells(self) -> tuple[float, float]:
        """The largest numbers of cells of a readable map, vertical and horizontal."""
        return self.map_height / self.min_cell, self.map_width / self.min_cell

    def left(self, column: int) -> float:
        """Returns the left edge of a column."""
        return column * (self.map_width + GAP) + SPACE * (column >= self.n)

    def tops(self, high: float) -> list[float]:
        """Returns the upper edges of three rows of maps of this height, and the lower end."""
        tops, y = [], 0.0
        for row, text in enumerate(self.texts):
            tops.append(y + LABEL * (text.count("\n") + 1) + LABEL * (row == 0))
            y = tops[-1] + high + SPACE
        return [*tops, y - SPACE + 2 * LABEL + RISE]


def _draw(
    figure: Figure | SubFigure | None, title: str, page: Page, view: View, trace: PoolTrace, pool: Layer, channel: int
) -> Figure:
    """Draws a column for each example, and one for all of them."""
    _, _, rows, columns = view.region
    high = min(page.map_width / columns, page.map_height / rows) * rows
    *tops, end = page.tops(high)
    tiles = Tiles(figure, page.left(page.columns), end, title)
    for row, text in enumerate(page.texts):
        tiles.heading(text, tops[row] - LABEL * (row == 0))
    inputs = trace.x[:, channel]
    finite = inputs[np.isfinite(inputs)]
    grey = {"cmap": "gray", "vmin": finite.min(initial=0), "vmax": finite.max(initial=0)}
    for i in range(page.n):
        top, middle, low = (Panel(tiles, view, page.left(i), y, page.map_width, high) for y in tops)
        dx, dy = trace.dx[i, channel], trace.dy[i, channel]
        cells = winners(pool, inputs[i], view)
        both = np.concatenate([dx.ravel(), dy.ravel()])
        scale = color_scale(both, signed=True)
        top.image(inputs[i], grey)
        top.outlines()
        if view.windows.layers > 1:
            top.winner_lines(cells)
        top.ties(inputs[i], cells)
        top.frames(cells)
        middle.outputs(dy, scale)
        low.image(dx, scale)
        if view.windows.layers == 1:
            low.grid()
        low.frames(cells)
        _add_text(top, f"example {i}")
        _add_text(low, None, _summary(both, dx))
    if trace.count > 1:
        _draw_all(tiles, page, view, trace, channel, tops, high)
    return tiles.finish()


def _draw_all(
    tiles: Tiles, page: Page, view: View, trace: PoolTrace, channel: int, tops: list[float], high: float
) -> None:
    """Draws the last column: the number of examples that reach each input, and the sum of all gradients."""
    n_reached, sums = trace.n_reached[channel], trace.total[channel]
    scale, often = color_scale(sums, signed=True), {"cmap": "Oranges", "vmin": 0, "vmax": max(int(n_reached.max()), 1)}
    everything = View(view.windows, (0, 0, *view.windows.shape))
    top, low = (Panel(tiles, everything, page.left(page.n), y, page.map_width, high) for y in (tops[0], tops[2]))
    top.image(n_reached, often)
    low.image(sums, scale)
    for panel in (top, low) if not view.whole else ():
        panel.region(view.region)
    _add_text(top, f"all {trace.count}", f"↑ times reached:\nup to {n_reached.max()}")
    _add_text(low, "↓ sum of dx", _summary(sums, n_reached))


def _add_text(panel: Panel, above: str | None, below: str | None = None) -> None:
    """Draws text at the edges of a panel."""
    middle = panel.x + panel.width / 2
    if above is not None:
        panel.tiles.text(above, middle, panel.y - RISE)
    if below is not None:
        panel.tiles.text(below, middle, panel.y + panel.height + RISE, va="top")


def _summary(gradients: Array, reached: Array) -> str:
    """Returns the largest gradient, and the fraction of inputs that were reached."""
    most = np.abs(gradients).max()
    largest = f"±{most:.2g}" if np.isfinite(most) else "not finite"
    share = float((reached != 0).mean())
    percent = "<1%" if 0 < share < 0.01 else ">99%" if 0.99 < share < 1 else f"{share:.0%}"
    return f"{largest}\n{percent} reached"
