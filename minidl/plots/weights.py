"""filters: the weights of a layer as images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from minidl.engine.layer_paths import LayerPath, layer_paths, resolve_path
from minidl.layers.base import Layer
from minidl.layers.conv_transpose2d import ConvTranspose2D
from minidl.plots.figures import count_label, text_width
from minidl.plots.image_grid import GAP, LABEL, MIN_TILE, RISE, Tiles, color_scale, fit_grid, tile_area, tile_ratio
from minidl.plots.models import check_image, first_convolution, flattened_image, layer_title, model_in
from minidl.utils.arrays import Array
from minidl.utils.validation import Shape

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

MAX_CHANNELS = 16  # drawn per filter


def filters(
    model: object,
    layer: int | str | None = None,
    image_shape: Shape | None = None,
    figure: Figure | SubFigure | None = None,
) -> Figure:
    """Plots the weights of a convolution, or of a dense layer on images, as images; returns the figure.

    model: a Sequential, or a fitted estimator of one.
    layer: its index, such as 1, or its name, such as "3.body.0"; None: the first convolution, or else the first dense
        layer on images.
    image_shape: (channels, height, width) of a dense layer's inputs, unless a Flatten before it has them.
    figure: an empty Figure or SubFigure to draw into; None: a new one, not registered in pyplot.

    Filters of one input channel are numbered tiles; those of several are rows of tiles, one per channel. White is 0,
    blue below, red above, on one scale for all. If there is no space for all, the first ones are drawn, and the title
    says so.

    Raises TypeError or ValueError for a layer without such weights or a model that is not built.
    """
    found = layer_paths(model_in(model).layers)
    name = _default(found, image_shape) if layer is None else resolve_path(found, layer)
    return _draw(_weights(name, found[name], image_shape), name, found[name][-1], figure)


def _draw(weights: Array, name: str, layer: Layer, figure: Figure | SubFigure | None) -> Figure:
    """Draws filters of one channel with their numbers above, others with filters in rows and channels in columns."""
    width, height = tile_area(figure, bar=True)
    n, channels = weights.shape[:2]
    alone, ratio = channels == 1, tile_ratio(*weights.shape[2:])
    side, above, head = (0.0, LABEL, 0.0) if alone else (text_width(str(n)) + 2 * GAP, 0.0, LABEL)
    shown = min(channels, MAX_CHANNELS, max(1, int((width - side) / (MIN_TILE + GAP))))
    rest = None if height is None else height - head
    grid = fit_grid(n, width, rest, ratio, across=shown, side=side, above=above)
    unit, row, high = shown * (grid.cell + GAP) + side, grid.cell * ratio + GAP + above, grid.cell * ratio

    title = _title(layer_title(name, layer), layer, (n, grid.shown), (channels, shown))
    tiles = Tiles(figure, grid.columns * unit, head + grid.rows * row, title, bar=True)
    scale = color_scale(weights[: grid.shown, :shown], signed=True)
    for i in range(grid.shown):
        below, column = divmod(i, grid.columns)
        x, y = column * unit + side, head + below * row + above
        if not alone:
            tiles.text(str(i), x - GAP, y + high / 2, ha="right", va="center")
        for c in range(shown):
            left = x + c * (grid.cell + GAP)
            image = tiles.image(weights[i, c], left, y, grid.cell, high, **scale)
            if alone or not below:
                tiles.text(str(i if alone else c), left + grid.cell / 2, y - RISE)
    return tiles.finish(image, "weight")


def _default(found: Mapping[str, LayerPath], image_shape: Shape | None) -> str:
    """Returns the name of the first convolution, or else dense layer on images. Raises ValueError without any."""
    name = first_convolution(found)
    if name is not None:
        return name
    for name, way in found.items():
        weight = way[-1].params.get("weight")
        if weight is not None and weight.value.ndim == 2 and (image_shape or flattened_image(way)):
            return name
    raise ValueError(
        "layer: expected a model with a convolution, or with a dense layer after a Flatten of images, got one "
        "without: for rows of 784 numbers that are images, set image_shape=(1, 28, 28)"
    )


def _weights(name: str, way: LayerPath, image_shape: Shape | None) -> Array:
    """Returns the weights (filters, channels, height, width) of the last layer of a path. Raises ValueError."""
    layer = way[-1]
    weights = layer.params["weight"].value if "weight" in layer.params else np.empty(0)
    if weights.ndim == 4 and image_shape is None:
        return weights
    if weights.ndim != 2:
        convolution = "a convolution, or " if image_shape is None else ""
        raise ValueError(f"layer: expected {convolution}a dense layer on images, got {layer_title(name, layer)}")
    shape = flattened_image(way) if image_shape is None else check_image(image_shape, weights.shape[1])
    if shape is None:
        raise ValueError(
            f"layer: expected one whose inputs are images, got {layer_title(name, layer)}, of {weights.shape[1]} "
            "numbers: set image_shape=(channels, height, width)"
        )
    return weights.reshape(-1, *shape)


def _title(name: str, layer: Layer, units: tuple[int, int], channels: tuple[int, int]) -> str:
    """Returns the title: the layer, its numbers of filters and channels, and the numbers drawn."""
    unit, channel = "filter" if layer.params["weight"].value.ndim == 4 else "unit", "input channel"
    if isinstance(layer, ConvTranspose2D):  # its filter axes are swapped
        unit, channel = channel, "output channel"
    title = f"{name}: weights of {count_label(units[0], unit, units[1])}"
    return title if channels[0] == 1 else f"{title} (rows), {count_label(channels[0], channel, channels[1])} (columns)"
