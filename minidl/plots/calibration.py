"""calibration_curve: how often predictions of a probability are right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from minidl.plots.figures import (
    BLUE,
    GREY,
    PALE_BLUE,
    TEXT_POINTS,
    TITLE_POINTS,
    count_label,
    figure_size,
    prepare_figure,
    truncate,
    wrap,
)
from minidl.plots.pixels import IGNORED
from minidl.plots.predictions import TICK_SPACE, Classifier, net_of_pixels, predictions_of
from minidl.sequential import Sequential
from minidl.utils.arrays import Array
from minidl.utils.validation import check_int

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

SIZE = (3.45, 3.9)  # inches
MAX_NAME_WIDTH = 1.4  # inches
MAX_BINS = 100


def calibration_curve(
    model: Sequential | Classifier,
    X: ArrayLike,
    y: ArrayLike,
    class_names: Sequence[str] | None = None,
    n_bins: int = 10,
    figure: Figure | SubFigure | None = None,
    ignore_index: int | None = None,
) -> Figure:
    """Draws how often predictions are right, by their probability, over a histogram of the probabilities.

    Of two classes, the probability is that of the second class; of more, that of the predicted class. Examples are
    divided into bins of equal width. A dot is a bin: the mean probability of its examples, and the share of them that
    are of this class. On the diagonal, both are equal. The title has the expected calibration error: the mean over all
    examples of the distance between both in an example's bin. Draw it of examples that the model has not seen.

    Parameters
    ----------
    model : Sequential or classifier
        A Sequential with one score per class, or one score, of each example; or a classifier with `predict_proba` and
        `classes_`.
    X : array-like of shape (n, ...), or data frame
        Examples, as the model takes them.
    y : array-like of shape (n,)
        Labels of the classes, as in `fit`.
    class_names : list of str or None, default None
        A name for each class, in order; None: the model's `classes`, or else the labels.
    n_bins : int, default 10
        Number of bins between 0 and 1, at most 100.
    figure : Figure, SubFigure or None, default None
        An empty one to draw into; None: a new one, not registered with pyplot.
    ignore_index : int or None, default None
        Label of the examples that are left out, as in the loss.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Raises
    ------
    TypeError, ValueError
        For unknown labels, labels that are all left out, a wrong number of class names or of bins, a model that is not
        a classifier of examples, and probabilities that are not from 0 to 1.
    ImportError
        Without Matplotlib: pip install "minidl[plot]".

    References
    ----------
    Guo, Pleiss, Sun, Weinberger, "On Calibration of Modern Neural Networks" (2017), arXiv:1706.04599.

    Examples
    --------
    A model that is always sure, and right for three of four examples:

    >>> from minidl import Sequential, plots
    >>> from minidl.layers import Flatten, Rescale
    >>> model = Sequential([Flatten(), Rescale(100.0)], input_shape=(1, 1, 3))
    >>> X = [[[[1, 0, 0]]], [[[0, 1, 0]]], [[[0, 0, 1]]], [[[0, 0, 1]]]]
    >>> figure = plots.calibration_curve(model, X, [0, 1, 2, 0])
    >>> figure.axes[0].get_title(loc="left")
    'expected calibration error 0.250, 4 examples'
    """
    n_bins = check_int("n_bins", n_bins, 1, MAX_BINS)
    if net_of_pixels(model, X) is not None:
        raise ValueError("model: expected a classifier of examples, got a net with scores for each pixel")
    predictions = predictions_of(model, X, y, class_names, ignore_index)
    if not ((predictions.probabilities >= 0) & (predictions.probabilities <= 1)).all():
        raise ValueError("model: expected probabilities from 0 to 1, got others, or NaN")
    used = predictions.labels != IGNORED
    if not used.any():
        raise ValueError(f"y: expected a label beside {ignore_index}, which is left out, got none")
    names = predictions.class_names
    if len(names) == 2:
        given, right, what = predictions.probabilities[used, 1], predictions.labels[used] == 1, names[1]
    else:
        given, right, what = predictions.confidence[used], ~predictions.is_wrong[used], "the predicted class"
    bins = np.minimum((given * n_bins).astype(np.int64), n_bins - 1)
    counts = np.bincount(bins, minlength=n_bins)
    filled = counts > 0
    mean, share = (np.bincount(bins, of, n_bins)[filled] / counts[filled] for of in (given, right))
    error = float(np.average(np.abs(mean - share), weights=counts[filled]))

    width, height = figure_size(figure)
    result: Figure = prepare_figure(figure, *SIZE)
    title = f"expected calibration error {error:.3f}, {count_label(len(given), 'example')}"
    title = wrap(title, (width if height else SIZE[0]) - TICK_SPACE)
    _draw(result, mean, share, counts, title, truncate(what, MAX_NAME_WIDTH))
    return result


def _draw(figure: Any, mean: Array, share: Array, counts: Array, title: str, what: str) -> None:
    """Draws the curve over a histogram of the probabilities."""
    curve, histogram = figure.subplots(2, sharex=True, height_ratios=(3, 1))
    curve.plot([0, 1], [0, 1], color=GREY, linewidth=0.6, linestyle="--")
    curve.plot(mean, share, color=BLUE, linewidth=1.2, marker="o", markersize=3.5, clip_on=False)
    curve.set(xlim=(0, 1), ylim=(0, 1))
    curve.set_title(title, loc="left", fontsize=TITLE_POINTS)
    curve.set_ylabel(f"share of {what}", fontsize=TEXT_POINTS, parse_math=False)
    edges = np.linspace(0, 1, len(counts) + 1)
    histogram.bar(edges[:-1], counts, np.diff(edges), align="edge", color=PALE_BLUE, edgecolor="white", linewidth=0.4)
    histogram.set_xlabel(f"predicted probability of {what}", fontsize=TEXT_POINTS, parse_math=False)
    histogram.set_ylabel("examples", fontsize=TEXT_POINTS)
    for axes in (curve, histogram):
        axes.tick_params(labelsize=TEXT_POINTS, length=2)
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set(color=GREY, linewidth=0.4)
