"""filters: the weights of a layer as images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from minidl.arrays import Array
from minidl.layer import Layer, Shape
from minidl.layers.conv_transpose2d import ConvTranspose2D
from minidl.plots.figures import counted, inches
from minidl.plots.places import Way, called, first_convolution, image_in_front, image_of, model_in, place_in, ways
from minidl.plots.tiles import GAP, LABEL, LEAST, Tiles, area, arranged, colours, tile_ratio

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

MOST_CHANNELS = 16  # that are drawn of a filter


def filters(
    model: object,
    layer: int | str | None = None,
    image_shape: Shape | None = None,
    figure: Figure | SubFigure | None = None,
) -> Figure:
    """The weights of a convolution, or of a dense layer on images, as images; returns the figure.

    model: a Sequential, or a fitted estimator of one.
    layer: its place, such as 1, or its name, such as "3.body.0"; None: the first convolution, without one the first
        dense layer on images.
    image_shape: (channels, height, width) of a dense layer's inputs, where no Flatten in front of it tells.
    figure: an empty Figure or SubFigure to draw into; None: a new one, which pyplot does not know.

    Filters of one input channel are numbered tiles, those of more are rows of tiles, one for each channel. White is 0,
    blue below, red above, on one scale for all. Where there are too many, the first ones are drawn, and the title
    says so.

    Raises TypeError or ValueError, saying what was expected, for a layer without such weights or a model that is not
    built.
    """
    found = ways(model_in(model))
    name = _default(found, image_shape) if layer is None else place_in(found, layer)
    weights = _weights(name, found[name], image_shape)
    width, height = area(figure, bar=True)
    n, channels = weights.shape[:2]
    ratio = tile_ratio(*weights.shape[2:])
    side = 0.0 if channels == 1 else inches(str(n)) + 2 * GAP
    shown = min(channels, MOST_CHANNELS, max(1, int((width - side) / (LEAST + GAP))))
    above = LABEL if channels == 1 else 0.0
    head = LABEL - above
    grid = arranged(n, width, height if height is None else height - head, ratio, across=shown, side=side, above=above)
    scale = colours(weights[: grid.shown, :shown], signed=True)

    unit, row = shown * (grid.cell + GAP) + side, grid.cell * ratio + GAP + above
    title = _title(name, found[name][-1], n, grid.shown, channels, shown)
    tiles = Tiles(figure, grid.columns * unit, head + grid.rows * row, title, bar=True)
    for i in range(grid.shown):
        x, y = i % grid.columns * unit + side, head + i // grid.columns * row + above
        if channels == 1:
            tiles.text(str(i), x + grid.cell / 2, y - 0.03)
        else:
            tiles.text(str(i), x - GAP, y + grid.cell * ratio / 2, ha="right", va="center")
        for c in range(shown):
            left = x + c * (grid.cell + GAP)
            image = tiles.image(weights[i, c], left, y, grid.cell, grid.cell * ratio, **scale)
            if channels > 1 and i < grid.columns:
                tiles.text(str(c), left + grid.cell / 2, y - 0.03)
    return tiles.finish(image, "weight")


def _default(found: Mapping[str, Way], image_shape: Shape | None) -> str:
    """The name of the first convolution, or of the first dense layer on images; raises ValueError without any."""
    name = first_convolution(found)
    if name is not None:
        return name
    for name, way in found.items():
        weight = way[-1].params.get("weight")
        if weight is not None and weight.value.ndim == 2 and (image_shape or image_in_front(way)):
            return name
    raise ValueError(
        "layer: expected a model with a convolution, or with a dense layer behind a Flatten of images, got one "
        "without: image_shape=(1, 28, 28) says that rows of 784 numbers are images"
    )


def _weights(name: str, way: Way, image_shape: Shape | None) -> Array:
    """The weights of a way's last layer, (filters, channels, height, width); raises ValueError if it has none."""
    layer = way[-1]
    weights = layer.params["weight"].value if "weight" in layer.params else np.empty(0)
    if weights.ndim == 4 and image_shape is None:
        return weights
    if weights.ndim != 2:
        convolution = "a convolution, or " if image_shape is None else ""
        raise ValueError(f"layer: expected {convolution}a dense layer on images, got {called(name, layer)}")
    shape = image_in_front(way) if image_shape is None else image_of(image_shape, weights.shape[1])
    if shape is None:
        raise ValueError(
            f"layer: expected one whose inputs are images, got {called(name, layer)}, of {weights.shape[1]} numbers: "
            "image_shape=(channels, height, width) says how they lie"
        )
    return weights.reshape(-1, *shape)


def _title(name: str, layer: Layer, n: int, shown: int, channels: int, shown_channels: int) -> str:
    """Which layer it is, and how many of its filters and channels are drawn."""
    unit, channel = (
        ("input channel", "output channel") if isinstance(layer, ConvTranspose2D) else ("filter", "input channel")
    )
    if layer.params["weight"].value.ndim == 2:
        unit = "unit"
    title = f"{called(name, layer)}: weights of {counted(n, unit, shown)}"
    return title if channels == 1 else f"{title} (rows), {counted(channels, channel, shown_channels)} (columns)"
