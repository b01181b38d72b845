"""Metrics: functions `f(y, scores) -> float` of the targets and scores of all examples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

import numpy as np

from minidl.utils.arrays import Array, as_array
from minidl.utils.foreign_words import METRICS
from minidl.utils.hints import hint

__all__ = ["Metric", "accuracy"]

Metric = Callable[[Array, Array], float]


def accuracy(y: Array, scores: Array, ignore_index: int | None = None) -> float:
    """Returns the fraction of labels y (n, ...) whose class has the highest of the scores (n, classes, ...).

    y (n,) is the label of an example; y (n, h, w) or (n, length) has one for each position, and all positions count
    alike. ignore_index: a label that counts nothing. Without any label, the fraction is NaN.

    A single score counts as right if it is above 0 for label 1, and not above 0 for label 0; y may then have the shape
    of the scores. Raises ValueError for other shapes, and for other labels with a single score.

    >>> import numpy as np
    >>> accuracy(np.array([0, 1]), np.array([[2.0, 1.0], [3.0, 0.0]]))
    0.5
    """
    y, scores = as_array(y, "accuracy: y"), as_array(scores, "accuracy: scores")
    if scores.ndim < 2 or scores.shape[1] < 1:
        raise ValueError(f"accuracy: expected scores (n, classes), got {scores.shape}")
    binary, expected_shape = scores.shape[1] == 1, scores.shape[:1] + scores.shape[2:]
    if y.shape != expected_shape and not (binary and y.shape == scores.shape):
        hint = ": for several labels per row, pass a function such as def label_accuracy(y, scores): "
        hint = hint + "return ((scores > 0) == y).mean()" if y.shape == scores.shape else ""
        expected = f"y of shape {expected_shape}, one label per {'row' if scores.ndim == 2 else 'position'} of scores"
        raise ValueError(f"accuracy: expected {expected}, got {y.shape}{hint}")
    predicted = scores[:, 0] > 0 if binary else scores.argmax(axis=1)
    labels = y.reshape(predicted.shape)
    if ignore_index is not None:
        counts = labels != ignore_index
        labels, predicted = labels[counts], predicted[counts]
    if binary and not np.isin(labels, (0, 1)).all():
        raise ValueError("accuracy: expected labels 0 and 1 with a single score, got other values")
    return float((predicted == labels).mean()) if labels.size else float("nan")


NAMES: dict[str, Metric] = {"accuracy": accuracy}


def get(metrics: Iterable[str | Metric]) -> dict[str, Metric]:
    """Returns a dict from name to function, from names and functions; raises ValueError or TypeError for others."""
    if isinstance(metrics, str):
        raise TypeError(f"metrics: expected a list such as [{metrics!r}], got {metrics!r}")
    by_name: dict[str, Metric] = {}
    for metric in metrics:
        if isinstance(metric, str):
            if metric not in NAMES:
                meant = hint(metric, METRICS, NAMES)
                raise ValueError(f"metrics: expected one of {sorted(NAMES)} or a function, got {metric!r}{meant}")
            name, function = metric, NAMES[metric]
        elif callable(metric):
            name, function = getattr(metric, "__name__", type(metric).__name__), metric
        else:
            raise TypeError(f"metrics: expected names or functions, got {metric!r}")
        if name in by_name or name in ("epoch", "loss", "lr", "images_per_second") or name.startswith("val_"):
            raise ValueError(f"metrics: expected a unique name for each, got {name!r}: rename the function")
        by_name[name] = function
    return by_name


def is_scikits(metric: Metric) -> bool:
    """Returns True for a function of scikit-learn's, or a partial of one: it keeps no state between calls."""
    function = metric.func if isinstance(metric, partial) else metric
    return str(getattr(function, "__module__", "")).startswith("sklearn.")


def measure(
    metrics: Mapping[str, Metric], y: Array, scores: Array, labels: Array | None = None, ignore_index: int | None = None
) -> dict[str, float]:
    """Returns the values of these metrics; raises TypeError or ValueError, naming the metric that fails or its type.

    labels, ignore_index: what minidl's own metrics take for y, if it holds probabilities, and leave out.
    """
    values = {}
    for name, metric in metrics.items():
        try:
            if metric is accuracy:
                value = accuracy(y if labels is None else labels, scores, ignore_index)
            else:
                value = metric(y, scores)
        except (TypeError, ValueError) as error:
            if metric in NAMES.values():
                raise
            kind = TypeError if isinstance(error, TypeError) else ValueError
            call = f"metrics: {name}(y, scores), with y of shape {y.shape} and scores of shape {scores.shape}, failed"
            hint = "scores are the outputs of the model, not labels: for labels write a function that takes "
            raise kind(f"{call}: {error}; {hint}scores.argmax(axis=1), or scores > 0") from error
        if np.ndim(value) != 0 or not isinstance(value, (int, float, np.number, np.ndarray)):
            got = f"shape {np.shape(value)}" if np.ndim(value) else repr(value)
            raise TypeError(f"metrics: expected {name} to return a number, got {got}")
        values[name] = float(value)
    return values
