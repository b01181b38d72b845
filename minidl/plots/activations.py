"""feature_maps: the outputs of a layer as images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from minidl.engine.layer_paths import layer_paths, resolve_path
from minidl.plots.figures import count_label
from minidl.plots.image_grid import (
    GAP,
    LABEL,
    MAX_HEIGHT,
    MIN_TILE,
    RISE,
    Tiles,
    color_scale,
    displayed_images,
    fit_grid,
    tile_area,
    tile_ratio,
)
from minidl.plots.models import first_convolution, layer_outputs, layer_title, model_in
from minidl.utils.arrays import Array
from minidl.utils.data import ArraySource
from minidl.utils.validation import check_int

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.image import AxesImage


def feature_maps(
    model: object,
    X: ArrayLike,
    layer: int | str | None = None,
    max_examples: int = 4,
    figure: Figure | SubFigure | None = None,
) -> Figure:
    """Plots examples and the output of each channel of a layer, as images; returns the figure.

    model: a Sequential, or a fitted estimator of one.
    X: (n, *input_shape), or 2-D of the same width; the first `max_examples` examples are drawn.
    layer: its index, such as 2, or its name, such as "3.body.0"; None: the first convolution. The layers up to it
        run in inference.
    figure: an empty Figure or SubFigure to draw into; None: a new one, not registered in pyplot.

    All maps share one scale. With negative values, white is 0, blue below and red above; else dark is 0. If there is no
    space for all channels, the first ones are drawn, and the title says so.

    Raises TypeError or ValueError for a layer whose outputs are not images, an X of another shape, or a model that is
    not built; RuntimeError while another thread trains it.
    """
    net = model_in(model)
    found = layer_paths(net.layers)
    name = first_convolution(found) if layer is None else resolve_path(found, layer)
    if name is None:
        raise ValueError("layer: expected a layer, since the model has no convolution, got None")
    way = found[name]
    if len(way[-1].out_shape) != 3:
        got = f"{layer_title(name, way[-1])} with outputs {way[-1].out_shape}"
        raise ValueError(f"layer: expected one whose outputs are images (channels, height, width), got {got}")
    examples = ArraySource(X, net.input_shape, net.dtype)
    if not len(examples):
        raise ValueError("X: expected at least one example, got none")
    n = min(check_int("max_examples", max_examples), len(examples))
    x = examples.chunk(0, n).reshape(n, *net.input_shape)
    maps = layer_outputs(net, way, x)
    return _draw(layer_title(name, way[-1]), x if len(net.input_shape) == 3 else None, maps, figure)


def _draw(title: str, x: Array | None, maps: Array, figure: Figure | SubFigure | None) -> Figure:
    """Draws the maps of each example, after the example itself if it is an image."""
    lead = 0 if x is None else 1
    ratio = max(tile_ratio(*images.shape[2:]) for images in (x, maps) if images is not None)
    width, height = tile_area(figure, bar=True)
    n, channels = maps.shape[:2]
    if height is not None:
        n = min(n, max(1, int(height / (MIN_TILE * ratio + LABEL + GAP))))
    grid = fit_grid(channels, width, height, ratio, lead=lead, blocks=n, tallest=max(MAX_HEIGHT, n))
    step, row = grid.cell + GAP, grid.cell * ratio + GAP + LABEL
    title = f"{title}: {count_label(channels, 'channel', grid.shown)}"
    if x is not None and x.shape[1] not in (1, 3):
        title += f"; the input is the mean of its {x.shape[1]} channels"
    tiles = Tiles(figure, (grid.columns + lead) * step, n * grid.rows * row, title, bar=True)

    def draw(pixels: Array, column: int, row_number: int, label: str, size: Array, how: dict[str, Any]) -> AxesImage:
        left, top = column * step, row_number * row + LABEL
        tiles.text(label, left + grid.cell / 2, top - RISE)
        return tiles.image(pixels, left, top, grid.cell, grid.cell * tile_ratio(*size.shape[2:]), **how)

    scale = color_scale(maps[:n, : grid.shown])
    for i in range(n):
        if x is not None:
            inputs, grey = displayed_images(x[:n])
            draw(inputs[i], 0, i * grid.rows, f"input {i}" if n > 1 else "input", x, grey)
        for c in range(grid.shown):
            below, column = divmod(c, grid.columns)
            image = draw(maps[i, c], column + lead, i * grid.rows + below, str(c), maps, scale)
    return tiles.finish(image, "output")
