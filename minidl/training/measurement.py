"""The values of a trainer's metrics: what each is called with, and which one an error or an odd value came from."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial

import numpy as np

from minidl.metrics import (
    NAMES,
    Metric,
    TopKAccuracy,
    accuracy,
    f1,
    f1_macro,
    precision,
    precision_macro,
    recall,
    recall_macro,
)
from minidl.utils.arrays import Array
from minidl.utils.threadpool import one_blas_thread

OF_LABELS = (accuracy, f1, f1_macro, precision, precision_macro, recall, recall_macro)


def is_ours(metric: Metric) -> bool:
    """Returns True for a metric of minidl, whose errors speak for themselves."""
    return isinstance(metric, TopKAccuracy) or any(metric is known for known in NAMES.values())


def is_scikits(metric: Metric) -> bool:
    """Returns True for a function of scikit-learn's, or a partial of one: it keeps no state between calls."""
    function = metric.func if isinstance(metric, partial) else metric
    return str(getattr(function, "__module__", "")).startswith("sklearn.")


def measure(
    metrics: Mapping[str, Metric], y: Array, scores: Array, labels: Array | None = None, ignore_index: int | None = None
) -> dict[str, float]:
    """Returns the values of these metrics; raises TypeError or ValueError, naming the metric that fails or its type.

    labels: what minidl's metrics of labels take for y, if it holds probabilities. ignore_index: a label that minidl's
    metrics and scikit-learn's get without its scores; other functions get all of y.
    """
    drops = {name for name, metric in metrics.items() if ignore_index is not None and _takes_rows(metric)}
    counted = _without(ignore_index, y, scores) if drops else (y, scores)
    values = {}
    for name, metric in metrics.items():
        own_y, own_scores = counted if name in drops else (y, scores)
        try:
            if labels is not None and labels.shape != y.shape and _takes_labels(metric):
                value = metric(labels, scores)  # of probabilities, of which none is ignored
            elif name in drops and is_scikits(metric) and not own_y.size:
                value = float("nan")  # as minidl's metrics; scikit-learn refuses arrays without rows
            else:
                with nullcontext() if is_ours(metric) else one_blas_thread:
                    value = metric(own_y, own_scores)
        except (TypeError, ValueError) as error:
            if is_ours(metric):
                raise
            kind = TypeError if isinstance(error, TypeError) else ValueError
            ignored = f"{'without' if name in drops else 'including'} the labels of ignore_index={ignore_index}, "
            shapes = f"with y of shape {own_y.shape} and scores of shape {own_scores.shape}"
            call = f"metrics: {name}(y, scores), {shapes}, {'' if ignore_index is None else ignored}failed"
            hint = "scores are the outputs of the model, not labels: for labels write a function that takes "
            raise kind(f"{call}: {error}; {hint}scores.argmax(axis=1), or scores > 0") from error
        if np.ndim(value) != 0 or not _is_number(value):
            got = f"shape {np.shape(value)}" if np.ndim(value) else repr(value)
            raise TypeError(f"metrics: expected {name} to return a number, got {got}")
        values[name] = float(value)
    return values


def _is_number(value: object) -> bool:
    """True for a real number or a bool, of Python or NumPy."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.dtype.kind in "biuf"
    return isinstance(value, (int, float))


def _takes_labels(metric: Metric) -> bool:
    return metric in OF_LABELS or isinstance(metric, TopKAccuracy)


def _takes_rows(metric: Metric) -> bool:
    """Returns True for a metric that may get pixels as rows: its value does not depend on which image they are from."""
    return is_ours(metric) or is_scikits(metric)


def _without(ignore_index: int | None, y: Array, scores: Array) -> tuple[Array, Array]:
    """Returns the labels (m,) that are not ignored, and their scores (m, classes). Other targets are unchanged."""
    if y.shape != (len(scores), *scores.shape[2:]):
        return y, scores
    counts = y != ignore_index
    return y[counts], np.moveaxis(scores, 1, -1)[counts]
