"""misclassified and confusion_matrix: where a classifier is wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import ArrayLike

from minidl.arrays import Array, as_array, unmasked
from minidl.layer import Shape
from minidl.losses import probabilities
from minidl.plots.figures import SMALL, TEXT, counted, inches, ready, room, shortened
from minidl.plots.places import image_of, model_in
from minidl.plots.tiles import GAP, LABEL, LEAST, Tiles, area, arranged, pictures, tile_ratio
from minidl.sequential import Sequential
from minidl.shapes import whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

LINES = 2 * LABEL  # inches: two lines above an image
TICKS = 0.55  # inches: at the side of a matrix, beside the names of classes
WIDE, LARGE = 1.4, 0.6  # inches: of the text above an image, at most; of an image where there is room


class Classifier(Protocol):
    """What scikit-learn calls a classifier."""

    classes_: Array

    def predict_proba(self, X: ArrayLike) -> Array:
        """(n, classes)."""


@dataclass(frozen=True)
class Judged:
    """What a model predicts, beside what is true: numbers of classes, and the probabilities of all of them."""

    names: list[str]
    true: Array
    found: Array
    probabilities: Array

    @property
    def sure(self) -> Array:
        """The probability of the class that was found."""
        return self.probabilities[np.arange(len(self.found)), self.found]


def misclassified(
    model: Sequential | Classifier,
    X: ArrayLike,
    y: ArrayLike,
    class_names: Sequence[str] | None = None,
    most: int = 16,
    image_shape: Shape | None = None,
    figure: Figure | SubFigure | None = None,
) -> Figure:
    """The images that a classifier gets wrong, those first of which it is surest; returns the figure.

    model: a Sequential with a score for each class, or one score; or what has `predict_proba` and `classes_`.
    X, y: as in `fit`, y with labels of classes. class_names: of all classes, in their order; None: the labels.
    most: how many to draw at most. image_shape: (channels, height, width), where X has rows of numbers and the model
        does not know better.
    figure: an empty Figure or SubFigure to draw into; None: a new one, which pyplot does not know.

    Above each image stand the class that was found and its probability, and the true class. If all are right, the
    figure says so.

    Raises TypeError or ValueError, saying what was expected, for an X that has no images, labels that are no classes,
    names of another number, or a model that does not classify.
    """
    most, shape = whole("most", most), _image_shape(model, X, image_shape)
    judged = _judged(model, X, y, class_names)
    width, height = area(figure)
    wrong = np.flatnonzero(judged.found != judged.true)
    truth = judged.probabilities[wrong, judged.true[wrong]]
    worst = wrong[np.lexsort((truth, -judged.sure[wrong]))][:most]
    if not len(worst):
        return Tiles(figure, 3.0, 0.3, f"None of {counted(len(judged.found), 'example')} misclassified").finish()
    found = [(judged.names[judged.found[i]], f": {judged.sure[i]:.0%}") for i in worst]
    true = [("true ", judged.names[judged.true[i]]) for i in worst]
    text = max(inches("".join(line)) for line in found + true)
    ratio, text, least = tile_ratio(*shape[1:]), min(text, WIDE), LARGE if figure is None else LEAST
    grid = arranged(len(worst), width, height, ratio, above=LINES, text=text, least=least, tallest=math.inf)
    worst, wide = worst[: grid.shown], max(grid.cell, text)
    step, row = wide + GAP, grid.cell * ratio + LINES + GAP

    images, grey = pictures(as_array(X, "X")[worst].reshape(-1, *shape))
    first = f"; the {len(worst)} of which the model is surest" if len(worst) < len(wrong) else ""
    title = f"{len(wrong)} of {counted(len(judged.found), 'example')} misclassified{first}"
    tiles = Tiles(figure, grid.columns * step, grid.rows * row, title)
    for k, image in enumerate(images):
        x, y_top = k % grid.columns * step, k // grid.columns * row + LINES
        (name, sure), (label, truth_name) = found[k], true[k]
        lines = [shortened(name, wide - inches(sure)) + sure, label + shortened(truth_name, wide - inches(label))]
        tiles.text("\n".join(lines), x, y_top - 0.04, ha="left", va="bottom")
        tiles.image(image, x, y_top, grid.cell, grid.cell * ratio, **grey)
    return tiles.finish()


def confusion_matrix(
    model: Sequential | Classifier,
    X: ArrayLike,
    y: ArrayLike,
    class_names: Sequence[str] | None = None,
    normalize: str | None = None,
    figure: Figure | SubFigure | None = None,
) -> Figure:
    """How often each class (row) was taken for each class (column), by scikit-learn's ConfusionMatrixDisplay.

    model, X, y, class_names, figure: as of `misclassified`; X need not be images.
    normalize: "true", shares of each row; "pred", of each column; "all", of all examples; None: counts.

    Where numbers would not fit into the cells, a bar of colours takes their place. Returns the figure; raises as
    `misclassified`, and ValueError for another normalize.
    """
    if normalize not in (None, "true", "pred", "all"):
        raise ValueError(f"normalize: expected 'true', 'pred', 'all' or None, got {normalize!r}")
    judged = _judged(model, X, y, class_names)
    width, height = room(figure)
    names = [shortened(name, WIDE) for name in judged.names]
    longest = max(map(inches, names)) + TICKS
    number = inches("0.00" if normalize else str(np.bincount(judged.true).max())) + GAP
    if height is None:
        side = min(max(2.2, len(names) * max(number, 0.3)), width - longest)
        width, height = side + longest, side + (longest if longest - TICKS > side / len(names) else TICKS)
    cell = (width - longest) / len(names)
    upright = longest - TICKS > cell
    cell = min(cell, (height - (longest if upright else TICKS)) / len(names))
    drawn: Figure = ready(figure, width, height)

    from sklearn.metrics import ConfusionMatrixDisplay

    axes = drawn.add_subplot()
    ConfusionMatrixDisplay.from_predictions(
        judged.true,
        judged.found,
        labels=np.arange(len(names)),
        display_labels=names,
        normalize=normalize,
        include_values=cell >= number,
        values_format=".2f" if normalize else "d",
        xticks_rotation="vertical" if upright else "horizontal",
        cmap="Blues",
        colorbar=cell < number,
        ax=axes,
        text_kw={"fontsize": SMALL},
    )
    for one in drawn.axes:
        one.tick_params(labelsize=SMALL)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_fontsize(TEXT)
    for tick in [*axes.get_xticklabels(), *axes.get_yticklabels()]:
        tick.set_parse_math(False)
    return drawn


def _judged(model: Sequential | Classifier, X: ArrayLike, y: ArrayLike, class_names: Sequence[str] | None) -> Judged:
    """Predictions beside the truth; raises TypeError or ValueError for what does not fit together."""
    if hasattr(model, "classes_"):
        chances = as_array(model.predict_proba(X), "model: predict_proba(X)")
        classes, found = np.asarray(model.classes_), chances.argmax(axis=1)
    else:
        net = model_in(model)
        if len(net.output_shape) != 1:
            raise ValueError(f"model: expected one with outputs (classes,), got {net.output_shape}")
        scores = net.predict(X)
        chances = probabilities(scores)
        classes = np.arange(chances.shape[1])
        found = scores.argmax(axis=1) if scores.shape[1] > 1 else (scores[:, 0] > 0).astype(np.int64)
    labels = unmasked(y, "y")
    labels = labels[:, 0] if labels.shape[1:] == (1,) else labels
    if labels.shape != found.shape:
        raise ValueError(f"y: expected {len(found)} labels, one for each example of X, got shape {labels.shape}")
    if not len(found):
        raise ValueError("X: expected at least one example, got none")
    unknown = labels[~np.isin(labels, classes)]
    if len(unknown):
        raise ValueError(f"y: expected labels of the classes {classes.tolist()}, got {unknown[0]!r}")
    return Judged(_names(class_names, classes), np.searchsorted(classes, labels), found, chances)


def _names(class_names: Sequence[str] | None, classes: Array) -> list[str]:
    if class_names is None:
        return [str(label) for label in classes]
    if isinstance(class_names, str):
        raise TypeError(f"class_names: expected a list of names, got {class_names!r}")
    if len(class_names) != len(classes):
        raise ValueError(f"class_names: expected {len(classes)} of them, got {len(class_names)}")
    return [str(name) for name in class_names]


def _image_shape(model: Sequential | Classifier, X: ArrayLike, image_shape: Shape | None) -> Shape:
    """(channels, height, width) of the examples; raises ValueError if nobody says that they are images."""
    array = as_array(X, "X")
    if image_shape is not None:
        return image_of(image_shape, int(np.prod(array.shape[1:])))
    if array.ndim == 4:
        return array.shape[1:]
    if array.ndim == 3:
        return (1, *array.shape[1:])
    shape = getattr(getattr(model, "model_", model), "input_shape", ())
    if array.ndim == 2 and len(shape) == 3 and np.prod(shape) == array.shape[1]:
        return shape
    raise ValueError(
        f"X: expected images, got shape {array.shape}: image_shape=(1, 28, 28) says that rows of 784 numbers are "
        "images; of other rows, confusion_matrix tells what they are taken for"
    )
