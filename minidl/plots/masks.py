"""masks: images with the regions that their labels and a net for segmentation give them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from minidl.metrics import iou
from minidl.plots.figures import count_label, text_width, truncate
from minidl.plots.image_grid import (
    GAP,
    LABEL_HEIGHT,
    LABEL_OFFSET,
    MIN_TILE,
    Tiles,
    fit_grid,
    prepare_images,
    tile_area,
    tile_ratio,
)
from minidl.plots.models import get_scored_model
from minidl.plots.pixels import IGNORED, Pixels, is_of_pixels, name_classes, predicted_labels
from minidl.utils.arrays import Array
from minidl.utils.data import Index
from minidl.utils.validation import Shape, check_int

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

UNIT_GAP = 3 * GAP  # inches between an example's tiles and the next example
MIN_WIDTH = 0.6  # inches of a tile, in a new figure
OPACITY = 0.55  # of regions
SWATCH = 0.09  # inches: a square of the legend
MAX_NAME = 1.4  # inches: of a class in the legend
STRIPES = 16  # across an image that is ignored
# Okabe, Ito (2008), "Color Universal Design": colours that differ for colour-blind readers, too
PALETTE = ("#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#F0E442", "#D55E00", "#0072B2")


@dataclass(frozen=True)
class Shown:
    """Examples that are drawn, by row: their images (m, c, h, w), labels and predictions (m, h, w), and captions."""

    images: Array
    labels: Index | None
    predicted: Index
    captions: list[str]


def masks(
    model: object,
    X: ArrayLike,
    y: ArrayLike | None = None,
    class_names: Sequence[str] | None = None,
    max_examples: int = 6,
    ignore_index: int | None = None,
    figure: Figure | SubFigure | None = None,
) -> Figure:
    """Draws images with the regions of a segmentation, half-transparent: those of the labels, and those predicted.

    Label 0 has no colour, so that the image shows through; pixels that are ignored are striped among the labels. The
    caption is the number of the example and the `minidl.metrics.iou` of its prediction. For the worst examples first,
    see `misclassified`.

    Parameters
    ----------
    model : Sequential
        A net of images with a score for each class, or a single one, at each pixel: outputs (classes, h, w).
    X : array-like of shape `(n, *input_shape)`
        Images, or 2-D rows of the same size. The first `max_examples` are drawn, as many as fit.
    y : array-like of shape (n, h, w) or None, default None
        Labels of the pixels, as in `fit`; None: only predictions are drawn.
    class_names : list of str or None, default None
        A name for each class, in order; None: the model's `classes`, or else the labels.
    max_examples : int, default 6
        Largest number of images.
    ignore_index : int or None, default None
        Label of the pixels that are left out, as in the loss.
    figure : Figure, SubFigure or None, default None
        An empty one to draw into; None: a new one, not registered with pyplot.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Raises
    ------
    TypeError, ValueError
        For unknown labels, a wrong number of class names, and a model with other outputs than a score per pixel of X.
    ImportError
        Without Matplotlib: pip install "minidl[plot]".

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential, plots
    >>> from minidl.layers import Conv2D
    >>> model = Sequential([Conv2D(2, 3, padding=1)], input_shape=(1, 8, 8))
    >>> figure = plots.masks(model, np.ones((2, 1, 8, 8)), np.ones((2, 8, 8), int), class_names=["sky", "bird"])
    >>> figure.axes[0].get_title(loc="left")
    '2 examples: image, labels, prediction'
    """
    network = get_scored_model(model, X)
    if not is_of_pixels(network.output_shape):
        raise ValueError(f"model: expected one with outputs (classes, h, w), got {network.output_shape}")
    limit, pixels = check_int("max_examples", max_examples), Pixels.of(network, X, y, ignore_index)
    names, rows = (
        name_classes(class_names, np.arange(pixels.classes), network),
        np.arange(min(limit, len(pixels.examples))),
    )
    shown = _shown(pixels, network.input_shape, rows)
    return _draw(shown, lambda n: count_label(len(rows), "example", n), names, pixels.classes, figure)


def draw_worst(
    pixels: Pixels, shape: Shape, names: list[str], max_examples: int, figure: Figure | SubFigure | None
) -> Figure:
    """Draws the examples with wrong pixels, those of the lowest IoU first; shape: of an image."""
    _check_size(pixels, shape)
    quality, wrong, count = np.empty(len(pixels.examples)), np.zeros(len(pixels.examples), np.int64), 0
    for rows in pixels.chunks():
        labels, scores = pixels.labels(rows), pixels.scores(rows)
        mistakes = (predicted_labels(scores) != labels) & (labels != IGNORED)
        wrong[rows] = mistakes.reshape(len(rows), -1).sum(axis=1)
        count += int((labels != IGNORED).sum())
        quality[rows] = _ious(labels, scores)
    worst = np.flatnonzero(wrong)
    worst = worst[np.argsort(quality[worst], kind="stable")]  # NaN is last
    title = f"{wrong.sum():,} of {count_label(count, 'pixel')} misclassified"
    if not len(worst):
        return Tiles(figure, 3.0, 0.3, f"None of {count_label(count, 'pixel')} misclassified").finish()
    title += f", in {len(worst):,} of {count_label(len(pixels.examples), 'example')}"
    shown = _shown(pixels, shape, worst[:max_examples])
    of_worst = lambda n: title + (f"; the {n:,} of the lowest IoU" if n < len(worst) else "")  # noqa: E731
    return _draw(shown, of_worst, names, pixels.classes, figure)


def _ious(labels: Index, scores: Array) -> Array:
    """Returns the IoU of each example; NaN where no class is labelled or predicted."""
    return np.array([iou(labels[i : i + 1], scores[i : i + 1], IGNORED) for i in range(len(labels))])


def _check_size(pixels: Pixels, shape: Shape) -> None:
    """Raises ValueError unless there is a score for each pixel of images of this shape."""
    outputs = pixels.network.output_shape
    if len(shape) != 3 or outputs[1:] != shape[1:]:
        hint = "; for labels of the times of signals, use confusion_matrix" if len(outputs) == 2 else ""
        raise ValueError(f"model: expected outputs (classes, h, w) for each pixel of X, {shape}, got {outputs}{hint}")


def _shown(pixels: Pixels, shape: Shape, rows: Index) -> Shown:
    """Returns what is drawn of some examples, whose images have this shape; raises ValueError."""
    _check_size(pixels, shape)
    scores, labels = pixels.scores(rows), None if pixels.given is None else pixels.labels(rows)
    quality = np.full(len(rows), np.nan) if labels is None else _ious(labels, scores)
    captions = [f"{i}" if math.isnan(q) else f"{i}: IoU {q:.2f}" for i, q in zip(rows, quality, strict=True)]
    images = pixels.examples.gather_copy(rows).reshape(-1, *shape)
    return Shown(images, labels, predicted_labels(scores), captions)


def _draw(shown: Shown, title: Any, names: list[str], classes: int, figure: Figure | SubFigure | None) -> Figure:
    """Draws each image, its labels if there are any, and its prediction. title: of the number of examples drawn."""
    (width, height), ratio = tile_area(figure), tile_ratio(*shown.images.shape[2:])
    parts = [("labels", shown.labels)] * (shown.labels is not None) + [("prediction", shown.predicted)]
    per_unit, caption_width = 1 + len(parts), max(map(text_width, shown.captions))
    legend = _legend(shown, names, width, math.inf if height is None else height / 3)
    legend_height = LABEL_HEIGHT * (1 + max(row for _, row, _ in legend)) + GAP
    grid = fit_grid(
        len(shown.images),
        width,
        None if height is None else height - legend_height,
        ratio,
        tiles_per_unit=per_unit,
        side_width=UNIT_GAP,
        min_column=caption_width + UNIT_GAP,
        min_tile=MIN_WIDTH if figure is None else MIN_TILE,
        max_height=math.inf,
    )
    tile, high = grid.tile_width, grid.tile_width * ratio
    unit, row_height = max(per_unit * (tile + GAP), caption_width) + UNIT_GAP, high + GAP + LABEL_HEIGHT
    heading = f"{title(grid.shown)}: image, {', '.join(name for name, _ in parts)}"
    used = max(grid.columns * unit - UNIT_GAP, max(x + SWATCH + GAP + text_width(name) for x, _, (_, name) in legend))
    tiles = Tiles(figure, used, grid.rows * row_height + legend_height, heading)
    colours, (images, grey) = class_colours(classes), prepare_images(shown.images[: grid.shown])
    for i in range(grid.shown):
        below, column = divmod(i, grid.columns)
        left, top = column * unit, below * row_height + LABEL_HEIGHT
        tiles.draw_text(shown.captions[i], left, top - LABEL_OFFSET, ha="left")
        tiles.draw_image(images[i], left, top, tile, high, **grey)
        for k, (_, labels) in enumerate(parts, 1):
            assert labels is not None
            x = left + k * (tile + GAP)
            tiles.draw_image(images[i], x, top, tile, high, **grey)
            tiles.draw_image(colours[labels[i]], x, top, tile, high, framed=False)  # IGNORED: the last, transparent
            if (labels[i] == IGNORED).any():
                tiles.draw_image(_striped(labels[i] == IGNORED), x, top, tile, high, framed=False)
    for x, row, (colour, name) in legend:
        y = grid.rows * row_height + GAP + row * LABEL_HEIGHT
        _draw_swatch(tiles, colour, x, y)
        tiles.draw_text(name, x + SWATCH + GAP, y + SWATCH, ha="left")
    return tiles.finish()


# ---- colours


def class_colours(classes: int) -> Array:
    """Returns RGBA colours (classes + 1, 4): none for label 0 and, at the end, for what is ignored."""
    import matplotlib
    from matplotlib.colors import to_rgba_array

    chosen = PALETTE if classes - 1 <= len(PALETTE) else matplotlib.colormaps["turbo"](np.linspace(0, 1, classes - 1))
    colours = np.zeros((classes + 1, 4))
    colours[1:-1] = to_rgba_array(chosen)[: classes - 1]
    colours[1:-1, 3] = OPACITY
    return colours


def _striped(where: Array) -> Array:
    """Returns an RGBA image of diagonal stripes, black and white, in some pixels; it is larger if they are few."""
    enlarged = np.kron(where, np.ones((math.ceil(8 * STRIPES / max(where.shape)),) * 2, bool))
    rows, columns = np.indices(enlarged.shape)
    white = (rows + columns) // max(1, max(enlarged.shape) // (2 * STRIPES)) % 2
    return np.stack([white, white, white, enlarged], axis=-1).astype(np.float64)


def _legend(shown: Shown, names: list[str], width: float, height: float) -> list[tuple[float, int, tuple[Any, str]]]:
    """Returns x, row, colour and name of each class that is drawn, as many as fit; of what is ignored, colour None."""
    colours = class_colours(len(names))
    found = np.unique(np.concatenate([a.ravel() for a in (shown.labels, shown.predicted) if a is not None]))
    entries: list[tuple[Any, str]] = [(colours[k], truncate(names[k], MAX_NAME)) for k in found if k != IGNORED]
    entries += [(None, "ignored")] * (IGNORED in found)
    step = SWATCH + 2 * GAP + max(text_width(name) for _, name in entries) + GAP
    columns = max(1, int((width + GAP) / step))
    rows = max(1, int(min(height / LABEL_HEIGHT, len(entries))))
    if len(entries) > rows * columns:
        entries = [*entries[: rows * columns - 1], (colours[-1], "…")]
    return [(k % columns * step, k // columns, entry) for k, entry in enumerate(entries)]


def _draw_swatch(tiles: Tiles, colour: Any, x: float, y: float) -> None:
    """Draws a square of the legend, striped for the colour None."""
    pixels = _striped(np.ones((4, 4), bool))[:16, :16] if colour is None else colour.reshape(1, 1, 4)
    tiles.draw_image(pixels, x, y, SWATCH, SWATCH)
