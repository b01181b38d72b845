"""Metrics: functions `f(y, scores) -> float` of the targets and scores of all examples.

Scores are the outputs of a model, not labels: the label of a row is that of its highest score, the first of equal ones.
A single score stands for the labels 0 and 1, and 1 is predicted if it is above 0; so does each of several independent
labels. All metrics are computed on a whole epoch, without weights, and are NaN without examples. They raise TypeError
or ValueError for other shapes or labels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import numpy as np

from minidl.utils.arrays import Array, as_array
from minidl.utils.constructors import constructor_repr, readonly_argument
from minidl.utils.foreign_words import METRICS
from minidl.utils.hints import hint
from minidl.utils.validation import check_int

__all__ = ["Metric", "TopKAccuracy", "accuracy", "binary_accuracy", "subset_accuracy"]
__all__ += ["f1", "f1_macro", "mae", "mse", "precision", "precision_macro", "r2", "recall", "recall_macro", "rmse"]

Metric = Callable[[Array, Array], float]


# ---- one label per example, or per pixel


def accuracy(y: Array, scores: Array, ignore_index: int | None = None) -> float:
    """Returns the fraction of examples (or pixels) whose label is predicted.

    scores (n, classes) and y (n,), or scores (n, classes, h, w) and y (n, h, w). With a single score, y is 0 or 1.
    ignore_index: a label that counts nothing. A Trainer takes that of its loss, for all metrics of minidl.

    >>> import numpy as np
    >>> accuracy(np.array([0, 1]), np.array([[2.0, 1.0], [3.0, 0.0]]))
    0.5
    """
    labels, predicted = _labels("accuracy", y, scores, ignore_index)
    return float((predicted == labels).mean()) if labels.size else float("nan")


class TopKAccuracy:
    """The fraction of examples (or pixels) whose label has one of the k highest scores; k=1 is `accuracy`.

    Of equal scores, the first is the higher one. Shapes are those of `accuracy`, with at least two classes. The history
    calls it "top_5_accuracy" (for k=5), which is also a name for TopKAccuracy(5).

    Raises TypeError or ValueError unless k is an integer of at least 1.

    >>> import numpy as np
    >>> TopKAccuracy(2)(np.array([1, 2]), np.array([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]]))
    0.5
    """

    def __init__(self, k: int = 5) -> None:
        self._k = check_int("k", k)

    k = readonly_argument("k")

    @property
    def name(self) -> str:
        """Its name in the history."""
        return f"top_{self.k}_accuracy"

    def __repr__(self) -> str:
        return constructor_repr(self)

    def __call__(self, y: Array, scores: Array) -> float:
        """Returns the metric; raises ValueError for labels outside the classes."""
        labels, _ = _labels(self.name, y, scores)
        scores = np.moveaxis(np.asarray(scores), 1, -1)
        scores = scores.reshape(-1, scores.shape[-1])
        classes = scores.shape[1]
        if classes < 2 or not np.isin(labels, np.arange(classes)).all():
            got = "a single score" if classes < 2 else "other labels"
            raise ValueError(f"{self.name}: expected scores of at least two classes, and labels of them, got {got}")
        if not labels.size:
            return float("nan")
        columns = labels.astype(np.int64)[:, np.newaxis]
        own = np.take_along_axis(scores, columns, axis=1)
        before = (scores > own) | ((scores == own) & (np.arange(classes) < columns))
        return float(((before.sum(axis=1) < self.k) & ~np.isnan(own[:, 0])).mean())


def precision(y: Array, scores: Array) -> float:
    """Returns the fraction of right ones among the predictions of label 1, of two (sklearn.metrics.precision_score)."""
    return _of_two_labels("precision", y, scores)


def recall(y: Array, scores: Array) -> float:
    """Returns the fraction of the examples of label 1, of two, that are predicted (sklearn.metrics.recall_score)."""
    return _of_two_labels("recall", y, scores)


def f1(y: Array, scores: Array) -> float:
    """Returns the harmonic mean of precision and recall of label 1, of two (sklearn.metrics.f1_score)."""
    return _of_two_labels("f1", y, scores)


def precision_macro(y: Array, scores: Array) -> float:
    """Returns the precision of each label, averaged over those in y or predicted, or over independent labels."""
    return _over_labels("precision_macro", y, scores)


def recall_macro(y: Array, scores: Array) -> float:
    """Returns the recall of each label, averaged over those in y or predicted, or over independent labels."""
    return _over_labels("recall_macro", y, scores)


def f1_macro(y: Array, scores: Array) -> float:
    """Returns the F1 of each label, averaged over those in y or predicted, or over independent labels."""
    return _over_labels("f1_macro", y, scores)


def binary_accuracy(y: Array, scores: Array) -> float:
    """Returns the fraction of right labels, all rows together, for y of the shape of scores (as in Keras)."""
    labels, predicted = _binary_labels("binary_accuracy", y, scores)
    return float((labels == predicted).mean()) if labels.size else float("nan")


def subset_accuracy(y: Array, scores: Array) -> float:
    """Returns the fraction of rows with all labels right, for y of the shape of scores (as in scikit-learn)."""
    labels, predicted = _binary_labels("subset_accuracy", y, scores)
    right = (labels == predicted).all(axis=tuple(range(1, labels.ndim)))
    return float(right.mean()) if len(right) else float("nan")


def mae(y: Array, scores: Array) -> float:
    """Returns the mean absolute error over all outputs (sklearn.metrics.mean_absolute_error)."""
    targets, outputs = _numbers("mae", y, scores)
    return float(np.abs(outputs - targets).mean()) if targets.size else float("nan")


def mse(y: Array, scores: Array) -> float:
    """Returns the mean squared error over all outputs (sklearn.metrics.mean_squared_error)."""
    targets, outputs = _numbers("mse", y, scores)
    return float(np.square(outputs - targets).mean()) if targets.size else float("nan")


def rmse(y: Array, scores: Array) -> float:
    """Returns the root of `mse`."""
    targets, outputs = _numbers("rmse", y, scores)
    return float(np.sqrt(np.square(outputs - targets).mean())) if targets.size else float("nan")


def r2(y: Array, scores: Array) -> float:
    """Returns the coefficient of determination, averaged over outputs (sklearn.metrics.r2_score); NaN for one row."""
    targets, outputs = _numbers("r2", y, scores)
    if len(targets) < 2 or not targets.size or not np.isfinite(outputs).all():
        return float("nan")
    from sklearn.metrics import r2_score  # imports scipy: not before it is needed

    return float(r2_score(targets.reshape(len(targets), -1), outputs.reshape(len(outputs), -1)))


FUNCTIONS = (accuracy, binary_accuracy, subset_accuracy, f1, f1_macro, precision, precision_macro, recall, recall_macro)
ERRORS = (mae, mse, rmse)  # of which less is better
NAMES: dict[str, Metric] = {
    **{function.__name__: function for function in (*FUNCTIONS, r2, *ERRORS)},
    "top_5_accuracy": TopKAccuracy(5),
}


def _labels(name: str, y: Array, scores: Array, ignore_index: int | None = None) -> tuple[Array, Array]:
    """Returns the labels and the predicted labels of all examples or pixels that count, (m,) each."""
    y, scores = as_array(y, f"{name}: y"), as_array(scores, f"{name}: scores")
    if scores.ndim < 2 or scores.shape[1] < 1:
        raise ValueError(f"{name}: expected scores (n, classes), got {scores.shape}")
    shape, binary = (len(scores), *scores.shape[2:]), scores.shape[1] == 1
    if y.shape != shape and not (binary and y.shape == scores.shape):
        macro = f'"{name if name in ("precision", "recall") else "f1"}_macro" averages over labels'
        others = f", {macro}" if scores.ndim == 2 else ""
        hint = f': for several labels per row, "binary_accuracy" counts labels, "subset_accuracy" whole rows{others}'
        unit = "label per row of scores" if scores.ndim == 2 else "label per pixel"
        raise ValueError(
            f"{name}: expected y of shape {shape}, one {unit}, got {y.shape}{hint if y.shape == scores.shape else ''}"
        )
    labels, predicted = y.reshape(-1), (scores[:, 0] > 0 if binary else scores.argmax(axis=1)).reshape(-1)
    if ignore_index is not None:
        labels, predicted = labels[labels != ignore_index], predicted[labels != ignore_index]
    if binary and not np.isin(labels, (0, 1)).all():
        raise ValueError(f"{name}: expected labels 0 and 1 with a single score, got other values")
    return labels, predicted


def _binary_labels(name: str, y: Array, scores: Array) -> tuple[Array, Array]:
    """Returns the labels, 0 or 1 for each score, and the predicted ones, in the shape of scores."""
    labels, outputs = _numbers(name, y, scores)
    if not np.isin(labels, (0, 1)).all():
        raise ValueError(f"{name}: expected labels 0 and 1, one for each score, got other values")
    return (labels > 0).astype(np.int64), (outputs > 0).astype(np.int64)


def _numbers(name: str, y: Array, scores: Array) -> tuple[Array, Array]:
    """Returns targets and scores in float64, of equal shapes; y may be (n,) for scores (n, 1)."""
    y, scores = as_array(y, f"{name}: y"), as_array(scores, f"{name}: scores")
    if y.shape != scores.shape and not (scores.ndim == 2 and scores.shape[1] == 1 and y.shape == scores.shape[:1]):
        raise ValueError(f"{name}: expected y of the shape of scores, {scores.shape}, got {y.shape}")
    return y.reshape(scores.shape).astype(np.float64), scores.astype(np.float64)


def _of_two_labels(name: str, y: Array, scores: Array) -> float:
    """Returns scikit-learn's score of label 1."""
    labels, predicted = _labels(name, y, scores)
    classes = np.shape(scores)[1]
    if classes > 2:
        raise ValueError(f'{name}: expected scores of one or two classes, got {classes}: for more, "{name}_macro"')
    if not np.isin(labels, (0, 1)).all():
        raise ValueError(f"{name}: expected labels 0 and 1, got other values")
    return _sklearn_score(name, labels, predicted, "binary")


def _over_labels(name: str, y: Array, scores: Array) -> float:
    """Returns the mean of scikit-learn's scores of the labels; they are independent if y has the shape of scores."""
    y, scores = as_array(y, f"{name}: y"), as_array(scores, f"{name}: scores")
    independent = scores.ndim == 2 and scores.shape[1] > 1 and y.shape == scores.shape
    labels, predicted = (_binary_labels if independent else _labels)(name, y, scores)
    if not (np.floor(labels) == labels).all():
        raise ValueError(f"{name}: expected integer labels, got other values")
    return _sklearn_score(name.removesuffix("_macro"), labels, predicted, "macro")


def _sklearn_score(name: str, labels: Array, predicted: Array, average: str) -> float:
    """Returns precision, recall or F1; 0 where it is not defined."""
    if not labels.size:
        return float("nan")
    found = labels.astype(np.int64), predicted.astype(np.int64)
    from sklearn import metrics  # imports scipy: not before it is needed

    return float(getattr(metrics, f"{name}_score")(*found, average=average, zero_division=0))


# ---- metrics as users pass them


def get(metrics: Iterable[str | Metric]) -> dict[str, Metric]:
    """Returns a dict from name to function, from names and functions; raises ValueError or TypeError for others."""
    if isinstance(metrics, str):
        raise TypeError(f"metrics: expected a list such as [{metrics!r}], got {metrics!r}")
    by_name: dict[str, Metric] = {}
    for metric in metrics:
        if isinstance(metric, str):
            if metric not in NAMES:
                meant = _top_k_hint(metric) or hint(metric, METRICS, NAMES)
                raise ValueError(f"metrics: expected one of {sorted(NAMES)} or a function, got {metric!r}{meant}")
            name, function = metric, NAMES[metric]
        elif isinstance(metric, TopKAccuracy):
            name, function = metric.name, metric
        elif callable(metric):
            name, function = getattr(metric, "__name__", type(metric).__name__), metric
        else:
            raise TypeError(f"metrics: expected names or functions, got {metric!r}")
        if name in by_name or name in ("epoch", "loss", "lr", "images_per_second") or name.startswith("val_"):
            raise ValueError(f"metrics: expected a unique name for each, got {name!r}: rename the function")
        by_name[name] = function
    return by_name


def _top_k_hint(name: str) -> str:
    """Returns the hint for the name of a TopKAccuracy that has no name; an empty string for other words."""
    if (found := re.fullmatch(r"top_([1-9]\d*)_accuracy", name)) is None:
        return ""
    return "; use 'accuracy'" if found[1] == "1" else f"; use TopKAccuracy({found[1]}) of minidl.metrics"
