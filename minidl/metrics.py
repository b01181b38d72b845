"""Metrics: functions `f(y, scores) -> float` of all examples' targets and scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

import numpy as np

from minidl.utils.arrays import Array, as_array

Metric = Callable[[Array, Array], float]


def accuracy(y: Array, scores: Array) -> float:
    """The share of examples whose highest score is that of their label.

    Of one score an example, those that are above 0 where the label is 1, and not where it is 0. Raises ValueError for
    shapes other than scores (n, classes) and y (n,), and for other labels beside a single score.

    >>> import numpy as np
    >>> accuracy(np.array([0, 1]), np.array([[2.0, 1.0], [3.0, 0.0]]))
    0.5
    """
    y, scores = as_array(y, "accuracy: y"), as_array(scores, "accuracy: scores")
    if scores.ndim != 2 or scores.shape[1] < 1:
        raise ValueError(f"accuracy: expected scores (n, classes), got {scores.shape}")
    binary = scores.shape[1] == 1
    if y.shape != scores.shape[:1] and not (binary and y.shape == scores.shape):
        many = ": of many labels a row, take a function that says what counts, such as def label_accuracy(y, scores): "
        many = many + "return ((scores > 0) == y).mean()" if y.shape == scores.shape else ""
        told = f"expected y of shape {scores.shape[:1]}, one label a row of scores, got {y.shape}"
        raise ValueError(f"accuracy: {told}{many}")
    if binary and not np.isin(y, (0, 1)).all():
        raise ValueError("accuracy: expected labels 0 and 1 beside a single score, got other numbers")
    found = scores[:, 0] > 0 if binary else scores.argmax(axis=1)
    return float((found == y.reshape(-1)).mean()) if len(y) else float("nan")


NAMES: dict[str, Metric] = {"accuracy": accuracy}


def get(metrics: Iterable[str | Metric]) -> dict[str, Metric]:
    """Names and functions as a dict from name to function; raises ValueError or TypeError for anything else."""
    if isinstance(metrics, str):
        raise TypeError(f"metrics: expected a list such as [{metrics!r}], got {metrics!r}")
    found: dict[str, Metric] = {}
    for metric in metrics:
        if isinstance(metric, str):
            if metric not in NAMES:
                raise ValueError(f"metrics: expected one of {sorted(NAMES)} or a function, got {metric!r}")
            name, function = metric, NAMES[metric]
        elif callable(metric):
            name, function = getattr(metric, "__name__", type(metric).__name__), metric
        else:
            raise TypeError(f"metrics: expected names or functions, got {metric!r}")
        if name in found or name in ("epoch", "loss", "lr", "images_per_second") or name.startswith("val_"):
            raise ValueError(f"metrics: expected a name of its own for each, got {name!r}: rename the function")
        found[name] = function
    return found


def is_scikits(metric: Metric) -> bool:
    """Whether it is a function of scikit-learn's, or one with some arguments given: it remembers nothing of a call."""
    function = metric.func if isinstance(metric, partial) else metric
    return str(getattr(function, "__module__", "")).startswith("sklearn.")


def measure(metrics: Mapping[str, Metric], y: Array, scores: Array) -> dict[str, float]:
    """What these metrics are; raises TypeError or ValueError, naming the metric, if one fails or gives no number."""
    found = {}
    for name, metric in metrics.items():
        try:
            value = metric(y, scores)
        except (TypeError, ValueError) as error:
            if metric in NAMES.values():
                raise
            kind = TypeError if isinstance(error, TypeError) else ValueError
            told = f"metrics: {name}(y, scores), with y of shape {y.shape} and scores of shape {scores.shape}, failed"
            labels = "scores are what the model puts out, no labels: for labels write a function that takes "
            raise kind(f"{told}: {error}; {labels}scores.argmax(axis=1), or scores > 0") from error
        if np.ndim(value) != 0 or not isinstance(value, (int, float, np.number, np.ndarray)):
            got = f"shape {np.shape(value)}" if np.ndim(value) else repr(value)
            raise TypeError(f"metrics: expected {name} to return a number, got {got}")
        found[name] = float(value)
    return found
