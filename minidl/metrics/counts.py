"""Counts of labels: whole numbers that add up over parts of the data, and of which a metric is a function.

So a fit needs not keep the scores of an epoch for the metrics that count, and their values do not depend on the parts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidl.utils.arrays import Array, as_array

Counts = NDArray[np.int64]
RIGHT, PREDICTED, ACTUAL = range(3)  # the rows of counts by class: of right predictions, all predictions, all labels


@dataclass(frozen=True)
class Counting:
    """How a metric is made of counts.

    count(name, y, scores, ignore_index): the counts of some examples; raises TypeError or ValueError, beginning with
    the metric's name. value(name, counts): the metric.
    """

    count: Callable[[str, Array, Array, int | None], Counts]
    value: Callable[[str, Counts], float]

    def of(self, name: str, y: Any, scores: Any, ignore_index: int | None = None) -> float:
        """Returns the metric of all examples."""
        return self.value(name, self.count(name, y, scores, ignore_index))


# ---- what is counted


def by_class(name: str, y: Array, scores: Array, ignore_index: int | None = None) -> Counts:
    """Counts one label per example or pixel: (3, classes + 1), where the last class stands for labels of no class.

    Of a single score: (3, 1, 3), as `by_label` counts it.
    """
    labels, predicted, classes = one_label(name, y, scores, ignore_index)
    counts = _counted(labels, predicted, classes)
    return counts[:, np.newaxis] if np.shape(scores)[1] == 1 else counts


def by_label(name: str, y: Array, scores: Array, ignore_index: int | None = None) -> Counts:
    """Counts the labels 0 and 1 of each of k scores: (3, k, 3)."""
    labels, predicted = independent_labels(name, y, scores, ignore_index)
    columns = (np.moveaxis(array, 1, 0).reshape(array.shape[1], -1) for array in (labels, predicted))
    return np.stack([_counted(own[own >= 0], found[own >= 0], 2) for own, found in zip(*columns, strict=True)], axis=1)


def by_class_or_label(name: str, y: Array, scores: Array, ignore_index: int | None = None) -> Counts:
    """Counts independent labels if y has the shape of several scores, one label per example or pixel otherwise."""
    shape = np.shape(scores)
    independent = len(shape) > 1 and shape[1] > 1 and np.shape(y) == shape
    return (by_label if independent else by_class)(name, y, scores, ignore_index)


def by_row(name: str, y: Array, scores: Array, ignore_index: int | None = None) -> Counts:
    """Counts rows with a label: (2,), those of which all labels are right, and all."""
    labels, predicted = independent_labels(name, y, scores, ignore_index)
    axes = tuple(range(1, labels.ndim))
    right, known = ((labels == predicted) | (labels < 0)).all(axis=axes), (labels >= 0).any(axis=axes)
    return np.array([(right & known).sum(), known.sum()], np.int64)


def _counted(labels: Array, predicted: Array, classes: int) -> Counts:
    """Returns the counts (3, classes + 1) of labels and predicted classes, (m,) each."""
    if labels.dtype.kind not in "iu" or (labels.size and (labels.min() < 0 or labels.max() >= classes)):
        known = (labels >= 0) & (labels < classes) & (labels == np.floor(labels))
        labels = np.where(known, labels, classes)
    labels, predicted = labels.astype(np.intp, copy=False), predicted.astype(np.intp, copy=False)
    counts = np.empty((3, classes + 1), np.int64)
    for row, found in ((RIGHT, predicted[labels == predicted]), (PREDICTED, predicted), (ACTUAL, labels)):
        counts[row] = np.bincount(found, minlength=classes + 1)
    return counts


# ---- labels and predictions


def one_label(name: str, y: Array, scores: Array, ignore_index: int | None = None) -> tuple[Array, NDArray[Any], int]:
    """Returns the labels and the predicted labels of all examples or pixels that count, (m,), and the classes."""
    y, scores = as_array(y, f"{name}: y"), as_array(scores, f"{name}: scores")
    if scores.ndim < 2 or scores.shape[1] < 1:
        raise ValueError(f"{name}: expected scores (n, classes), got {scores.shape}")
    shape, single = (len(scores), *scores.shape[2:]), scores.shape[1] == 1
    if y.shape != shape and not (single and y.shape == scores.shape):
        raise ValueError(_no_labels(name, y, scores))
    labels, predicted = y.reshape(-1), (scores[:, 0] > 0 if single else scores.argmax(axis=1)).reshape(-1)
    if ignore_index is not None:
        counts = labels != ignore_index
        labels, predicted = labels[counts], predicted[counts]
    if single and not np.isin(labels, (0, 1)).all():
        raise ValueError(f"{name}: expected labels 0 and 1 with a single score, got other values")
    return labels, predicted, max(2, scores.shape[1])


def _no_labels(name: str, y: Array, scores: Array) -> str:
    """Returns the message for y that does not have one label per example or pixel."""
    shape = (len(scores), *scores.shape[2:])
    hint = ""
    if y.shape == scores.shape:
        macro = f'"{name if name in ("precision", "recall") else "f1"}_macro" averages over labels'
        others = f", {macro}" if scores.ndim == 2 else ""
        hint = f': for several labels per row, "binary_accuracy" counts labels, "subset_accuracy" whole rows{others}'
    unit = "label per row of scores" if scores.ndim == 2 else "label per pixel"
    return f"{name}: expected y of shape {shape}, one {unit}, got {y.shape}{hint}"


def independent_labels(
    name: str, y: Array, scores: Array, ignore_index: int | None = None
) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
    """Returns the labels, 0 or 1 for each score and -1 for those ignored, and whether they are predicted."""
    y, scores = of_equal_shapes(name, y, scores)
    known = np.ones(y.shape, bool) if ignore_index is None else y != ignore_index
    if not (np.isin(y, (0, 1)) | ~known).all():
        raise ValueError(f"{name}: expected labels 0 and 1, one for each score, got other values")
    return np.where(known, y > 0, -1).astype(np.int8), scores > 0


def of_equal_shapes(name: str, y: Array, scores: Array) -> tuple[Array, Array]:
    """Returns targets and scores as arrays of equal shapes; y may be (n, ...) for scores (n, 1, ...)."""
    y, scores = as_array(y, f"{name}: y"), as_array(scores, f"{name}: scores")
    single = scores.ndim > 1 and scores.shape[1] == 1 and y.shape == (len(scores), *scores.shape[2:])
    if y.shape != scores.shape and not single:
        raise ValueError(f"{name}: expected y of the shape of scores, {scores.shape}, got {y.shape}")
    return y.reshape(scores.shape), scores


# ---- values


def fraction_right(name: str, counts: Counts) -> float:
    """Returns the fraction of labels that are predicted."""
    return ratio(counts[RIGHT].sum(), counts[ACTUAL].sum(), float("nan"))


def fraction_of_rows(name: str, counts: Counts) -> float:
    """Returns the fraction of rows that are right."""
    return ratio(counts[0], counts[1], float("nan"))


def ratio(a: Any, b: Any, otherwise: float = 0.0) -> float:
    """Returns a / b, or another value for b = 0."""
    return float(a / b) if b else otherwise


def precision_of(counts: Counts) -> float:
    """Returns the precision of one class, of counts (3,)."""
    return ratio(counts[RIGHT], counts[PREDICTED])


def recall_of(counts: Counts) -> float:
    """Returns the recall of one class, of counts (3,)."""
    return ratio(counts[RIGHT], counts[ACTUAL])


def f1_of(counts: Counts) -> float:
    """Returns F1 of one class, of counts (3,): its Dice coefficient."""
    return ratio(2 * counts[RIGHT], counts[PREDICTED] + counts[ACTUAL])


def iou_of(counts: Counts) -> float:
    """Returns the intersection over the union of one class, of counts (3,)."""
    return ratio(counts[RIGHT], counts[PREDICTED] + counts[ACTUAL] - counts[RIGHT])


def of_label_1(of_class: Callable[[Counts], float]) -> Callable[[str, Counts], float]:
    """Returns the value of label 1, of two."""

    def value(name: str, counts: Counts) -> float:
        counts = counts[:, 0] if counts.ndim == 3 else counts
        if counts.shape[1] != 3:
            got = counts.shape[1] - 1
            raise ValueError(f'{name}: expected scores of one or two classes, got {got}: for more, "{name}_macro"')
        if counts[ACTUAL, 2]:
            raise ValueError(f"{name}: expected labels 0 and 1, got other values")
        return of_class(counts[:, 1]) if counts[ACTUAL].any() else float("nan")

    return value


def macro(of_class: Callable[[Counts], float]) -> Callable[[str, Counts], float]:
    """Returns the mean over the labels 1 of independent scores, or else over the classes in y or predicted."""

    def value(name: str, counts: Counts) -> float:
        if counts.ndim == 3 and counts.shape[1] > 1:
            return _mean_of(of_class, counts[:, :, 1]) if counts[ACTUAL].any() else float("nan")
        return _mean_of(of_class, _occurring(_by_class_alone(name, counts)))

    return value


def of_regions(of_class: Callable[[Counts], float]) -> Callable[[str, Counts], float]:
    """Returns the mean over the classes in y or predicted; of independent labels, over their labels 1."""

    def value(name: str, counts: Counts) -> float:
        return _mean_of(of_class, _occurring(counts[:, :, 1] if counts.ndim == 3 else _by_class_alone(name, counts)))

    return value


def _by_class_alone(name: str, counts: Counts) -> Counts:
    """Returns counts (3, classes); raises ValueError if there are labels of no class."""
    counts = counts[:, 0] if counts.ndim == 3 else counts
    if counts[ACTUAL, -1]:
        raise ValueError(f"{name}: expected labels from 0 to {counts.shape[1] - 2}, got other values")
    return counts[:, :-1]


def _occurring(counts: Counts) -> Counts:
    """Returns the counts of the classes that are in y or predicted."""
    return counts[:, (counts[PREDICTED] > 0) | (counts[ACTUAL] > 0)]


def _mean_of(of_class: Callable[[Counts], float], counts: Counts) -> float:
    """Returns the mean of the values of some classes, (3, classes); NaN without one."""
    return float(np.mean([of_class(each) for each in counts.T])) if counts.shape[1] else float("nan")
