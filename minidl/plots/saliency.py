"""saliency and grad_cam: the pixels and regions, or times of a signal, that the score of a class depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from minidl.plots.attribution import (
    ChosenClasses,
    chain_to,
    choose_classes,
    compute_grad_cam,
    compute_saliency,
    resize,
)
from minidl.plots.figures import count_label, text_width, truncate
from minidl.plots.image_grid import (
    GAP,
    LABEL_HEIGHT,
    LABEL_OFFSET,
    MIN_TILE,
    Tiles,
    color_scale,
    fit_grid,
    prepare_images,
    tile_area,
)
from minidl.plots.models import ROWS_ARE_PICTURES, get_scored_model, layer_title, resolve_image_shape
from minidl.plots.pictures import MAX_LANES, Signals, draw_band, is_signal, pictures_of
from minidl.sequential import Sequential
from minidl.utils.arrays import Array
from minidl.utils.data import ArraySource
from minidl.utils.validation import Shape, check_int

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

MAX_CAPTION_WIDTH = 1.4  # inches
PAIR_GAP = 3 * GAP  # inches between an example's two tiles and the next example
SHADE = 0.3  # of a map where its image is black


def saliency(
    model: object,
    X: ArrayLike,
    y: ArrayLike | None = None,
    max_examples: int = 8,
    image_shape: Shape | None = None,
    figure: Figure | SubFigure | None = None,
) -> Figure:
    """Draws images or signals, and how strongly the score of a class depends on each pixel or time.

    A map is the absolute gradient of the score with respect to the pixels, its maximum over the channels. Gradients are
    those of `Sequential.input_gradient`, in inference mode. All maps share one colour scale, from 0 (white).

    Signals (channels, length), and images of one row or one column, are lines over time, at most 8 channels. Each
    channel has a map of its own, a band under its line.

    For a model of pixels, the score of a class is the sum of its scores at the pixels that are predicted as that class;
    the caption counts them. Without any, the map is 0.

    Parameters
    ----------
    model : Sequential, SequentialClassifier or SequentialRegressor
        A model with outputs (classes,), or (classes, h, w) of pixels, or a fitted estimator of one.
    X : array-like of shape `(n, *input_shape)`
        Examples, or 2-D rows of the same size. The first `max_examples` are drawn, as many as fit.
    y : array-like, label or None, default None
        The classes: labels as in `fit`, one for each example or one for all; None: the predicted ones. For a single
        score s, class 1 has the score s, and class 0 has -s. A model of pixels needs a class.
    max_examples : int, default 8
        Largest number of examples.
    image_shape : (int, int, int), (int, int) or None, default None
        (channels, height, width), or (channels, length) of signals, if the model takes rows.
    figure : Figure, SubFigure or None, default None
        An empty one to draw into; None: a new one, not registered with pyplot.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Raises
    ------
    TypeError, ValueError
        For an X without images or signals, unknown labels, a model that is not built or has other outputs, and as
        `Sequential.input_gradient` for its layers in NumPy.
    RuntimeError
        If another thread trains the model.
    ImportError
        Without Matplotlib: pip install "minidl[plot]".

    References
    ----------
    Simonyan, Vedaldi, Zisserman, "Deep Inside Convolutional Networks" (2013), arXiv:1312.6034.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential, plots
    >>> from minidl.layers import Conv2D, Flatten, Dense, ReLU
    >>> model = Sequential([Conv2D(4, 3), ReLU(), Flatten(), Dense(3)], input_shape=(1, 8, 8))
    >>> figure = plots.saliency(model, np.ones((2, 1, 8, 8)), y=1)
    >>> figure.axes[0].get_title(loc="left")
    'Saliency of class 1: 2 examples'
    """
    network, x, n, shape = _examples(model, X, max_examples, image_shape)
    classes = choose_classes(model, network, x, y, n)
    maps = compute_saliency(network, x, classes.dscores, shape)
    return _draw(f"Saliency of {classes.title}", x.reshape(-1, *shape), maps, classes, False, "|gradient|", figure)


def grad_cam(
    model: object,
    X: ArrayLike,
    y: ArrayLike | None = None,
    layer: int | str | None = None,
    max_examples: int = 8,
    figure: Figure | SubFigure | None = None,
) -> Figure:
    """Draws images, and beside each the regions that raise the score of a class (Grad-CAM); likewise times of signals.

    A map is `relu(sum over k of a_k A_k)`: `A_k` is channel k of the layer's outputs, and `a_k` the mean over the
    pixels of the gradient of the score with respect to `A_k`. It is resized bilinearly to the image, which
    shades it. All maps share one colour scale, from 0 (white). The map of a signal is a band under its lines, which
    are those of `saliency`.

    For a model of pixels, the score of a class is the sum over the pixels that are predicted as it, as in `saliency`
    (Seg-Grad-CAM).

    Parameters
    ----------
    model : Sequential, SequentialClassifier or SequentialRegressor
        A model of images or signals with outputs (classes,), or (classes, h, w) of pixels, or a fitted estimator of
        one.
    X : array-like of shape `(n, *input_shape)`
        Examples, or 2-D rows of the same size. The first `max_examples` are drawn, as many as fit.
    y : array-like, label or None, default None
        The classes: labels as in `fit`, one for each example or one for all; None: the predicted ones. For a single
        score s, class 1 has the score s, and class 0 has -s. A model of pixels needs a class.
    layer : int, str or None, default None
        An index, such as 5, or a path, such as "0.5", of a layer that all data pass through, with outputs that are
        images, or signals as the inputs; None:
        the last convolution, or container of one, and the layers after it that keep the shape (norm, activation); for a
        model of pixels, the last one before the convolution that computes the scores.
    max_examples : int, default 8
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
        As `saliency`, and for a layer in a branch, or whose outputs are neither images nor signals.
    RuntimeError
        If another thread trains the model.
    ImportError
        Without Matplotlib: pip install "minidl[plot]".

    References
    ----------
    Selvaraju et al., "Grad-CAM" (2017), arXiv:1610.02391. Vinogradova, Dibrov, Myers, "Towards Interpretable Semantic
    Segmentation via Gradient-weighted Class Activation Mapping" (2020), arXiv:2002.11434.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential, plots
    >>> from minidl.layers import Conv2D, Flatten, Dense, ReLU
    >>> model = Sequential([Conv2D(4, 3), ReLU(), Flatten(), Dense(3)], input_shape=(1, 8, 8))
    >>> figure = plots.grad_cam(model, np.ones((2, 1, 8, 8)), y=1)
    >>> figure.axes[0].get_title(loc="left")
    'Grad-CAM of class 1 at 1 ReLU(): 2 examples'
    """
    network, x, n, shape = _examples(model, X, max_examples)
    classes = choose_classes(model, network, x, y, n)
    chain = chain_to(network, layer)
    maps = resize(compute_grad_cam(network, chain, x, classes.dscores), shape[1:])
    if is_signal(shape):
        maps = maps.reshape(len(maps), 1, -1)
    title = f"Grad-CAM of {classes.title} at {layer_title(*chain[-1])}"
    return _draw(title, x, maps, classes, True, "activation", figure)


def _examples(
    model: object, X: ArrayLike, max_examples: int, image_shape: Shape | None = None
) -> tuple[Sequential, Array, int, Shape]:
    """Returns the model, the examples that may be drawn, the number of all, and the shape of one as a picture.

    Raises TypeError or ValueError.
    """
    network = get_scored_model(model, X)
    examples = ArraySource(X, network.input_shape, network.dtype)
    if not len(examples):
        raise ValueError("X: expected at least one example, got none")
    n = min(check_int("max_examples", max_examples), len(examples))
    x = examples.chunk(0, n).reshape(n, *network.input_shape)
    shape = network.input_shape if image_shape is None else resolve_image_shape(image_shape, x[0].size)
    if len(shape) not in (2, 3):
        raise ValueError(
            f"model: expected one that takes images or signals, got inputs {shape}: {ROWS_ARE_PICTURES}; for columns "
            "of a table, take model.input_gradient(X)"
        )
    return network, x, len(examples), shape


def _draw(
    title: str,
    x: Array,
    maps: Array,
    classes: ChosenClasses,
    shaded: bool,
    label: str,
    figure: Figure | SubFigure | None,
) -> Figure:
    """Draws each image with its map beside it, or each signal with its map under it.

    maps: (n, h, w), or (n, channels, length) of signals. shaded: by the image in grey.
    """
    pictures, (width, height) = pictures_of(x), tile_area(figure, bar=True)
    overlaid = isinstance(pictures, Signals)
    captions = [f"{i}: class {name}" for i, name in enumerate(classes.names)]
    caption_width = min(MAX_CAPTION_WIDTH, max(map(text_width, captions)))
    per_unit, side = 1 if overlaid else 2, pictures.side_width + PAIR_GAP
    grid = fit_grid(
        len(x),
        width,
        height,
        pictures.ratio,
        tiles_per_unit=per_unit,
        side_width=side,
        label_height=LABEL_HEIGHT + pictures.foot_height,
        min_column=caption_width + side,
        min_tile=pictures.min_tile if overlaid and figure is None else MIN_TILE,
        max_tile=pictures.max_tile,
    )
    tile, high = grid.tile_width, grid.tile_width * pictures.ratio
    unit, row = max(per_unit * (tile + GAP), caption_width) + side, high + GAP + LABEL_HEIGHT + pictures.foot_height
    title += f": {count_label(len(x), 'example', grid.shown)}{pictures.note}"
    tiles = Tiles(figure, grid.columns * unit - PAIR_GAP, grid.rows * row, title, bar=True)
    if overlaid:
        maps = maps[:, :MAX_LANES]
    scale: dict[str, Any] = color_scale(maps[: grid.shown])
    shades = _shade(x[: grid.shown]) if shaded and not overlaid else None
    for i in range(grid.shown):
        below, column = divmod(i, grid.columns)
        left, top = column * unit + pictures.side_width, below * row + LABEL_HEIGHT
        tiles.draw_text(truncate(captions[i], unit - PAIR_GAP), left, top - LABEL_OFFSET, ha="left")
        pictures.draw(tiles, i, left, top, tile)
        if overlaid:
            image = draw_band(tiles, maps[i], left, top, tile, high, **scale)
            continue
        image = tiles.draw_image(maps[i], left + tile + GAP, top, tile, high, **scale)
        if shades is not None:
            black = np.zeros_like(shades[i])
            tiles.draw_image(black, left + tile + GAP, top, tile, high, framed=False, cmap="gray", alpha=shades[i])
    return tiles.finish(image, label)


def _shade(x: Array) -> Array:
    """Returns the opacity (n, h, w) of black that draws images (n, c, h, w) in grey, the mean of their channels."""
    grey, scale = prepare_images(x.mean(axis=1, keepdims=True, dtype=float))
    return np.asarray(SHADE * (scale["vmax"] - grey) / (scale["vmax"] - scale["vmin"]))
