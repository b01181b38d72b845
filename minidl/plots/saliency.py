"""saliency and grad_cam: the pixels and regions that the score of a class depends on."""

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
    Tiles,
    color_scale,
    fit_grid,
    prepare_images,
    tile_area,
    tile_ratio,
)
from minidl.plots.models import get_scored_model, layer_title, resolve_image_shape
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
    """Draws images, and how strongly the score of a class depends on each pixel.

    A map is the absolute gradient of the score with respect to the pixels, its maximum over the channels. Gradients are
    those of `Sequential.input_gradient`, in inference mode. All maps share one colour scale, from 0 (white).

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
    image_shape : (int, int, int) or None, default None
        (channels, height, width), if the model takes rows.
    figure : Figure, SubFigure or None, default None
        An empty one to draw into; None: a new one, not registered with pyplot.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Raises
    ------
    TypeError, ValueError
        For an X without images, unknown labels, a model that is not built or has other outputs, and as
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
    network, x, n = _prepare_images(model, X, max_examples)
    shape = network.input_shape if image_shape is None else resolve_image_shape(image_shape, x[0].size)
    if len(shape) != 3:
        example = "pass image_shape=(1, 28, 28) if rows of 784 numbers are images"
        raise ValueError(f"model: expected one that takes images, got inputs {shape}: {example}")
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
    """Draws images, and beside each the regions that raise the score of a class (Grad-CAM).

    A map is `relu(sum over k of a_k A_k)`: `A_k` is channel k of the layer's outputs, and `a_k` the mean over the
    pixels of the gradient of the score with respect to `A_k`. It is resized bilinearly to the image, which
    shades it. All maps share one colour scale, from 0 (white).

    For a model of pixels, the score of a class is the sum over the pixels that are predicted as it, as in `saliency`
    (Seg-Grad-CAM).

    Parameters
    ----------
    model : Sequential, SequentialClassifier or SequentialRegressor
        A model of images with outputs (classes,), or (classes, h, w) of pixels, or a fitted estimator of one.
    X : array-like of shape `(n, *input_shape)`
        Examples, or 2-D rows of the same size. The first `max_examples` are drawn, as many as fit.
    y : array-like, label or None, default None
        The classes: labels as in `fit`, one for each example or one for all; None: the predicted ones. For a single
        score s, class 1 has the score s, and class 0 has -s. A model of pixels needs a class.
    layer : int, str or None, default None
        An index, such as 5, or a path, such as "0.5", of a layer with image outputs that all data pass through; None:
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
        As `saliency`, and for a layer in a branch, or whose outputs are not images.
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
    network, x, n = _prepare_images(model, X, max_examples)
    if len(network.input_shape) != 3:
        raise ValueError(f"model: expected one that takes images, got inputs {network.input_shape}")
    classes = choose_classes(model, network, x, y, n)
    chain = chain_to(network, layer)
    maps = resize(compute_grad_cam(network, chain, x, classes.dscores), x.shape[2:])
    title = f"Grad-CAM of {classes.title} at {layer_title(*chain[-1])}"
    return _draw(title, x, maps, classes, True, "activation", figure)


def _prepare_images(model: object, X: ArrayLike, max_examples: int) -> tuple[Sequential, Array, int]:
    """Returns the model, the examples that may be drawn and the number of all; raises TypeError or ValueError."""
    network = get_scored_model(model, X)
    examples = ArraySource(X, network.input_shape, network.dtype)
    if not len(examples):
        raise ValueError("X: expected at least one example, got none")
    n = min(check_int("max_examples", max_examples), len(examples))
    return network, examples.chunk(0, n).reshape(n, *network.input_shape), len(examples)


def _draw(
    title: str,
    x: Array,
    maps: Array,
    classes: ChosenClasses,
    overlay: bool,
    label: str,
    figure: Figure | SubFigure | None,
) -> Figure:
    """Draws each image with its map beside it. overlay: shaded by the image in grey."""
    ratio, (width, height) = tile_ratio(*x.shape[2:]), tile_area(figure, bar=True)
    captions = [f"{i}: class {name}" for i, name in enumerate(classes.names)]
    caption_width = min(MAX_CAPTION_WIDTH, max(map(text_width, captions)))
    grid = fit_grid(
        len(x), width, height, ratio, tiles_per_unit=2, side_width=PAIR_GAP, min_column=caption_width + PAIR_GAP
    )
    tile, high = grid.tile_width, grid.tile_width * ratio
    unit, row = max(2 * (tile + GAP), caption_width) + PAIR_GAP, high + GAP + LABEL_HEIGHT
    title += f": {count_label(len(x), 'example', grid.shown)}"
    if x.shape[1] not in (1, 3):
        title += f"; input: mean of its {x.shape[1]} channels"
    tiles = Tiles(figure, grid.columns * unit - PAIR_GAP, grid.rows * row, title, bar=True)
    (pixels, grey), shade = prepare_images(x[: grid.shown]), _shade(x[: grid.shown])
    scale: dict[str, Any] = color_scale(maps[: grid.shown])
    for i in range(grid.shown):
        below, column = divmod(i, grid.columns)
        left, top = column * unit, below * row + LABEL_HEIGHT
        caption = truncate(captions[i], unit - PAIR_GAP)
        tiles.draw_text(caption, left, top - LABEL_OFFSET, ha="left")
        tiles.draw_image(pixels[i], left, top, tile, high, **grey)
        image = tiles.draw_image(maps[i], left + tile + GAP, top, tile, high, **scale)
        if overlay:
            black = np.zeros_like(shade[i])
            tiles.draw_image(black, left + tile + GAP, top, tile, high, framed=False, cmap="gray", alpha=shade[i])
    return tiles.finish(image, label)


def _shade(x: Array) -> Array:
    """Returns the opacity (n, h, w) of black that draws images (n, c, h, w) in grey, the mean of their channels."""
    grey, scale = prepare_images(x.mean(axis=1, keepdims=True, dtype=float))
    return np.asarray(SHADE * (scale["vmax"] - grey) / (scale["vmax"] - scale["vmin"]))
