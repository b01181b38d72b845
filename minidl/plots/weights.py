"""filters: the weights of a layer as images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from minidl.engine.layer_paths import LayerPath, layer_paths, resolve_path
from minidl.layers.base import Layer
from minidl.plots.figures import count_label, text_width
from minidl.plots.image_grid import (
    GAP,
    LABEL_HEIGHT,
    LABEL_OFFSET,
    MIN_TILE,
    Tiles,
    color_scale,
    fit_grid,
    tile_area,
    tile_ratio,
)
from minidl.plots.models import (
    find_first_convolution,
    get_model,
    input_image_shape,
    is_convolution,
    layer_title,
    resolve_image_shape,
)
from minidl.utils.arrays import Array
from minidl.utils.validation import Shape
from minidl_c.kernels.conv_transpose2d import ConvTranspose2DOp

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

MAX_CHANNELS = 16  # drawn of one filter


def filters(
    model: object,
    layer: int | str | None = None,
    image_shape: Shape | None = None,
    figure: Figure | SubFigure | None = None,
) -> Figure:
    """Draws the weights of a convolution, or of a dense layer on images or signals, as images.

    Those of a 1-D convolution are images of one row. A filter with one input channel is a numbered tile, a filter with
    several is a row of tiles, one per channel. All share one colour scale: 0 is white, negative blue, positive red. If
    there are too many, the first ones are drawn, and the title says so.

    Parameters
    ----------
    model : Sequential, SequentialClassifier or SequentialRegressor
        The model, or a fitted estimator of one.
    layer : int, str or None, default None
        An index, such as 1, or a path, such as "3.body.0"; None: the first convolution, or else the first dense layer
        on images.
    image_shape : (int, int, int), (int, int) or None, default None
        (channels, height, width) of a dense layer's inputs, or (channels, length) of signals, if there is no Flatten
        before it.
    figure : Figure, SubFigure or None, default None
        An empty one to draw into; None: a new one, not registered with pyplot.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Raises
    ------
    TypeError, ValueError
        For a layer without such weights, and a model that is not built.
    ImportError
        Without Matplotlib: pip install "minidl[plot]".

    Examples
    --------
    Each of the four filters is a tile:

    >>> from minidl import Sequential, plots
    >>> from minidl.layers import Conv2D
    >>> figure = plots.filters(Sequential([Conv2D(4, 3)], input_shape=(1, 8, 8)))
    >>> len(figure.axes[0].images)
    4
    """
    paths = layer_paths(get_model(model).layers)
    name = _default_layer(paths, image_shape) if layer is None else resolve_path(paths, layer)
    return _draw(_image_weights(name, paths[name], image_shape), name, paths[name][-1], figure)


def _draw(weights: Array, name: str, layer: Layer, figure: Figure | SubFigure | None) -> Figure:
    """Draws filters of one channel with their index above; others as rows, with the channel index above the columns."""
    width, height = tile_area(figure, bar=True)
    n, channels = weights.shape[:2]
    single_channel, ratio = channels == 1, tile_ratio(*weights.shape[2:])
    side_width, label_height, header_height = (
        (0.0, LABEL_HEIGHT, 0.0) if single_channel else (text_width(str(n)) + 2 * GAP, 0.0, LABEL_HEIGHT)
    )
    shown = min(channels, MAX_CHANNELS, max(1, int((width - side_width) / (MIN_TILE + GAP))))
    grid_height = None if height is None else height - header_height
    grid = fit_grid(
        n, width, grid_height, ratio, tiles_per_unit=shown, side_width=side_width, label_height=label_height
    )
    unit, row, high = (
        shown * (grid.tile_width + GAP) + side_width,
        grid.tile_width * ratio + GAP + label_height,
        grid.tile_width * ratio,
    )

    title = _title(layer_title(name, layer), layer, (n, grid.shown), (channels, shown))
    tiles = Tiles(figure, grid.columns * unit, header_height + grid.rows * row, title, bar=True)
    scale = color_scale(weights[: grid.shown, :shown], signed=True)
    for i in range(grid.shown):
        below, column = divmod(i, grid.columns)
        x, y = column * unit + side_width, header_height + below * row + label_height
        if not single_channel:
            tiles.draw_text(str(i), x - GAP, y + high / 2, ha="right", va="center")
        for c in range(shown):
            left = x + c * (grid.tile_width + GAP)
            image = tiles.draw_image(weights[i, c], left, y, grid.tile_width, high, **scale)
            if single_channel or not below:
                tiles.draw_text(str(i if single_channel else c), left + grid.tile_width / 2, y - LABEL_OFFSET)
    return tiles.finish(image, "weight")


def _default_layer(paths: Mapping[str, LayerPath], image_shape: Shape | None) -> str:
    """Returns the path of the first convolution, or else of the first dense layer on images; raises ValueError."""
    name = find_first_convolution(paths)
    if name is not None:
        return name
    for name, path in paths.items():
        weight = path[-1].params.get("weight")
        if weight is not None and weight.value.ndim == 2 and (image_shape or input_image_shape(path)):
            return name
    raise ValueError(
        "layer: expected a model with a convolution, or with a dense layer after a Flatten of images, got one "
        "without: pass image_shape=(1, 28, 28) if rows of 784 numbers are images"
    )


def _image_weights(name: str, path: LayerPath, image_shape: Shape | None) -> Array:
    """Returns the weights of the last layer of a path as (filters, channels, height, width); raises ValueError."""
    layer = path[-1]
    weights = layer.params["weight"].value if "weight" in layer.params else np.empty(0)
    if weights.ndim > 2 and is_convolution(layer) and image_shape is None:
        return _with_height(weights)
    if weights.ndim != 2:
        convolution = "a convolution, or " if image_shape is None else ""
        raise ValueError(f"layer: expected {convolution}a dense layer on images, got {layer_title(name, layer)}")
    shape = input_image_shape(path) if image_shape is None else resolve_image_shape(image_shape, weights.shape[1])
    if shape is None:
        raise ValueError(
            f"layer: expected one whose inputs are images, got {layer_title(name, layer)} with "
            f"{weights.shape[1]} inputs: pass image_shape=(channels, height, width)"
        )
    return _with_height(weights.reshape(-1, *shape))


def _with_height(weights: Array) -> Array:
    """Returns weights (n, channels, height, width); those of signals (n, channels, length) are images of one row."""
    return weights if weights.ndim == 4 else weights[:, :, np.newaxis]


def _title(label: str, layer: Layer, units: tuple[int, int], channels: tuple[int, int]) -> str:
    """Returns the title: the layer, its numbers of filters and channels, and how many of them are drawn."""
    unit, channel = "filter" if is_convolution(layer) else "unit", "input channel"
    if isinstance(layer.op, ConvTranspose2DOp):  # of images or signals: its weights are (in, out, ...)
        unit, channel = channel, "output channel"
    title = f"{label}: weights of {count_label(units[0], unit, units[1])}"
    return title if channels[0] == 1 else f"{title} (rows), {count_label(channels[0], channel, channels[1])} (columns)"
