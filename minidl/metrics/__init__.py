"""Metrics: functions `f(y, scores) -> float` of the targets and scores of all examples.

Scores are the outputs of a model, not labels: the label of a row is that of its highest score, the first of equal ones.
A single score stands for the labels 0 and 1, and 1 is predicted if it is above 0; so does each of several independent
labels. All metrics are computed on a whole epoch, without weights, and are NaN without examples. They raise TypeError
or ValueError for other shapes or labels. Those of labels are made of counts, which add up over an epoch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from minidl.metrics import counts as _counts
from minidl.metrics import labels as _of_labels
from minidl.metrics.labels import (
    TopKAccuracy,
    accuracy,
    binary_accuracy,
    dice,
    f1,
    f1_macro,
    iou,
    precision,
    precision_macro,
    recall,
    recall_macro,
    subset_accuracy,
)
from minidl.metrics.numbers import mae, mse, r2, rmse
from minidl.metrics.ranking import average_precision, roc_auc
from minidl.utils.arrays import Array
from minidl.utils.foreign_words import METRICS
from minidl.utils.hints import SCORES, TARGETS, check_order, class_hint, hint

__all__ = ["Metric", "TopKAccuracy", "accuracy", "binary_accuracy", "dice", "iou", "subset_accuracy"]
__all__ += ["f1", "f1_macro", "mae", "mse", "precision", "precision_macro", "r2", "recall", "recall_macro", "rmse"]
__all__ += ["average_precision", "roc_auc"]

Metric = Callable[[Array, Array], float]

COUNTINGS: dict[Metric, _counts.Counting] = {
    accuracy: _of_labels.ACCURACY,
    binary_accuracy: _of_labels.BINARY_ACCURACY,
    subset_accuracy: _of_labels.SUBSET_ACCURACY,
    f1: _of_labels.F1,
    f1_macro: _of_labels.F1_MACRO,
    precision: _of_labels.PRECISION,
    precision_macro: _of_labels.PRECISION_MACRO,
    recall: _of_labels.RECALL,
    recall_macro: _of_labels.RECALL_MACRO,
    iou: _of_labels.IOU,
    dice: _of_labels.DICE,
}
ERRORS = (mae, mse, rmse)  # of which less is better
NAMES: dict[str, Metric] = {
    **{function.__name__: function for function in (*COUNTINGS, roc_auc, average_precision, r2, *ERRORS)},
    "top_5_accuracy": TopKAccuracy(5),
}


def counting_of(metric: Metric) -> _counts.Counting | None:
    """Returns how a metric of labels is made of counts; None for other metrics."""
    if isinstance(metric, TopKAccuracy):
        return metric.counting
    return next((counting for known, counting in COUNTINGS.items() if known is metric), None)


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
            name, function = _name_of(metric), metric
        else:
            raise TypeError(f"metrics: expected names or functions, got {metric!r}{class_hint(metric)}")
        check_name(name, by_name)
        by_name[name] = function
    return by_name


def check_name(name: str, others: Mapping[str, Metric]) -> None:
    """Raises ValueError for the name of another metric, or of what a history holds beside metrics."""
    if name in others or name in ("epoch", "loss", "lr", "images_per_second") or name.startswith("val_"):
        raise ValueError(f"metrics: expected a unique name for each, got {name!r}: set the __name__ of the function")


def _name_of(metric: Metric) -> str:
    """Returns the name of a function, or of the one that a partial calls; of other objects, the name of their class."""
    while isinstance(metric, partial) and not hasattr(metric, "__name__"):
        metric = metric.func
    return str(getattr(metric, "__name__", type(metric).__name__))


def _top_k_hint(name: str) -> str:
    """Returns the hint for the name of a TopKAccuracy that has no name; an empty string for other words."""
    if (found := re.fullmatch(r"top_([1-9]\d*)_accuracy", name)) is None:
        return ""
    return "; use 'accuracy'" if found[1] == "1" else f"; use TopKAccuracy({found[1]}) of minidl.metrics"
