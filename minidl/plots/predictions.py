"""misclassified and confusion_matrix: the errors of a classifier of examples or pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minidl.engine.probabilities import link_of, probabilities
from minidl.losses.label_loss import check_ignored
from minidl.plots.figures import (
    ERRORS,
    GREY,
    PAD,
    SEQUENTIAL,
    TEXT_POINTS,
    TITLE_POINTS,
    count_label,
    figure_size,
    prepare_figure,
    text_width,
    truncate,
    wrap,
)
from minidl.plots.image_grid import (
    GAP,
    LABEL_HEIGHT,
    LABEL_OFFSET,
    MARGIN,
    MIN_TILE,
    Tiles,
    draw_bar,
    fit_grid,
    tile_area,
)
from minidl.plots.masks import draw_worst
from minidl.plots.models import ROWS_ARE_PICTURES, get_scored_model, resolve_image_shape
from minidl.plots.pictures import Signals, pictures_of
from minidl.plots.pixels import (
    IGNORED,
    Pixels,
    count_pairs,
    count_pixels,
    encode_labels,
    is_of_pixels,
    name_classes,
    predicted_labels,
)
from minidl.sequential import Sequential
from minidl.utils.arrays import Array, as_array, check_array
from minidl.utils.data import as_numbers
from minidl.utils.validation import Shape, check_choice, check_int

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

CAPTION_HEIGHT = 2 * LABEL_HEIGHT  # inches
TICK_SPACE = 0.45  # inches: ticks and axis label, without class names
BAR_SPACE = 0.8  # inches: colour bars of a matrix
DARK = 0.55  # of the largest number of a matrix: text is white above it
MAX_CAPTION_WIDTH = 1.4  # inches


class Classifier(Protocol):
    """A classifier with the interface of scikit-learn."""

    classes_: Array

    def predict_proba(self, X: ArrayLike) -> Array:
        """Returns probabilities (n, classes)."""


@dataclass(frozen=True)
class Predictions:
    """True and predicted classes as indices, and the probabilities (n, classes); labels left out are IGNORED."""

    class_names: list[str]
    labels: Array
    predicted: Array
    probabilities: Array

    @property
    def count(self) -> int:
        """The number of examples that are not left out."""
        return int((self.labels != IGNORED).sum())

    @property
    def is_wrong(self) -> NDArray[np.bool_]:
        """Whether each example is misclassified."""
        return (self.predicted != self.labels) & (self.labels != IGNORED)

    @property
    def confidence(self) -> Array:
        """The probability of the predicted class."""
        return self.probabilities[np.arange(len(self.predicted)), self.predicted]


def misclassified(
    model: Sequential | Classifier,
    X: ArrayLike,
    y: ArrayLike,
    class_names: Sequence[str] | None = None,
    max_examples: int = 16,
    image_shape: Shape | None = None,
    figure: Figure | SubFigure | None = None,
    ignore_index: int | None = None,
) -> Figure:
    """Draws misclassified images or signals, the most confident mistakes first.

    Signals are lines over time. The caption of each example is the predicted class with its probability, and the true
    class. For a net of pixels, the images of the lowest IoU come first, each beside its labels and its prediction, as
    `masks` draws them, with its `minidl.metrics.iou`. If there are no mistakes, the title says so.

    Parameters
    ----------
    model : Sequential or classifier
        A Sequential with one score per class, or one score, of each example or of each pixel; or a classifier with
        `predict_proba` and `classes_`.
    X : array-like of shape `(n, *input_shape)`
        Images or signals, or 2-D rows of the same size.
    y : array-like of shape (n,), or (n, h, w) for a net of pixels
        Labels of the classes, as in `fit`.
    class_names : list of str or None, default None
        A name for each class, in order; None: the model's `classes`, or else the labels.
    max_examples : int, default 16
        Largest number of images.
    image_shape : (int, int, int), (int, int) or None, default None
        (channels, height, width), or (channels, length) of signals, if X has flat rows and the model has no such input.
    figure : Figure, SubFigure or None, default None
        An empty one to draw into; None: a new one, not registered with pyplot.
    ignore_index : int or None, default None
        Label of the examples or pixels that are left out, as in the loss.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Raises
    ------
    TypeError, ValueError
        For an X without images or signals, unknown labels, a wrong number of class names, and a model that is not a
        classifier.
    ImportError
        Without Matplotlib: pip install "minidl[plot]".

    Examples
    --------
    The scores are the two pixels of an image, so the third example is misclassified:

    >>> from minidl import Sequential, plots
    >>> from minidl.layers import Flatten
    >>> model = Sequential([Flatten()], input_shape=(1, 1, 2))
    >>> figure = plots.misclassified(model, [[[[1, 0]]], [[[0, 1]]], [[[0, 1]]]], [0, 1, 0])
    >>> figure.axes[0].get_title(loc="left")
    '1 of 3 examples misclassified'
    """
    max_examples = check_int("max_examples", max_examples)
    if (network := net_of_pixels(model, X)) is not None:
        pixels = _pixels(network, X, y, ignore_index)
        names = name_classes(class_names, np.arange(pixels.classes), network)
        shape = network.input_shape if image_shape is None else _infer_shape(model, X, image_shape)
        return draw_worst(pixels, shape, names, max_examples, figure)
    shape = _infer_shape(model, X, image_shape)
    predictions = predictions_of(model, X, y, class_names, ignore_index)
    width, height = tile_area(figure)
    wrong = np.flatnonzero(predictions.is_wrong)
    truth = predictions.probabilities[wrong, predictions.labels[wrong]]
    worst = wrong[np.lexsort((truth, -predictions.confidence[wrong]))][:max_examples]
    if not len(worst):
        return Tiles(figure, 3.0, 0.3, f"None of {count_label(predictions.count, 'example')} misclassified").finish()
    lines = [
        (
            (predictions.class_names[predictions.predicted[i]], f": {predictions.confidence[i]:.0%}"),
            ("true ", predictions.class_names[predictions.labels[i]]),
        )
        for i in worst
    ]
    caption_width = min(MAX_CAPTION_WIDTH, max(text_width("".join(line)) for pair in lines for line in pair))
    pictures = pictures_of(as_numbers(X, "X")[worst].reshape(-1, *shape))
    grid = fit_grid(
        len(worst),
        width,
        height,
        pictures.ratio,
        side_width=pictures.side_width,
        label_height=CAPTION_HEIGHT + pictures.foot_height,
        min_column=caption_width + pictures.side_width,
        min_tile=pictures.min_tile if figure is None else MIN_TILE,
        max_height=math.inf,
        max_tile=pictures.max_tile,
    )
    column_width = max(grid.tile_width, caption_width) + pictures.side_width
    row_height = CAPTION_HEIGHT + grid.tile_width * pictures.ratio + pictures.foot_height + GAP

    first = f"; the {grid.shown:,} most confident" if grid.shown < len(wrong) else ""
    title = f"{len(wrong):,} of {count_label(predictions.count, 'example')} misclassified{first}"
    title += pictures.note if isinstance(pictures, Signals) else ""
    tiles = Tiles(figure, grid.columns * (column_width + GAP), grid.rows * row_height, title)
    for k in range(grid.shown):
        below, column = divmod(k, grid.columns)
        x, top = column * (column_width + GAP) + pictures.side_width, below * row_height + CAPTION_HEIGHT
        (name, confidence), (true, true_name) = lines[k]
        space = column_width - pictures.side_width
        name, true_name = (
            truncate(name, space - text_width(confidence)),
            truncate(true_name, space - text_width(true)),
        )
        tiles.draw_text(f"{name}{confidence}\n{true}{true_name}", x, top - LABEL_OFFSET, ha="left", va="bottom")
        pictures.draw(tiles, k, x, top, grid.tile_width)
    return tiles.finish()


def confusion_matrix(
    model: Sequential | Classifier,
    X: ArrayLike,
    y: ArrayLike,
    class_names: Sequence[str] | None = None,
    normalize: str | None = None,
    figure: Figure | SubFigure | None = None,
    ignore_index: int | None = None,
) -> Figure:
    """Draws the confusion matrix of a classifier, true classes (rows) by predicted classes (columns).

    It counts examples; for a net of pixels it counts pixels, some images at a time, so that memory stays small.

    Correct predictions are blue and errors red, each on a colour scale of its own, so that a few errors stand out
    beside many correct predictions. Cells with 0 are empty. Colour bars replace the numbers if they do not fit into the
    cells.

    Parameters
    ----------
    model : Sequential or classifier
        A Sequential with one score per class, or one score, of each example or of each pixel; or a classifier with
        `predict_proba` and `classes_`.
    X : array-like of shape (n, ...)
        Examples, as the model takes them.
    y : array-like of shape (n,), or (n, h, w) for a net of pixels
        Labels of the classes, as in `fit`.
    class_names : list of str or None, default None
        A name for each class, in order; None: the model's `classes`, or else the labels.
    normalize : "true", "pred", "all" or None, default None
        Whether to normalize over rows ("true"), columns ("pred") or all of it ("all"); None: counts.
    figure : Figure, SubFigure or None, default None
        An empty one to draw into; None: a new one, not registered with pyplot.
    ignore_index : int or None, default None
        Label of the examples or pixels that are left out, as in the loss.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Raises
    ------
    TypeError, ValueError
        For unknown labels, a wrong number of class names, a model that is not a classifier, and another `normalize`.
    ImportError
        Without Matplotlib: pip install "minidl[plot]".

    Examples
    --------
    The scores are the two pixels of an image, so the third example is misclassified:

    >>> from minidl import Sequential, plots
    >>> from minidl.layers import Flatten
    >>> model = Sequential([Flatten()], input_shape=(1, 1, 2))
    >>> figure = plots.confusion_matrix(model, [[[[1, 0]]], [[[0, 1]]], [[[0, 1]]]], [0, 1, 0])
    >>> [text.get_text() for text in figure.axes[0].texts]
    ['1', '1', '1']
    """
    check_choice("normalize", normalize, "true", "pred", "all", None)
    if (network := net_of_pixels(model, X)) is not None:
        pixels, unit = _pixels(network, X, y, ignore_index), "pixel"
        names, counts = name_classes(class_names, np.arange(pixels.classes), network), count_pixels(pixels)
    else:
        predictions = predictions_of(model, X, y, class_names, ignore_index)
        names, unit = predictions.class_names, "example"
        counts = count_pairs(predictions.labels, predictions.predicted, len(names))
    names, matrix = [truncate(name, MAX_CAPTION_WIDTH) for name in names], _normalized(counts, normalize)
    number_width = text_width("0.00" if normalize else str(counts.max())) + GAP
    longest = max(map(text_width, names))
    width, height = figure_size(figure)
    if height is None:
        side = min(max(2.2, len(names) * max(number_width, 0.3)), width - longest - TICK_SPACE)
        width, height = side + longest + TICK_SPACE, side + TICK_SPACE + (longest if longest > side / len(names) else 0)
        height += LABEL_HEIGHT + PAD
    wrong = int(counts.sum() - np.trace(counts))
    title = f"{wrong:,} of {count_label(int(counts.sum()), unit)} misclassified" + " (red)" * (wrong > 0)
    title = wrap(title, width - MARGIN)
    title_height = LABEL_HEIGHT * (title.count("\n") + 1) + PAD
    cell = (width - longest - TICK_SPACE) / len(names)
    rotate = longest > cell
    cell = min(cell, (height - TICK_SPACE - title_height - rotate * longest) / len(names))
    bar = cell < number_width
    cell = max(cell - bar * BAR_SPACE / len(names), 0.01)

    result: Figure = prepare_figure(figure, width, height - bar * BAR_SPACE)  # the bars make the matrix smaller
    result.suptitle(title, x=PAD / width, ha="left", fontsize=TITLE_POINTS)
    axes = result.add_subplot(anchor="N")
    _draw_matrix(axes, matrix, None if bar else ".2f" if normalize else "d")
    every = slice(None, None, math.ceil(1.15 * TEXT_POINTS / 72 / cell))  # skips names that would overlap
    axes.set_yticks(range(len(names))[every], names[every], parse_math=False)
    axes.set_xticks(range(len(names))[every], names[every], parse_math=False, rotation=90 * rotate)
    axes.set_xlabel("predicted class", fontsize=TEXT_POINTS)
    axes.set_ylabel("true class", fontsize=TEXT_POINTS)
    axes.tick_params(labelsize=TEXT_POINTS, length=2)
    axes.spines[:].set(color=GREY, linewidth=0.4)
    return result


def _normalized(counts: NDArray[np.int64], normalize: str | None) -> Array:
    """Returns the confusion matrix of counts."""
    if normalize is None:
        return counts
    sums = counts.sum(axis={"true": 1, "pred": 0}.get(normalize), keepdims=True)
    return np.asarray(counts / np.maximum(sums, 1))


def _draw_matrix(axes: Axes, matrix: Array, number_format: str | None) -> None:
    """Draws the cells of a matrix that are not 0, with their numbers, or with colour bars (None)."""
    correct, n = np.eye(len(matrix), dtype=bool), len(matrix)
    for k, (name, cells, colors) in enumerate((("correct", correct, SEQUENTIAL), ("errors", ~correct, ERRORS))):
        limit = matrix[cells].max(initial=0) or 1
        shown = cells & (matrix > 0)
        image = axes.imshow(np.ma.masked_where(~shown, matrix), cmap=colors, vmin=0, vmax=limit)
        if number_format is None:
            draw_bar(axes, image, name, (1.03, 0.54 * (1 - k), 0.04, 0.46), max_ticks=3)
            continue
        for row, column in zip(*np.nonzero(shown), strict=True):
            text = format(matrix[row, column], number_format)
            color = "white" if matrix[row, column] > DARK * limit else "black"
            axes.text(column, row, text, color=color, fontsize=TEXT_POINTS, ha="center", va="center")
    if number_format is not None:
        edges = np.arange(n + 1) - 0.5
        axes.hlines(edges, -0.5, n - 0.5, "0.9", linewidth=0.4)
        axes.vlines(edges, -0.5, n - 0.5, "0.9", linewidth=0.4)


def net_of_pixels(model: object, X: ArrayLike) -> Sequential | None:
    """Returns a net with scores for each pixel; None for a classifier of examples."""
    if not isinstance(model, Sequential):
        return None
    network = get_scored_model(model, X)
    return network if is_of_pixels(network.output_shape) else None


def _pixels(network: Sequential, X: ArrayLike, y: ArrayLike, ignore_index: int | None) -> Pixels:
    """Returns examples with their labels; raises TypeError or ValueError."""
    return Pixels.of(network, X, check_array(y, "y"), ignore_index)


def predictions_of(
    model: Sequential | Classifier,
    X: ArrayLike,
    y: ArrayLike,
    class_names: Sequence[str] | None,
    ignore_index: int | None,
) -> Predictions:
    """Returns predictions and true classes; raises TypeError or ValueError for inconsistent arguments."""
    network = None
    if hasattr(model, "classes_") and hasattr(model, "predict_proba"):
        classes, class_probabilities = (
            np.asarray(model.classes_),
            as_array(model.predict_proba(X), "model: predict_proba(X)"),
        )
        if class_probabilities.ndim != 2 or class_probabilities.shape[1:] != classes.shape:
            raise ValueError(f"model: expected probabilities (n, {classes.size}), got {class_probabilities.shape}")
        predicted = class_probabilities.argmax(axis=1)
    elif hasattr(model, "model_"):
        raise ValueError(f"model: expected a classifier, got {type(model).__name__}")
    else:
        network = get_scored_model(model)
        link = link_of("model", network.layers, network.output_shape, None)
        scores = network.predict(X)
        class_probabilities = probabilities(scores, link)
        classes = np.arange(class_probabilities.shape[1])
        predicted = predicted_labels(scores)
    if not len(predicted):
        raise ValueError("X: expected at least one example, got none")
    labels = encode_labels(y, classes, len(predicted), check_ignored(ignore_index))
    return Predictions(name_classes(class_names, classes, network), labels, predicted, class_probabilities)


def _infer_shape(model: Sequential | Classifier, X: ArrayLike, image_shape: Shape | None) -> Shape:
    """Returns (channels, height, width), or (channels, length), of the examples; raises ValueError if it is unknown."""
    array = as_numbers(X, "X")
    if image_shape is not None:
        return resolve_image_shape(image_shape, math.prod(array.shape[1:]))
    shape = getattr(getattr(model, "model_", model), "input_shape", None) or ()
    if array.ndim == 4 or (array.ndim == 3 and len(shape) == 2):
        return array.shape[1:]
    if array.ndim == 3:
        return (1, *array.shape[1:])
    if array.ndim == 2 and len(shape) in (2, 3) and None not in shape and math.prod(shape) == array.shape[1]:
        return shape
    raise ValueError(
        f"X: expected images or signals, got shape {array.shape}: {ROWS_ARE_PICTURES}; for other data use "
        "confusion_matrix"
    )
