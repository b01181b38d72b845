"""misclassified and confusion_matrix: where a classifier is wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import ArrayLike

from minidl.losses import probabilities
from minidl.plots.figures import SMALL, TEXT, counted, inches, ready, room, shortened
from minidl.plots.image_grid import GAP, LABEL, LEAST, RISE, Tiles, area, arranged, pictures, tile_ratio
from minidl.plots.models import image_of, model_in
from minidl.sequential import Sequential
from minidl.utils.arrays import REAL, Array, as_array, check_array
from minidl.utils.data import as_numbers
from minidl.utils.validation import Shape, check_int

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

LINES = 2 * LABEL  # inches: two lines above an image
TICKS = 0.45  # inches: beside a matrix, without the names of classes
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
    max_examples: int = 16,
    image_shape: Shape | None = None,
    figure: Figure | SubFigure | None = None,
) -> Figure:
    """The images that a classifier gets wrong, those first of which it is surest; returns the figure.

    model: a Sequential with a score for each class, or one score; or what has `predict_proba` and `classes_`.
    X, y: as in `fit`, y with labels of classes. class_names: of all classes, in their order; None: the labels.
    max_examples: how many to draw at most.
    image_shape: (channels, height, width), where X has rows of numbers and the model does not know better.
    figure: an empty Figure or SubFigure to draw into; None: a new one, which pyplot does not know.

    Above each image stand the class that was found and its probability, and the true class. If all are right, the
    figure says so.

    Raises TypeError or ValueError, saying what was expected, for an X that has no images, labels that are no classes,
    names of another number, or a model that does not classify.
    """
    max_examples, shape = check_int("max_examples", max_examples), _image_shape(model, X, image_shape)
    judged = _judged(model, X, y, class_names)
    width, height = area(figure)
    wrong = np.flatnonzero(judged.found != judged.true)
    truth = judged.probabilities[wrong, judged.true[wrong]]
    worst = wrong[np.lexsort((truth, -judged.sure[wrong]))][:max_examples]
    if not len(worst):
        return Tiles(figure, 3.0, 0.3, f"None of {counted(len(judged.found), 'example')} misclassified").finish()
    lines = [
        ((judged.names[judged.found[i]], f": {judged.sure[i]:.0%}"), ("true ", judged.names[judged.true[i]]))
        for i in worst
    ]
    text = min(WIDE, max(inches("".join(line)) for pair in lines for line in pair))
    ratio, least = tile_ratio(*shape[1:]), LARGE if figure is None else LEAST
    grid = arranged(len(worst), width, height, ratio, above=LINES, text=text, least=least, tallest=math.inf)
    wide, high = max(grid.cell, text), grid.cell * ratio

    first = f"; the {grid.shown} of which the model is surest" if grid.shown < len(wrong) else ""
    title = f"{len(wrong)} of {counted(len(judged.found), 'example')} misclassified{first}"
    tiles = Tiles(figure, grid.columns * (wide + GAP), grid.rows * (high + LINES + GAP), title)
    images, grey = pictures(as_numbers(X, "X")[worst[: grid.shown]].reshape(-1, *shape))
    for k, image in enumerate(images):
        below, column = divmod(k, grid.columns)
        x, y_image = column * (wide + GAP), below * (high + LINES + GAP) + LINES
        (name, sure), (true, true_name) = lines[k]
        name, true_name = shortened(name, wide - inches(sure)), shortened(true_name, wide - inches(true))
        tiles.text(f"{name}{sure}\n{true}{true_name}", x, y_image - RISE, ha="left", va="bottom")
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
    """How often each class (row) was taken for each class (column), by scikit-learn's ConfusionMatrixDisplay.

    model, X, y, class_names, figure: as of `misclassified`; X need not be images.
    normalize: "true", shares of each row; "pred", of each column; "all", of all examples; None: counts.

    Where numbers would not fit into the cells, a bar of colours takes their place. Returns the figure; raises as
    `misclassified`, and ValueError for another normalize.
    """
    if normalize not in (None, "true", "pred", "all"):
        raise ValueError(f"normalize: expected 'true', 'pred', 'all' or None, got {normalize!r}")
    judged = _judged(model, X, y, class_names)
    names = [shortened(name, WIDE) for name in judged.names]
    number = inches("0.00" if normalize else str(np.bincount(judged.true).max())) + GAP
    longest = max(map(inches, names))
    width, height = room(figure)
    if height is None:
        side = min(max(2.2, len(names) * max(number, 0.3)), width - longest - TICKS)
        width, height = side + longest + TICKS, side + TICKS + (longest if longest > side / len(names) else 0)
    cell = (width - longest - TICKS) / len(names)
    upright = longest > cell
    cell = min(cell, (height - TICKS - upright * longest) / len(names))
    bar = cell < number
    cell = max(cell - bar * 0.5 / len(names), 0.01)

    drawn: Figure = ready(figure, width, height)
    axes = drawn.add_subplot()
    _draw_matrix(axes, judged, normalize, bar)
    every = slice(None, None, math.ceil(1.15 * SMALL / 72 / cell))  # names that do not touch
    axes.set_yticks(range(len(names))[every], names[every], parse_math=False)
    axes.set_xticks(range(len(names))[every], names[every], parse_math=False, rotation=90 * upright)
    axes.set_xlabel("predicted class", fontsize=TEXT)
    axes.set_ylabel("true class", fontsize=TEXT)
    for one in drawn.axes:
        one.tick_params(labelsize=SMALL)
    return drawn


def _draw_matrix(axes: Axes, judged: Judged, normalize: str | None, bar: bool) -> None:
    """The cells, of all classes, with numbers or a bar of colours."""
    from sklearn.metrics import ConfusionMatrixDisplay

    ConfusionMatrixDisplay.from_predictions(
        judged.true,
        judged.found,
        labels=np.arange(len(judged.names)),
        normalize=normalize,
        include_values=not bar,
        values_format=".2f" if normalize else "d",
        cmap="Blues",
        colorbar=bar,
        ax=axes,
        text_kw={"fontsize": SMALL},
    )


def _judged(model: Sequential | Classifier, X: ArrayLike, y: ArrayLike, class_names: Sequence[str] | None) -> Judged:
    """Predictions beside the truth; raises TypeError or ValueError for what does not fit together."""
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
    return Judged(_names(class_names, classes), class_numbers(y, classes, len(found)), found, chances)


def class_numbers(y: ArrayLike, classes: Array, n: int) -> Array:
    """The number of each label's class; raises TypeError or ValueError for labels of none."""
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
    """(channels, height, width) of the examples; raises ValueError if nobody says that they are images."""
    array = as_numbers(X, "X")
    if image_shape is not None:
        return image_of(image_shape, int(np.prod(array.shape[1:])))
    if array.ndim == 4:
        return array.shape[1:]
    if array.ndim == 3:
        return (1, *array.shape[1:])
    shape = getattr(getattr(model, "model_", model), "input_shape", None) or ()
    if array.ndim == 2 and len(shape) == 3 and np.prod(shape) == array.shape[1]:
        return shape
    raise ValueError(
        f"X: expected images, got shape {array.shape}: image_shape=(1, 28, 28) says that rows of 784 numbers are "
        "images; of other rows, confusion_matrix tells what they are taken for"
    )
