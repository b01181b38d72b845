"""misclassified and confusion_matrix: where a classifier is wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import ArrayLike

from minidl.losses import probabilities
from minidl.plots.figures import SMALL, TEXT, count_label, figure_size, prepare_figure, shorten, text_width
from minidl.plots.image_grid import GAP, LABEL, MIN_TILE, RISE, Tiles, displayed_images, fit_grid, tile_area, tile_ratio
from minidl.plots.models import check_image, model_in
from minidl.sequential import Sequential
from minidl.utils.arrays import REAL, Array, as_array, check_array
from minidl.utils.data import as_numbers
from minidl.utils.validation import Shape, check_int

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

LINES = 2 * LABEL  # inches: two lines above an image
TICKS = 0.45  # inches: beside a matrix, besides the names of classes
MAX_TEXT, MIN_IMAGE = 1.4, 0.6  # inches: widths of the text above an image, and of an image in a new figure


class Classifier(Protocol):
    """A classifier as scikit-learn defines it."""

    classes_: Array

    def predict_proba(self, X: ArrayLike) -> Array:
        """(n, classes)."""


@dataclass(frozen=True)
class Predictions:
    """Predictions and true labels as indices of classes, and the probabilities of all classes."""

    names: list[str]
    true: Array
    predicted: Array
    probabilities: Array

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
) -> Figure:
    """Plots misclassified images, the most confident errors first; returns the figure.

    model: a Sequential with a score for each class, or one score; or an object with `predict_proba` and `classes_`.
    X, y: as in `fit`, y with labels of classes. class_names: of all classes in order; None: the labels.
    max_examples: the largest number of images.
    image_shape: (channels, height, width), if X has rows of numbers and the model has no image shape.
    figure: an empty Figure or SubFigure to draw into; None: a new one, not registered in pyplot.

    The text above an image is the predicted class, its probability, and the true class. If there are no errors, the
    figure says so.

    Raises TypeError or ValueError for an X without images, labels that are no classes, another number of names, or a
    model that does not classify.
    """
    max_examples, shape = check_int("max_examples", max_examples), _image_shape(model, X, image_shape)
    predictions = _predict(model, X, y, class_names)
    width, height = tile_area(figure)
    wrong = np.flatnonzero(predictions.predicted != predictions.true)
    truth = predictions.probabilities[wrong, predictions.true[wrong]]
    worst = wrong[np.lexsort((truth, -predictions.confidence[wrong]))][:max_examples]
    if not len(worst):
        return Tiles(
            figure, 3.0, 0.3, f"None of {count_label(len(predictions.predicted), 'example')} misclassified"
        ).finish()
    lines = [
        (
            (predictions.names[predictions.predicted[i]], f": {predictions.confidence[i]:.0%}"),
            ("true ", predictions.names[predictions.true[i]]),
        )
        for i in worst
    ]
    text = min(MAX_TEXT, max(text_width("".join(line)) for pair in lines for line in pair))
    ratio, minimum = tile_ratio(*shape[1:]), MIN_IMAGE if figure is None else MIN_TILE
    grid = fit_grid(len(worst), width, height, ratio, above=LINES, text=text, minimum=minimum, tallest=math.inf)
    wide, high = max(grid.cell, text), grid.cell * ratio

    first = f"; the {grid.shown} with the highest confidence" if grid.shown < len(wrong) else ""
    title = f"{len(wrong)} of {count_label(len(predictions.predicted), 'example')} misclassified{first}"
    tiles = Tiles(figure, grid.columns * (wide + GAP), grid.rows * (high + LINES + GAP), title)
    images, grey = displayed_images(as_numbers(X, "X")[worst[: grid.shown]].reshape(-1, *shape))
    for k, image in enumerate(images):
        below, column = divmod(k, grid.columns)
        x, y_image = column * (wide + GAP), below * (high + LINES + GAP) + LINES
        (name, confidence), (true, true_name) = lines[k]
        name, true_name = shorten(name, wide - text_width(confidence)), shorten(true_name, wide - text_width(true))
        tiles.text(f"{name}{confidence}\n{true}{true_name}", x, y_image - RISE, ha="left", va="bottom")
        tiles.image(image, x, y_image, grid.cell, high, **grey)
    return tiles.finish()


def confusion_matrix(
    model: Sequential | Classifier,
    X: ArrayLike,
    y: ArrayLike,
    class_names: Sequence[str] | None = None,
    normalize: str | None = None,
    figure: Figure | SubFigure | None = None,
) -> Figure:
    """Plots how often each class (row) was predicted as each class (column), with ConfusionMatrixDisplay.

    model, X, y, class_names, figure: as of `misclassified`; X need not be images.
    normalize: "true", fractions of each row; "pred", of each column; "all", of all examples; None: counts.

    If numbers do not fit into the cells, a colour bar replaces them. Returns the figure; raises as `misclassified`, and
    ValueError for another normalize.
    """
    if normalize not in (None, "true", "pred", "all"):
        raise ValueError(f"normalize: expected 'true', 'pred', 'all' or None, got {normalize!r}")
    predictions = _predict(model, X, y, class_names)
    names = [shorten(name, MAX_TEXT) for name in predictions.names]
    number = text_width("0.00" if normalize else str(np.bincount(predictions.true).max())) + GAP
    longest = max(map(text_width, names))
    width, height = figure_size(figure)
    if height is None:
        side = min(max(2.2, len(names) * max(number, 0.3)), width - longest - TICKS)
        width, height = side + longest + TICKS, side + TICKS + (longest if longest > side / len(names) else 0)
    cell = (width - longest - TICKS) / len(names)
    upright = longest > cell
    cell = min(cell, (height - TICKS - upright * longest) / len(names))
    bar = cell < number
    cell = max(cell - bar * 0.5 / len(names), 0.01)

    drawn: Figure = prepare_figure(figure, width, height)
    axes = drawn.add_subplot()
    _draw_matrix(axes, predictions, normalize, bar)
    every = slice(None, None, math.ceil(1.15 * SMALL / 72 / cell))  # names that do not touch
    axes.set_yticks(range(len(names))[every], names[every], parse_math=False)
    axes.set_xticks(range(len(names))[every], names[every], parse_math=False, rotation=90 * upright)
    axes.set_xlabel("predicted class", fontsize=TEXT)
    axes.set_ylabel("true class", fontsize=TEXT)
    for one in drawn.axes:
        one.tick_params(labelsize=SMALL)
    return drawn


def _draw_matrix(axes: Axes, predictions: Predictions, normalize: str | None, bar: bool) -> None:
    """Draws the cells of all classes with numbers, or with a colour bar."""
    from sklearn.metrics import ConfusionMatrixDisplay

    ConfusionMatrixDisplay.from_predictions(
        predictions.true,
        predictions.predicted,
        labels=np.arange(len(predictions.names)),
        normalize=normalize,
        include_values=not bar,
        values_format=".2f" if normalize else "d",
        cmap="Blues",
        colorbar=bar,
        ax=axes,
        text_kw={"fontsize": SMALL},
    )


def _predict(
    model: Sequential | Classifier, X: ArrayLike, y: ArrayLike, class_names: Sequence[str] | None
) -> Predictions:
    """Returns predictions and true labels. Raises TypeError or ValueError."""
    if hasattr(model, "classes_") and hasattr(model, "predict_proba"):
        classes, chances = np.asarray(model.classes_), as_array(model.predict_proba(X), "model: predict_proba(X)")
        if chances.ndim != 2 or chances.shape[1:] != classes.shape:
            raise ValueError(f"model: expected probabilities (n, {classes.size}), got {chances.shape}")
        found = chances.argmax(axis=1)
    elif hasattr(model, "model_"):
        raise ValueError(f"model: expected a classifier, got {type(model).__name__}")
    else:
        net = model_in(model)
        if len(net.output_shape) != 1:
            raise ValueError(f"model: expected one with outputs (classes,), got {net.output_shape}")
        scores = net.predict(X)
        chances = probabilities(scores)
        classes = np.arange(chances.shape[1])
        found = scores.argmax(axis=1) if scores.shape[1] > 1 else (scores[:, 0] > 0).astype(np.int64)
    if not len(found):
        raise ValueError("X: expected at least one example, got none")
    return Predictions(_names(class_names, classes), class_indices(y, classes, len(found)), found, chances)


def class_indices(y: ArrayLike, classes: Array, n: int) -> Array:
    """Returns the index of each label's class. Raises TypeError or ValueError for other labels."""
    labels = as_array(y, "y") if classes.dtype.kind in REAL else check_array(y, "y")
    labels = labels[:, 0] if labels.shape[1:] == (1,) else labels
    if labels.shape != (n,):
        raise ValueError(f"y: expected {n} labels, one for each example of X, got shape {labels.shape}")
    number = {label: i for i, label in enumerate(classes.tolist())}
    places = np.array([number.get(label, -1) for label in labels.tolist()])
    if (places < 0).any():
        raise ValueError(f"y: expected labels of the classes {list(number)}, got {labels[places.argmin()]!r}")
    return places


def _names(class_names: Sequence[str] | None, classes: Array) -> list[str]:
    if class_names is None:
        return [str(label) for label in classes]
    if isinstance(class_names, str):
        raise TypeError(f"class_names: expected a list of names, got {class_names!r}")
    if len(class_names) != len(classes):
        raise ValueError(f"class_names: expected {len(classes)} of them, got {len(class_names)}")
    return [" ".join(str(name).split()) for name in class_names]


def _image_shape(model: Sequential | Classifier, X: ArrayLike, image_shape: Shape | None) -> Shape:
    """Returns (channels, height, width) of the examples. Raises ValueError if it is unknown."""
    array = as_numbers(X, "X")
    if image_shape is not None:
        return check_image(image_shape, int(np.prod(array.shape[1:])))
    if array.ndim == 4:
        return array.shape[1:]
    if array.ndim == 3:
        return (1, *array.shape[1:])
    shape = getattr(getattr(model, "model_", model), "input_shape", None) or ()
    if array.ndim == 2 and len(shape) == 3 and np.prod(shape) == array.shape[1]:
        return shape
    raise ValueError(
        f"X: expected images, got shape {array.shape}: for rows of 784 numbers that are images, set "
        "image_shape=(1, 28, 28); for other data, use confusion_matrix"
    )
