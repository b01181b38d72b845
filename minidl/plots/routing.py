"""pool_routing: the winner of each window of a max-pool, example by example, and the route of the gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from minidl.engine.layer_paths import LayerPath, layer_paths, resolve_path
from minidl.layers.base import Layer
from minidl.losses import Loss
from minidl.losses import get as loss_named
from minidl.plots.figures import DIVERGING, SEQUENTIAL, TEXT_POINTS, count_label, wrap
from minidl.plots.image_grid import (
    GAP,
    LABEL_HEIGHT,
    LABEL_OFFSET,
    MARGIN,
    MIN_FIGURE_WIDTH,
    MIN_TILE,
    Tiles,
    color_scale,
    tile_area,
)
from minidl.plots.models import get_model, layer_title
from minidl.plots.panels import Panel
from minidl.plots.pixels import encode_labels
from minidl.plots.receptive_fields import POOL_CLASSES, PoolTrace, find_winners, trace_pool
from minidl.plots.windows import View, Windows, check_region, most_informative_region
from minidl.sequential import Sequential
from minidl.training.labeled_data import LabeledData
from minidl.utils.arrays import Array
from minidl.utils.validation import check_int

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

MIN_COLUMN, MAX_COLUMN = 0.66, 1.7  # inches: width of a column of maps
MIN_CELL = 0.13, 0.16  # inches: of a cell; if windows overlap
MIN_CELL_CROWDED = 0.05  # inches: of a cell in a small figure
ROW_GAP = 0.12  # inches between rows, and before the column of all examples
KEY_HEIGHT = 0.08  # inches: of a row of colours
MIN_MAP_HEIGHT = 0.75  # inches: below it, the headings are shortened


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
    """Draws the winner of each window of a max-pool and the route of the gradient.

    Each column is an example.

    - Top: the input, the windows without padding (blue; overlapping neighbours also purple) and the winner of each, its
      maximum (orange). = marks later pixels that tie with a winner; they receive no gradient. If windows overlap, a
      line connects the centre of each with its winner.
    - Middle: the gradient with respect to the output, one value per window.
    - Bottom: the gradient with respect to the input: the value of a window at its winner, the sum at a pixel that wins
      several windows, 0 elsewhere.

    Negative is blue, positive red. Colours are relative to the largest gradient of their column, which is given below
    it, since gradients of examples may differ by a factor of a thousand; so is the share of the channel's inputs with
    a nonzero gradient. The last column is over all examples: how often the gradient of each input was not 0, and the
    sum of the gradients. It shows the whole input, with a box around the region of the other columns.

    Parameters
    ----------
    model : Sequential, SequentialClassifier or SequentialRegressor
        The model, or a fitted estimator of one. It is not changed.
    X : array-like of shape `(n, *input_shape)`
        Examples, as in `fit`. The first `max_examples` are drawn, as many as fit, and sums over all of them.
    y : array-like of shape (n, ...)
        Targets, as in `fit`.
    layer : int, str or None, default None
        The index of a MaxPool2D or GlobalMaxPool2D, such as 3, or its path, such as "3.body.1"; None: the first.
    channel : int or None, default None
        The channel that is drawn; None: the one with the largest share of the gradient. The minima of a map do not
        count, since most of them are zeros of a ReLU before the pool, which stops their gradient.
    max_examples : int, default 4
        Largest number of examples.
    region : (int, int, int, int) or None, default None
        (top, left, height, width), in cells, of the pool's input; None: all of it, or the part of a large input with
        the largest share of the gradient.
    loss : str, loss or None, default None
        As for Trainer; None: that of a fitted estimator, softmax_cross_entropy for a Sequential.
    figure : Figure, SubFigure or None, default None
        An empty one to draw into; None: a new one, not registered with pyplot.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Raises
    ------
    TypeError, ValueError
        For a layer that is not a max-pool, an invalid channel or region, an X or y of another shape, a model that is
        not built, and layers in NumPy that cannot be copied or compute something else in training.
    RuntimeError
        If another thread trains the model.
    ImportError
        Without Matplotlib: pip install "minidl[plot]".

    Notes
    -----
    Gradients are those of each example's own loss, without averaging. Forward and backward are the model's own, on
    its layers in inference mode: batch norm uses its running statistics, dropout and augmentation do nothing. NumPy
    layers after the pool, or in a container with it, are copied, and see one example at a time. As their backward
    follows a training forward, they have to compute the same in inference.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential, plots
    >>> from minidl.layers import Dense, Flatten, MaxPool2D
    >>> model = Sequential([MaxPool2D(2), Flatten(), Dense(3)], input_shape=(1, 4, 4))
    >>> figure = plots.pool_routing(model, np.arange(32).reshape(2, 1, 4, 4), [0, 1])
    >>> figure.axes[0].get_title(loc="left")
    '0 MaxPool2D(pool_size=2): channel 0 of 1, 2 examples'
    """
    network = get_model(model, X)
    name, path = _find_pool(network, layer)
    pool, max_examples, windows = path[-1], check_int("max_examples", max_examples), Windows.from_pool(path[-1])
    channels = pool.in_shape[0]
    if channel is not None and check_int("channel", channel, minimum=0) >= channels:
        raise ValueError(f"channel: expected a number from 0 to {channels - 1}, got {channel}")
    checked_region = None if region is None else check_region(region, windows)
    data, loss = _prepare_data(model, network, X, y, loss)
    width, height = tile_area(figure)
    n = min(max_examples, len(data.examples), max(1, int((width - ROW_GAP - GAP) / (MIN_COLUMN + GAP)) - 1))
    trace = trace_pool(network, path, int(name.partition(".")[0]), data, loss, n)
    relevance = trace.relevance().sum(axis=0)
    if channel is None:
        channel = int(relevance.sum(axis=(1, 2)).argmax())
    page = PageLayout(n, trace.n_examples, width, height, windows.max_overlap)
    view = View(windows, checked_region or most_informative_region(windows, relevance[channel], page.cells))
    title = f"{layer_title(name, pool)}: channel {channel} of {channels}, {count_label(trace.n_examples, 'example', n)}"
    if not view.is_whole:
        (top, left, map_height, wide), (h, w) = view.region, windows.shape
        title += f"; rows {top} to {top + map_height - 1} and columns {left} to {left + wide - 1} of {h} x {w}"
    return _draw(figure, title, page, view, trace, pool, channel)


def _find_pool(network: Sequential, layer: int | str | None) -> tuple[str, LayerPath]:
    """Returns the name of a max-pool and the path to it; raises TypeError or ValueError if the layer is another."""
    paths = layer_paths(network.layers)
    if layer is None:
        name = next((name for name, path in paths.items() if isinstance(path[-1], POOL_CLASSES)), None)
        if name is None:
            raise ValueError("layer: expected a model with a MaxPool2D or GlobalMaxPool2D, got one without")
        return name, paths[name]
    name = resolve_path(paths, layer)
    if not isinstance(paths[name][-1], POOL_CLASSES):
        raise ValueError(f"layer: expected a MaxPool2D or GlobalMaxPool2D, got {layer_title(name, paths[name][-1])}")
    return name, paths[name]


def _prepare_data(
    model: Any, network: Sequential, X: ArrayLike, y: ArrayLike, loss: str | Loss | None
) -> tuple[LabeledData, Loss]:
    """Returns X and y as the loss takes them, and the loss; raises TypeError or ValueError for invalid ones."""
    if loss is None:
        loss = getattr(getattr(model, "trainer_", None), "loss", "softmax_cross_entropy")
    if hasattr(model, "classes_") and np.ndim(y) == 1:
        y = encode_labels(y, np.asarray(model.classes_), np.shape(y)[0])
    loss = loss_named(loss)
    data = LabeledData.from_arrays(network, loss, X, y)
    if not len(data.examples):
        raise ValueError("X: expected at least one example, got none")
    return data, loss


class PageLayout:
    """Layout of three rows of maps with a heading each: n columns for examples and one for sums over all."""

    def __init__(self, n: int, count: int, width: float, height: float | None, overlap: int) -> None:
        self.n, self.min_cell, self.columns = n, MIN_CELL[overlap > 1], n + (count > 1)
        self.map_width = min(MAX_COLUMN, (width - ROW_GAP - GAP) / self.columns - GAP)
        outlines = ("windows (blue)", "windows (blue, purple)", "one of the windows (blue)")
        outlined = outlines[min(overlap, 3) - 1]
        lines = "; lines connect the centre of each window with its maximum" * (overlap > 1)
        texts = (
            f"x, the input: {outlined}, the maximum of each window (orange), later pixels that tie with it (=){lines}",
            "dy, the gradient w.r.t. the output: one value per window; blue is negative, red positive",
            "dx, the gradient w.r.t. the input: dy at the maxima"
            + ", summed over the windows that share one" * (overlap > 1),
        )
        short_texts = ("x: windows and maxima", "dy: w.r.t. output", "dx: w.r.t. input")
        self._set_texts(texts, width, height)
        if height is not None and self.row_height < MIN_MAP_HEIGHT:
            self._set_texts(short_texts, width, height)
            self.min_cell = MIN_CELL_CROWDED

    def _set_texts(self, texts: Sequence[str], width: float, height: float | None) -> None:
        """Sets the headings of the rows, and the height that remains for each row of maps."""
        # Hinting may widen text by 4%. The last column has labels of its own beside all headings but the first.
        width_all = 0.96 * max(self.column_left(self.columns) - GAP, min(width, MIN_FIGURE_WIDTH - MARGIN))
        width_examples = 0.96 * (self.column_left(self.n) - ROW_GAP - GAP) if self.columns > self.n else width_all
        first, *others = texts
        self.texts = [
            wrap(first, width_all, TEXT_POINTS),
            *(wrap(text, width_examples, TEXT_POINTS) for text in others),
        ]
        self.row_height = self.map_width if height is None else max((height - self.row_tops(0.0)[-1]) / 3, MIN_TILE)

    @property
    def cells(self) -> tuple[float, float]:
        """The number of cells, vertically and horizontally, up to which a map is legible."""
        return self.row_height / self.min_cell, self.map_width / self.min_cell

    def column_left(self, column: int) -> float:
        """Returns the left edge of a column."""
        return column * (self.map_width + GAP) + ROW_GAP * (column >= self.n)

    def row_tops(self, map_height: float) -> list[float]:
        """Returns the upper edges of the three rows of maps, and the lower end of the page."""
        row_tops, y = [], 0.0
        for row, text in enumerate(self.texts):
            row_tops.append(y + LABEL_HEIGHT * (text.count("\n") + 1) + LABEL_HEIGHT * (row == 0))
            y = row_tops[-1] + map_height + ROW_GAP
        return [*row_tops, y - ROW_GAP + 2 * LABEL_HEIGHT + LABEL_OFFSET]


def _draw(
    figure: Figure | SubFigure | None,
    title: str,
    page: PageLayout,
    view: View,
    trace: PoolTrace,
    pool: Layer,
    channel: int,
) -> Figure:
    """Draws a column for each example, and one for sums over all."""
    _, _, rows, columns = view.region
    map_height = min(page.map_width / columns, page.row_height / rows) * rows
    *row_tops, end = page.row_tops(map_height)
    tiles = Tiles(figure, page.column_left(page.columns), end, title)
    for row, text in enumerate(page.texts):
        tiles.draw_heading(text, row_tops[row] - LABEL_HEIGHT * (row == 0))
    inputs = trace.x[:, channel]
    finite = inputs[np.isfinite(inputs)]
    grey = {"cmap": "gray", "vmin": finite.min(initial=0), "vmax": finite.max(initial=0)}
    for i in range(page.n):
        top, middle, bottom = (Panel(tiles, view, page.column_left(i), y, page.map_width, map_height) for y in row_tops)
        dx, dy = trace.dx[i, channel], trace.dy[i, channel]
        cells = find_winners(pool, inputs[i], view)
        gradients = np.concatenate([dx.ravel(), dy.ravel()])
        scale = color_scale(gradients, signed=True)
        top.draw_image(inputs[i], grey)
        top.draw_windows()
        if view.windows.max_overlap > 1:
            top.draw_lines_to_winners(cells)
        top.draw_ties(inputs[i], cells)
        top.draw_winners(cells)
        middle.draw_outputs(dy, scale)
        bottom.draw_image(dx, scale)
        if view.windows.max_overlap == 1:
            bottom.draw_grid()
        bottom.draw_winners(cells)
        _annotate(top, f"example {i}")
        _annotate(bottom, None, _format_gradients(gradients, dx))
    if trace.n_examples > 1:
        _draw_sums(tiles, page, view, trace, channel, row_tops, map_height)
    return tiles.finish()


def _draw_sums(
    tiles: Tiles, page: PageLayout, view: View, trace: PoolTrace, channel: int, row_tops: list[float], map_height: float
) -> None:
    """Draws the last column: how often the gradient of each input was not 0, the sum of all, and the colours."""
    counts, sums, left = trace.dx_nonzero[channel], trace.dx_sum[channel], page.column_left(page.n)
    whole_view = View(view.windows, (0, 0, *view.windows.shape))
    top, bottom = (Panel(tiles, whole_view, left, y, page.map_width, map_height) for y in (row_tops[0], row_tops[2]))
    largest = max(int(counts.max()), 1)
    top.draw_image(counts, {"cmap": SEQUENTIAL, "vmin": 0, "vmax": largest})
    bottom.draw_image(sums, color_scale(sums, signed=True))
    for panel in (top, bottom) if not view.is_whole else ():
        panel.draw_region(view.region)
    _annotate(top, f"all {trace.n_examples}", "↑ dx ≠ 0")
    _annotate(bottom, "↓ sum of dx", _format_gradients(sums, counts))
    y = top.y + top.height + LABEL_OFFSET + LABEL_HEIGHT
    _draw_key(tiles, left, y, page.map_width, SEQUENTIAL, "0", f"{largest}×")
    height = KEY_HEIGHT + 2 * LABEL_HEIGHT
    y = max(y + KEY_HEIGHT + LABEL_HEIGHT + LABEL_OFFSET, row_tops[1] + (map_height - height) / 2)
    if y + height + LABEL_HEIGHT <= bottom.y:
        tiles.draw_text("dy, dx", left + page.map_width / 2, y + LABEL_HEIGHT - LABEL_OFFSET)
        _draw_key(tiles, left, y + LABEL_HEIGHT, page.map_width, DIVERGING, "−max", "+max")


def _draw_key(tiles: Tiles, x: float, y: float, width: float, colors: str, low: str, high: str) -> None:
    """Draws the colours of a map in a row, with text below its ends."""
    tiles.draw_image(np.linspace(0, 1, 64)[np.newaxis], x, y, width, KEY_HEIGHT, cmap=colors)
    for text, edge, align in ((low, x, "left"), (high, x + width, "right")):
        tiles.draw_text(text, edge, y + KEY_HEIGHT + LABEL_OFFSET, ha=align, va="top")


def _annotate(panel: Panel, above: str | None, below: str | None = None) -> None:
    """Writes text above and below a panel."""
    middle = panel.x + panel.width / 2
    if above is not None:
        panel.tiles.draw_text(above, middle, panel.y - LABEL_OFFSET)
    if below is not None:
        panel.tiles.draw_text(below, middle, panel.y + panel.height + LABEL_OFFSET, va="top")


def _format_gradients(gradients: Array, dx: Array) -> str:
    """Returns the largest absolute gradient, and the share of inputs with a nonzero one, as text."""
    limit = np.abs(gradients).max()
    largest = f"max {limit:.2g}" if np.isfinite(limit) else "not finite"
    share = float((dx != 0).mean())
    percent = "<1%" if 0 < share < 0.01 else ">99%" if 0.99 < share < 1 else f"{share:.0%}"
    return f"{largest}\n{percent} nonzero"
