"""The values of a trainer's metrics: what each is called with, and which one an error or an odd value came from."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from minidl.engine.network import Network
from minidl.losses import Loss, NativeLoss
from minidl.losses.output_losses import OutputLosses
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
from minidl.training.output_metrics import OutputMetric
from minidl.utils.arrays import Array
from minidl.utils.threadpool import one_blas_thread

OF_LABELS = (accuracy, f1, f1_macro, precision, precision_macro, recall, recall_macro)


@dataclass(frozen=True)
class Measured:
    """Metrics by name, and the targets and scores of the output that they are for; loss: its loss.

    of_output: takes the scores of this output out of those of a network.
    """

    metrics: dict[str, Metric]
    loss: Loss
    targets: Array
    scores: Array
    of_output: Callable[[Array], Array] = lambda scores: scores

    def only(self, chosen: Callable[[Metric], bool]) -> Measured:
        """Returns it with some of the metrics."""
        return replace(self, metrics={name: metric for name, metric in self.metrics.items() if chosen(metric)})

    def measured(self) -> dict[str, float]:
        """Returns the values of the metrics; of labels, those that the loss ignores are left out."""
        loss, targets, scores = self.loss, self.targets, self.scores
        labels = loss.labels(targets, scores.shape[1:]) if isinstance(loss, NativeLoss) else None
        return measure(self.metrics, targets, scores, labels, getattr(loss, "ignore_index", None))


def by_output(loss: Loss, metrics: Mapping[str, Metric], targets: Array, scores: Array) -> Iterator[Measured]:
    """Yields the metrics of each output, with its targets and scores; of one output, all metrics."""
    if not isinstance(loss, OutputLosses):
        yield Measured(dict(metrics), loss, targets, scores)
        return
    layout, parts = loss.layout, loss.split(targets)
    for name, own in loss.losses.items():
        of_name = {key: m.metric for key, m in metrics.items() if isinstance(m, OutputMetric) and m.output == name}
        if of_name:
            yield Measured(of_name, own, parts[name], layout.part(scores, name), partial(layout.part, name=name))


def measure_outputs(loss: Loss, metrics: Mapping[str, Metric], targets: Array, scores: Array) -> dict[str, float]:
    """Returns the values of a trainer's metrics; raises as `measure`."""
    values = dict[str, float]()
    for group in by_output(loss, metrics, targets, scores):
        values |= group.measured()
    return {name: values[name] for name in metrics}


def try_metrics(
    loss: Loss,
    metrics: Mapping[str, Metric],
    targets: Array,
    network: Network,
    predict: Callable[[], Array],
    has_labels: bool,
) -> None:
    """Raises what minidl's metrics raise for these targets, and scikit-learn's for labels.

    predict: returns scores, for scikit-learn's. has_labels: whether the targets of one output are labels of classes.
    """
    shape = (len(targets), *network.out_shape)
    zeros, tried = np.broadcast_to(np.zeros(shape[1:], network.dtype), shape), None
    for group in by_output(loss, metrics, targets, zeros):
        group.only(is_ours).measured()
        positions = getattr(group.loss, "classes", False) and group.targets.dtype.kind in "iu"
        if (theirs := group.only(is_scikits)).metrics and (positions or has_labels):
            tried = np.resize(predict(), shape) if tried is None else tried
            with warnings.catch_warnings(action="ignore"):
                replace(theirs, scores=group.of_output(tried)).measured()


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
            kind = TypeError if isinstance(error, TypeError) else ValueError
            if is_ours(metric) and str(error).startswith(name):
                raise
            if is_ours(metric):  # of one of several outputs, or renamed
                raise kind(f"metrics: {name}: {error}") from error
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
