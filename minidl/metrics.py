"""Metrics: functions `f(y, scores) -> float` of the targets and scores of all examples.

Scores are the outputs of a model, not labels: the label of a row is that of its highest score, the first of equal ones.
A single score stands for the labels 0 and 1, and 1 is predicted if it is above 0; so does each of several independent
labels. All metrics are computed on a whole epoch, without weights, and are NaN without examples. They raise TypeError
or ValueError for other shapes or labels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from minidl.utils.arrays import Array, as_array
from minidl.utils.constructors import constructor_repr, readonly_argument
from minidl.utils.foreign_words import METRICS
from minidl.utils.hints import SCORES, TARGETS, check_order, class_hint, hint
from minidl.utils.validation import check_int

__all__ = ["Metric", "TopKAccuracy", "accuracy", "binary_accuracy", "subset_accuracy"]
__all__ += ["f1", "f1_macro", "mae", "mse", "precision", "precision_macro", "r2", "recall", "recall_macro", "rmse"]

Metric = Callable[[Array, Array], float]


# ---- one label per example, or per pixel


def accuracy(y: Array, scores: Array, ignore_index: int | None = None) -> float:
    """Returns the fraction of examples (or pixels) whose label is predicted.

    Parameters
    ----------
    y : array-like of shape (n,) or (n, h, w)
        Labels, from 0. With a single score, 0 or 1.
    scores : array-like of shape (n, classes) or (n, classes, h, w)
        Outputs of a model. The predicted label is that of the highest score, the first of equal ones; 1 for a single
        score above 0.
    ignore_index : int or None, default None
        A label that counts nothing. A Trainer takes that of its loss, for all metrics of minidl.

    Returns
    -------
    float
        From 0 to 1; NaN without examples.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or shape, or if a label is none of these.

    Examples
    --------
    >>> from minidl.metrics import accuracy
    >>> accuracy([0, 1], [[2.0, 1.0], [3.0, 0.0]])
    0.5
    """
    labels, predicted = _labels("accuracy", y, scores, ignore_index)
    return float((predicted == labels).mean()) if labels.size else float("nan")


class TopKAccuracy:
    """The fraction of examples (or pixels) whose label has one of the k highest scores; k=1 is `accuracy`.

    Of equal scores, the first is the higher one. The history calls it "top_5_accuracy" (for k=5), which is also a name
    for `TopKAccuracy(5)`. It is a function of `y` and `scores`, whose shapes are those of `accuracy`, with at least two
    classes.

    Parameters
    ----------
    k : int, default 5
        Number of scores.

    Raises
    ------
    TypeError, ValueError
        If k is not an integer of at least 1; in a call, if shapes or labels are invalid.

    Examples
    --------
    >>> from minidl.metrics import TopKAccuracy
    >>> TopKAccuracy(2)([1, 2], [[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
    0.5
    """

    def __init__(self, k: int = 5) -> None:
        self._k = check_int("k", k)

    k = readonly_argument("k")

    @property
    def name(self) -> str:
        """Its name in the history, such as "top_5_accuracy"."""
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
    """Returns the fraction of right ones among the predictions of label 1, of two.

    It is sklearn.metrics.precision_score.

    Parameters
    ----------
    y : array-like of shape (n,) or (n, h, w)
        Labels 0 and 1.
    scores : array-like of shape (n, 1), (n, 2), (n, 1, h, w) or (n, 2, h, w)
        Outputs of a model: a single score, above 0 for label 1, or one for each label.

    Returns
    -------
    float
        From 0 to 1, and 0 if label 1 is never predicted; NaN without examples.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or shape, or if a label is none of these.

    Examples
    --------
    >>> from minidl.metrics import precision
    >>> round(precision([0, 0, 1, 1], [[-1.0], [1.0], [1.0], [1.0]]), 3)
    0.667
    """
    return _of_two_labels("precision", y, scores)


def recall(y: Array, scores: Array) -> float:
    """Returns the fraction of the examples of label 1, of two, that are predicted.

    It is sklearn.metrics.recall_score.

    Parameters
    ----------
    y : array-like of shape (n,) or (n, h, w)
        Labels 0 and 1.
    scores : array-like of shape (n, 1), (n, 2), (n, 1, h, w) or (n, 2, h, w)
        Outputs of a model: a single score, above 0 for label 1, or one for each label.

    Returns
    -------
    float
        From 0 to 1, and 0 if there is no label 1; NaN without examples.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or shape, or if a label is none of these.

    Examples
    --------
    >>> from minidl.metrics import recall
    >>> recall([0, 0, 1, 1], [[-1.0], [1.0], [1.0], [1.0]])
    1.0
    """
    return _of_two_labels("recall", y, scores)


def f1(y: Array, scores: Array) -> float:
    """Returns the harmonic mean of precision and recall of label 1, of two.

    It is sklearn.metrics.f1_score.

    Parameters
    ----------
    y : array-like of shape (n,) or (n, h, w)
        Labels 0 and 1.
    scores : array-like of shape (n, 1), (n, 2), (n, 1, h, w) or (n, 2, h, w)
        Outputs of a model: a single score, above 0 for label 1, or one for each label.

    Returns
    -------
    float
        From 0 to 1, and 0 if both are 0; NaN without examples.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or shape, or if a label is none of these.

    Examples
    --------
    >>> from minidl.metrics import f1
    >>> round(f1([0, 0, 1, 1], [[-1.0], [1.0], [1.0], [1.0]]), 3)
    0.8
    """
    return _of_two_labels("f1", y, scores)


def precision_macro(y: Array, scores: Array) -> float:
    """Returns the precision of each label, averaged over the labels in `y` or predicted, or over independent labels.

    It is sklearn.metrics.precision_score with `average="macro"`. A label counts as 0 where its precision is not
    defined.

    Parameters
    ----------
    y : array-like of shape (n,), (n, h, w) or (n, labels)
        One label for each example or pixel; or 0 and 1 for each of several independent labels, in the shape of
        `scores`.
    scores : array-like of shape (n, classes), (n, classes, h, w) or (n, labels)
        Outputs of a model: the highest score predicts the label. An independent label is predicted if its score is
        above 0.

    Returns
    -------
    float
        From 0 to 1; NaN without examples.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or shape, or if a label is none of these.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl.metrics import precision_macro
    >>> round(precision_macro([0, 0, 1, 2], np.eye(3)[[0, 1, 1, 2]]), 3)
    0.833
    """
    return _over_labels("precision_macro", y, scores)


def recall_macro(y: Array, scores: Array) -> float:
    """Returns the recall of each label, averaged over the labels in `y` or predicted, or over independent labels.

    It is sklearn.metrics.recall_score with `average="macro"`. A label counts as 0 where its recall is not defined.

    Parameters
    ----------
    y : array-like of shape (n,), (n, h, w) or (n, labels)
        One label for each example or pixel; or 0 and 1 for each of several independent labels, in the shape of
        `scores`.
    scores : array-like of shape (n, classes), (n, classes, h, w) or (n, labels)
        Outputs of a model: the highest score predicts the label. An independent label is predicted if its score is
        above 0.

    Returns
    -------
    float
        From 0 to 1; NaN without examples.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or shape, or if a label is none of these.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl.metrics import recall_macro
    >>> round(recall_macro([0, 0, 1, 2], np.eye(3)[[0, 1, 1, 2]]), 3)
    0.833
    """
    return _over_labels("recall_macro", y, scores)


def f1_macro(y: Array, scores: Array) -> float:
    """Returns the F1 of each label, averaged over the labels in `y` or predicted, or over independent labels.

    It is sklearn.metrics.f1_score with `average="macro"`. A label counts as 0 where its F1 is not defined.

    Parameters
    ----------
    y : array-like of shape (n,), (n, h, w) or (n, labels)
        One label for each example or pixel; or 0 and 1 for each of several independent labels, in the shape of
        `scores`.
    scores : array-like of shape (n, classes), (n, classes, h, w) or (n, labels)
        Outputs of a model: the highest score predicts the label. An independent label is predicted if its score is
        above 0.

    Returns
    -------
    float
        From 0 to 1; NaN without examples.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or shape, or if a label is none of these.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl.metrics import f1_macro
    >>> round(f1_macro([0, 0, 1, 2], np.eye(3)[[0, 1, 1, 2]]), 3)
    0.778
    """
    return _over_labels("f1_macro", y, scores)


def binary_accuracy(y: Array, scores: Array) -> float:
    """Returns the fraction of right labels, all rows together, as in Keras.

    Parameters
    ----------
    y : array-like of the shape of `scores`
        0 or 1 for each score.
    scores : array-like of shape (n, labels), or with more axes
        Outputs of a model. A label is predicted if its score is above 0.

    Returns
    -------
    float
        From 0 to 1; NaN without examples.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or shape, or if a label is none of these.

    Examples
    --------
    >>> from minidl.metrics import binary_accuracy
    >>> binary_accuracy([[1, 0], [1, 1]], [[2.0, -1.0], [3.0, -4.0]])
    0.75
    """
    labels, predicted = _binary_labels("binary_accuracy", y, scores)
    return float((labels == predicted).mean()) if labels.size else float("nan")


def subset_accuracy(y: Array, scores: Array) -> float:
    """Returns the fraction of rows with all labels right, as in scikit-learn.

    Parameters
    ----------
    y : array-like of the shape of `scores`
        0 or 1 for each score.
    scores : array-like of shape (n, labels), or with more axes
        Outputs of a model. A label is predicted if its score is above 0.

    Returns
    -------
    float
        From 0 to 1; NaN without examples.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or shape, or if a label is none of these.

    Examples
    --------
    >>> from minidl.metrics import subset_accuracy
    >>> subset_accuracy([[1, 0], [1, 1]], [[2.0, -1.0], [3.0, -4.0]])
    0.5
    """
    labels, predicted = _binary_labels("subset_accuracy", y, scores)
    right = (labels == predicted).all(axis=tuple(range(1, labels.ndim)))
    return float(right.mean()) if len(right) else float("nan")


def mae(y: Array, scores: Array) -> float:
    """Returns the mean absolute error over all outputs.

    It is sklearn.metrics.mean_absolute_error.

    Parameters
    ----------
    y : array-like of the shape of `scores`, or (n,) for scores (n, 1)
        Targets.
    scores : array-like of shape (n, outputs), or with more axes
        Outputs of a model.

    Returns
    -------
    float
        At least 0; NaN without examples.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or shape.

    Examples
    --------
    >>> from minidl.metrics import mae
    >>> mae([1, 2], [[2], [4]])
    1.5
    """
    targets, outputs = _numbers("mae", y, scores)
    return float(np.abs(outputs - targets).mean()) if targets.size else float("nan")


def mse(y: Array, scores: Array) -> float:
    """Returns the mean squared error over all outputs.

    It is sklearn.metrics.mean_squared_error.

    Parameters
    ----------
    y : array-like of the shape of `scores`, or (n,) for scores (n, 1)
        Targets.
    scores : array-like of shape (n, outputs), or with more axes
        Outputs of a model.

    Returns
    -------
    float
        At least 0; NaN without examples.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or shape.

    Examples
    --------
    >>> from minidl.metrics import mse
    >>> mse([1, 2], [[2], [4]])
    2.5
    """
    targets, outputs = _numbers("mse", y, scores)
    return float(np.square(outputs - targets).mean()) if targets.size else float("nan")


def rmse(y: Array, scores: Array) -> float:
    """Returns the root of the mean squared error over all outputs, as of `mse`.

    Parameters
    ----------
    y : array-like of the shape of `scores`, or (n,) for scores (n, 1)
        Targets.
    scores : array-like of shape (n, outputs), or with more axes
        Outputs of a model.

    Returns
    -------
    float
        At least 0; NaN without examples.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or shape.

    Examples
    --------
    >>> from minidl.metrics import rmse
    >>> rmse([0, 0], [[1], [7]])
    5.0
    """
    targets, outputs = _numbers("rmse", y, scores)
    return float(np.sqrt(np.square(outputs - targets).mean())) if targets.size else float("nan")


def r2(y: Array, scores: Array) -> float:
    """Returns the coefficient of determination, averaged over outputs.

    It is sklearn.metrics.r2_score.

    Parameters
    ----------
    y : array-like of the shape of `scores`, or (n,) for scores (n, 1)
        Targets.
    scores : array-like of shape (n, outputs), or with more axes
        Outputs of a model.

    Returns
    -------
    float
        At most 1; NaN for fewer than two rows, and for outputs that are not finite.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or shape.

    Examples
    --------
    >>> from minidl.metrics import r2
    >>> r2([1, 2, 3], [[1], [2], [4]])
    0.5
    """
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
        elif callable(metric) and not isinstance(metric, type):
            expected = "metrics: expected functions of targets and scores, metric(y, scores)"
            check_order(expected, metric, TARGETS, SCORES)
            name, function = getattr(metric, "__name__", type(metric).__name__), metric
        else:
            raise TypeError(f"metrics: expected names or functions, got {metric!r}{class_hint(metric)}")
        check_name(name, by_name)
        by_name[name] = function
    return by_name


def check_name(name: str, others: Mapping[str, Metric]) -> None:
    """Raises ValueError for the name of another metric, or of what a history holds beside metrics."""
    if name in others or name in ("epoch", "loss", "lr", "images_per_second") or name.startswith("val_"):
        raise ValueError(f"metrics: expected a unique name for each, got {name!r}: rename the function")


def _top_k_hint(name: str) -> str:
    """Returns the hint for the name of a TopKAccuracy that has no name; an empty string for other words."""
    if (found := re.fullmatch(r"top_([1-9]\d*)_accuracy", name)) is None:
        return ""
    return "; use 'accuracy'" if found[1] == "1" else f"; use TopKAccuracy({found[1]}) of minidl.metrics"
