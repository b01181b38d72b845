"""feature_maps: the outputs of a layer for images or signals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from minidl.engine.layer_paths import layer_paths, resolve_path
from minidl.plots.figures import count_label
from minidl.plots.image_grid import (
    DEFAULT_HEIGHT,
    GAP,
    LABEL_HEIGHT,
    LABEL_OFFSET,
    MAX_HEIGHT,
    MAX_TILE,
    MIN_TILE,
    Tiles,
    color_scale,
    fit_grid,
    tile_area,
    tile_ratio,
)
from minidl.plots.models import compute_outputs, find_first_convolution, get_model, layer_title
from minidl.plots.pictures import MIN_RATIO, Signals, as_signals, draw_band, pictures_of
from minidl.utils.arrays import Array
from minidl.utils.data import ArraySource
from minidl.utils.validation import check_int

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

MIN_SIGNAL, MAX_SIGNAL = 0.6, 1.4  # inches: width of a tile of signals, the smaller in a new figure


def feature_maps(
    model: object,
    X: ArrayLike,
    layer: int | str | None = None,
    max_examples: int = 4,
    figure: Figure | SubFigure | None = None,
) -> Figure:
    """Draws examples, and each channel of a layer's outputs for them: as images, or signals as lines over time.

    A line stands before a band of its values in colour. All maps share one colour scale. If there are negative values,
    0 is white, negative blue and positive red; else 0 is white and large values are dark blue. If there are too many
    channels, the first ones are drawn, and the title says so.

    Parameters
    ----------
    model : Sequential, SequentialClassifier or SequentialRegressor
        The model, or a fitted estimator of one.
    X : array-like of shape `(n, *input_shape)`
        Examples, or 2-D rows of the same size. The first `max_examples` are drawn.
    layer : int, str or None, default None
        An index, such as 2, or a path, such as "3.body.0"; None: the first convolution. The layers up to it run in
        inference mode.
    max_examples : int, default 4
        Largest number of examples.
    figure : Figure, SubFigure or None, default None
        An empty one to draw into; None: a new one, not registered with pyplot.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Raises
    ------
    TypeError, ValueError
        For a layer whose outputs are neither images nor signals, an X of another shape, and a model that is not built.
    RuntimeError
        If another thread trains the model.
    ImportError
        Without Matplotlib: pip install "minidl[plot]".

    Examples
    --------
    Two examples, each with its four channels:

    >>> import numpy as np
    >>> from minidl import Sequential, plots
    >>> from minidl.layers import Conv2D
    >>> figure = plots.feature_maps(Sequential([Conv2D(4, 3)], input_shape=(1, 8, 8)), np.ones((2, 1, 8, 8)))
    >>> figure.axes[0].get_title(loc="left"), len(figure.axes[0].images)
    ('0 Conv2D(filters=4, kernel_size=3): 4 channels', 10)
    """
    network = get_model(model, X)
    paths = layer_paths(network.layers)
    name = find_first_convolution(paths) if layer is None else resolve_path(paths, layer)
    if name is None:
        raise ValueError("layer: expected an index or a path, since the model has no convolution, got None")
    path = paths[name]
    if len(path[-1].out_shape) not in (2, 3):
        got = f"{layer_title(name, path[-1])} with outputs {path[-1].out_shape}"
        kinds = "images (channels, height, width) or signals (channels, length)"
        raise ValueError(f"layer: expected one whose outputs are {kinds}, got {got}")
    examples = ArraySource(X, network.input_shape, network.dtype)
    if not len(examples):
        raise ValueError("X: expected at least one example, got none")
    n = min(check_int("max_examples", max_examples), len(examples))
    x = examples.chunk(0, n).reshape(n, *network.input_shape)
    maps = compute_outputs(network, path, x)
    return _draw(layer_title(name, path[-1]), x if len(network.input_shape) in (2, 3) else None, maps, figure)


def _draw(title: str, x: Array | None, maps: Array, figure: Figure | SubFigure | None) -> Figure:
    """Draws each example, if it is an image or a signal, followed by its maps."""
    leading_tiles = 0 if x is None else 1
    n, channels = maps.shape[:2]
    maps = as_signals(maps)
    of_signals = maps.ndim == 3
    inputs = None if x is None else pictures_of(x)
    ratio = max(MIN_RATIO if of_signals else tile_ratio(*maps.shape[2:]), inputs.ratio if inputs else 0)
    width, height = tile_area(figure, bar=True)
    if height is not None:
        n = min(n, max(1, int(height / (MIN_TILE * ratio + LABEL_HEIGHT + GAP))))
    grid = fit_grid(
        channels,
        width,
        height,
        ratio,
        leading_tiles=leading_tiles,
        n_blocks=n,
        max_height=max(MAX_HEIGHT, n),
        default_height=DEFAULT_HEIGHT * (n + 1) / 2,
        min_tile=MIN_SIGNAL if of_signals and figure is None else MIN_TILE,
        max_tile=MAX_SIGNAL if of_signals else MAX_TILE,
    )
    step, row = grid.tile_width + GAP, grid.tile_width * ratio + GAP + LABEL_HEIGHT
    title = f"{title}: {count_label(channels, 'channel', grid.shown)}"
    title += inputs.note if inputs else ""
    tiles = Tiles(figure, (grid.columns + leading_tiles) * step, n * grid.rows * row, title, bar=True)

    def place(column: int, row_number: int, label: str) -> tuple[float, float]:
        left, top = column * step, row_number * row + LABEL_HEIGHT
        tiles.draw_text(label, left + grid.tile_width / 2, top - LABEL_OFFSET)
        return left, top

    shown = maps[:n, : grid.shown]
    scale, lines = color_scale(shown), Signals(shown.reshape(n * grid.shown, 1, -1), ratio) if of_signals else None
    for i in range(n):
        if inputs is not None:
            left, top = place(0, i * grid.rows, f"input {i}" if n > 1 else "input")
            inputs.draw(tiles, i, left, top, grid.tile_width, labels=False)
        for c in range(grid.shown):
            below, column = divmod(c, grid.columns)
            left, top = place(column + leading_tiles, i * grid.rows + below, str(c))
            if lines is None:
                high = grid.tile_width * tile_ratio(*maps.shape[2:])
                image = tiles.draw_image(maps[i, c], left, top, grid.tile_width, high, **scale)
            else:
                high = grid.tile_width * lines.ratio
                image = draw_band(tiles, maps[i, c : c + 1], left, top, grid.tile_width, high, **scale)
                lines.draw(tiles, i * grid.shown + c, left, top, grid.tile_width, labels=False)
    return tiles.finish(image, "output")
