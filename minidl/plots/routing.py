"""pool_routing: which pixel wins in each window of a max-pool, example by example, and where the gradient goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from minidl.engine.layer_paths import LayerPath, layer_paths, resolve_path
from minidl.layers.base import Layer
from minidl.losses import Loss
from minidl.losses import get as loss_named
from minidl.plots.figures import SMALL, counted, wrapped
from minidl.plots.image_grid import GAP, LABEL, LEAST, MARGIN, NARROWEST, RISE, Tiles, area, colours
from minidl.plots.models import called, model_in
from minidl.plots.panels import Panel
from minidl.plots.predictions import class_numbers
from minidl.plots.receptive_fields import POOLS, Routes, routes, winners
from minidl.plots.windows import View, Windows, asked_for, telling
from minidl.sequential import Sequential
from minidl.training.labeled_data import LabeledData
from minidl.utils.arrays import Array
from minidl.utils.validation import check_int

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

NARROW, WIDE = 0.66, 1.7  # inches: a column of maps
CELL = 0.13, 0.16  # inches that a cell takes at least if it is up to us; where windows overlap
SMALLEST = 0.05  # inches that it takes where there is no room for more
SPACE = 0.12  # inches between rows, and between the examples and what comes of all of them
ENOUGH = 0.75  # inches: of maps that leave room for more than a few words


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
    """Which pixel wins in each window of a max-pool, in several examples, and where the gradient goes; a figure.

    model: a Sequential, or a fitted estimator of one.
    X, y: as in `fit`; the first `max_examples` are drawn, as many as fit, and what comes of them together.
    layer: the place of a MaxPool2D or GlobalMaxPool2D, such as 3, or its name, such as "3.body.1"; None: the first.
    channel: which one is drawn; None: that to which most of the gradient comes, but for inputs as small as any there,
        since in front of most pools is a ReLU, through which nothing goes back to those that it has set to 0.
    region: (top, left, height, width), in cells, of the part of the pool's input that is drawn; None: all of it, or of
        a large one the part to which most of that comes.
    loss: as Trainer takes it; None: an estimator's own, of a Sequential softmax_cross_entropy.
    figure: an empty Figure or SubFigure to draw into; None: a new one, which pyplot does not know.

    A column is an example. Above: what goes into the pool, its windows (blue; neighbours that overlap also purple;
    padding left out), and the pixel that wins in each (orange); = marks pixels as large that come later: they get none.
    Where windows overlap, a line leads from the middle of each to its winner. In the middle: the gradient of the pool's
    output, one number for each window. Below: the gradient of the pool's input, which is those numbers at the pixels
    that won, their sum where one has won several windows, and 0 elsewhere. Blue is below 0, red above, on a scale of
    each example's own, since the gradient of one may be a thousandth of another's. "Reached" is the share of the
    channel's inputs to which anything but 0 came. The last column is of all examples: how often a gradient came to each
    input, and the sum of the gradients, with the share that was reached in any example. Where the others show a region,
    this one shows all, with a box around it.

    A gradient is that of the loss of its example by itself, not divided by anything. Forward and backward are the
    model's own, on copies of its layers, as in inference: batch norm takes its running statistics, dropout drops
    nothing, random crops, flips and shifts stay where they are. Layers in NumPy behind the pool, or in a container with
    it, compute as in training, one example at a time. Nothing in the model changes.

    Raises TypeError or ValueError, saying what was expected, for a layer that is no max-pool, a channel or region that
    there is not, X and y that do not fit, a model that is not built or layers that cannot be copied; RuntimeError while
    another thread trains it.
    """
    net = model_in(model)
    name, way = _pool(net, layer)
    pool, max_examples, windows = way[-1], check_int("max_examples", max_examples), Windows.of(way[-1])
    channels = pool.in_shape[0]
    if channel is not None and check_int("channel", channel, least=0) >= channels:
        raise ValueError(f"channel: expected a number from 0 to {channels - 1}, got {channel}")
    asked = None if region is None else asked_for(region, windows)
    data, loss = _examples(model, net, X, y, loss)
    width, height = area(figure)
    n = min(max_examples, len(data.examples), max(1, int((width - SPACE - GAP) / (NARROW + GAP)) - 1))
    seen = routes(net, way, int(name.partition(".")[0]), data, loss, n)
    there = seen.telling().sum(axis=0)
    if channel is None:
        channel = int(there.sum(axis=(1, 2)).argmax())
    page = Page(n, seen.count, width, height, windows.layers)
    view = View(windows, asked or telling(windows, there[channel], page.cells))
    title = f"{called(name, pool)}: channel {channel} of {channels}, {counted(seen.count, 'example', n)}"
    if not view.whole:
        (top, left, high, wide), (h, w) = view.region, windows.shape
        title += f"; rows {top} to {top + high - 1} and columns {left} to {left + wide - 1} of {h} x {w}"
    return _drawn(figure, title, page, view, seen, pool, channel)


def _pool(net: Sequential, layer: int | str | None) -> tuple[str, LayerPath]:
    """The name of a max-pool and the way to it; raises TypeError or ValueError if there is none at that place."""
    found = layer_paths(net.layers)
    if layer is None:
        name = next((name for name, way in found.items() if isinstance(way[-1], POOLS)), None)
        if name is None:
            raise ValueError("layer: expected a model with a MaxPool2D or GlobalMaxPool2D, got one without")
        return name, found[name]
    name = resolve_path(found, layer)
    if not isinstance(found[name][-1], POOLS):
        raise ValueError(f"layer: expected a MaxPool2D or GlobalMaxPool2D, got {called(name, found[name][-1])}")
    return name, found[name]


def _examples(
    model: Any, net: Sequential, X: ArrayLike, y: ArrayLike, loss: str | Loss | None
) -> tuple[LabeledData, Loss]:
    """X and y as the loss takes them, and the loss; raises TypeError or ValueError for what does not fit."""
    if loss is None:
        loss = getattr(getattr(model, "trainer_", None), "loss", "softmax_cross_entropy")
    if hasattr(model, "classes_") and np.ndim(y) == 1:
        y = class_numbers(y, np.asarray(model.classes_), np.shape(y)[0])
    loss = loss_named(loss)
    data = LabeledData.from_arrays(net, loss, X, y)
    if not len(data.examples):
        raise ValueError("X: expected at least one example, got none")
    return data, loss


class Page:
    """How three rows of maps lie on a page, with text above each: n columns for examples and one for all of them."""

    def __init__(self, n: int, count: int, width: float, height: float | None, layers: int) -> None:
        self.n, self.least, self.columns = n, CELL[layers > 1], n + (count > 1)
        self.side = min(WIDE, (width - SPACE - GAP) / self.columns - GAP)  # room for a map
        blue = ("the windows (blue)", "the windows (blue, purple)", "one of the windows (blue)")[min(layers, 3) - 1]
        leads = "; lines lead from the middle of each window to its winner" * (layers > 1)
        told = (
            f"x, the input: {blue}, the pixel that wins in each (orange), those as large that come later (=){leads}",
            "dy, the gradient of the output: one number for each window; blue is below 0, red above",
            "dx, the gradient of x: dy at the pixels that won" + ", and its sum where one won several" * (layers > 1),
        )
        brief = ("x: windows and winners", "dy: of the output", "dx: of the input")
        self._take(told, width, height)
        if height is not None and self.tall < ENOUGH:
            self._take(brief, width, height)
            self.least = SMALLEST

    def _take(self, texts: Sequence[str], width: float, height: float | None) -> None:
        """Texts above the rows; what is left is for maps."""
        whole = 0.96 * max(self.left(self.columns) - GAP, min(width, NARROWEST - MARGIN))  # hinting may make it wider
        beside = 0.96 * (self.left(self.n) - SPACE - GAP) if self.columns > self.n else whole  # the last column's text
        first, *others = texts
        self.texts = [wrapped(first, whole, SMALL), *(wrapped(text, beside, SMALL) for text in others)]
        self.tall = self.side if height is None else max((height - self.tops(0.0)[-1]) / 3, LEAST)

    @property
    def cells(self) -> tuple[float, float]:
        """How many cells a map may have, vertically and horizontally, to be read."""
        return self.tall / self.least, self.side / self.least

    def left(self, column: int) -> float:
        """Where a column begins."""
        return column * (self.side + GAP) + SPACE * (column >= self.n)

    def tops(self, high: float) -> list[float]:
        """Where the three rows begin, with maps of that height, and where all of it ends."""
        tops, y = [], 0.0
        for row, text in enumerate(self.texts):
            tops.append(y + LABEL * (text.count("\n") + 1) + LABEL * (row == 0))
            y = tops[-1] + high + SPACE
        return [*tops, y - SPACE + 2 * LABEL + RISE]


def _drawn(
    figure: Figure | SubFigure | None, title: str, page: Page, view: View, seen: Routes, pool: Layer, channel: int
) -> Figure:
    """A column for each example, and one for all of them."""
    _, _, rows, columns = view.region
    high = min(page.side / columns, page.tall / rows) * rows
    *tops, end = page.tops(high)
    tiles = Tiles(figure, page.left(page.columns), end, title)
    for row, text in enumerate(page.texts):
        tiles.heading(text, tops[row] - LABEL * (row == 0))
    inputs = seen.x[:, channel]
    finite = inputs[np.isfinite(inputs)]
    grey = {"cmap": "gray", "vmin": finite.min(initial=0), "vmax": finite.max(initial=0)}
    for i in range(page.n):
        top, middle, low = (Panel(tiles, view, page.left(i), y, page.side, high) for y in tops)
        dx, dy = seen.dx[i, channel], seen.dy[i, channel]
        cells = winners(pool, inputs[i], view)
        both = np.concatenate([dx.ravel(), dy.ravel()])
        scale = colours(both, signed=True)
        top.image(inputs[i], grey)
        top.outlines()
        if view.windows.layers > 1:
            top.leads(cells)
        top.ties(inputs[i], cells)
        top.frames(cells)
        middle.outputs(dy, scale)
        low.image(dx, scale)
        if view.windows.layers == 1:
            low.grid()
        low.frames(cells)
        _say(top, f"example {i}")
        _say(low, None, _told(both, dx))
    if seen.count > 1:
        _draw_all(tiles, page, view, seen, channel, tops, high)
    return tiles.finish()


def _draw_all(tiles: Tiles, page: Page, view: View, seen: Routes, channel: int, tops: list[float], high: float) -> None:
    """The last column: how often a gradient came to each input, and the sum of all gradients."""
    times, sums = seen.times[channel], seen.total[channel]
    scale, often = colours(sums, signed=True), {"cmap": "Oranges", "vmin": 0, "vmax": max(int(times.max()), 1)}
    everything = View(view.windows, (0, 0, *view.windows.shape))
    top, low = (Panel(tiles, everything, page.left(page.n), y, page.side, high) for y in (tops[0], tops[2]))
    top.image(times, often)
    low.image(sums, scale)
    for panel in (top, low) if not view.whole else ():
        panel.region(view.region)
    _say(top, f"all {seen.count}", f"↑ how often:\nup to {times.max()}")
    _say(low, "↓ sum of dx", _told(sums, times))


def _say(panel: Panel, above: str | None, below: str | None = None) -> None:
    """Text at the edges of a panel."""
    middle = panel.x + panel.width / 2
    if above is not None:
        panel.tiles.text(above, middle, panel.y - RISE)
    if below is not None:
        panel.tiles.text(below, middle, panel.y + panel.height + RISE, va="top")


def _told(gradients: Array, reached: Array) -> str:
    """The largest of some gradients, and the share of inputs that were reached: not 0."""
    most = np.abs(gradients).max()
    largest = f"±{most:.2g}" if np.isfinite(most) else "not finite"
    share = float((reached != 0).mean())
    percent = "<1%" if 0 < share < 0.01 else ">99%" if 0.99 < share < 1 else f"{share:.0%}"
    return f"{largest}\n{percent} reached"
