"""The values of a trainer's metrics: what each is called with, and which one an error or an odd value came from."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from minidl.engine.network import Network
from minidl.losses import Loss, NativeLoss
from minidl.losses.output_losses import OutputLosses
from minidl.metrics import NAMES, Metric, TopKAccuracy, counting_of
from minidl.metrics.counts import Counts, by_label, by_row
from minidl.training.output_metrics import OutputMetric
from minidl.utils.arrays import Array
from minidl.utils.errors import kind_of
from minidl.utils.threadpool import one_blas_thread

CountsByName = dict[str, Counts]
TRIED = 2**22  # scores that metrics are tried with at a time


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

    @property
    def ignored(self) -> int | None:
        """The label that the loss ignores."""
        return getattr(self.loss, "ignore_index", None)

    def counted(self) -> CountsByName:
        """Returns the counts of the metrics that count, without the labels that the loss ignores."""
        labels = self.targets
        if isinstance(self.loss, NativeLoss):
            labels = self.loss.labels(self.targets, self.scores.shape[1:])  # those of probabilities, too
        shared, found = dict[Any, Counts](), CountsByName()
        for name, metric in self.metrics.items():
            if (counting := counting_of(metric)) is None:
                continue
            if counting.count not in shared:
                y = self.targets if counting.count in (by_label, by_row) else labels
                with _naming(name):
                    shared[counting.count] = counting.count(_own_name(metric), y, self.scores, self.ignored)
            found[name] = shared[counting.count]
        return found

    def measured(self) -> dict[str, float]:
        """Returns the values of the metrics, without the labels that the loss ignores."""
        values = values_of(self.metrics, self.counted())
        others = {name: metric for name, metric in self.metrics.items() if name not in values}
        return values | measure(others, self.targets, self.scores, self.ignored)


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


# ---- of an epoch


def counts_of(loss: Loss, metrics: Mapping[str, Metric], targets: Array, scores: Array) -> CountsByName:
    """Returns the counts of a trainer's metrics that count, of some examples; raises as `measure`."""
    found = CountsByName()
    for group in by_output(loss, metrics, targets, scores):
        found |= group.counted()
    return found


def added(counts: CountsByName, more: CountsByName) -> CountsByName:
    """Returns the sums of counts; raises ValueError, naming the metric, for counts of other classes."""
    for name, own in more.items():
        if (before := counts.get(name, own)).shape != own.shape:
            got = f"got counts of shapes {before.shape} and {own.shape}"
            raise ValueError(f"metrics: {name}: expected labels of one kind for a whole epoch, {got}")
    return {name: counts[name] + own if name in counts else own for name, own in more.items()}


def check_counts(counts: Any, names: Collection[str]) -> None:
    """Raises ValueError unless there are counts of these metrics, which a file may hold."""
    if not isinstance(counts, dict) or counts.keys() != set(names):
        raise ValueError(f"fit: expected counts of the metrics {', '.join(names)}, got something else")
    for name, own in counts.items():
        if not isinstance(own, np.ndarray) or own.dtype != np.int64 or own.min(initial=0) < 0:
            raise ValueError(f"fit: expected counts of {name!r}, int64 of at least 0, got something else")


def measure_outputs(
    loss: Loss,
    metrics: Mapping[str, Metric],
    counts: CountsByName,
    targets: Array | None = None,
    scores: Array | None = None,
) -> dict[str, float]:
    """Returns the values of a trainer's metrics, of counts, or else of targets and scores; raises as `measure`."""
    values = values_of(metrics, counts)
    if targets is not None and scores is not None:
        others = {name: metric for name, metric in metrics.items() if name not in values}
        for group in by_output(loss, others, targets, scores):
            values |= group.measured()
    return {name: values[name] for name in metrics}


def values_of(metrics: Mapping[str, Metric], counts: CountsByName) -> dict[str, float]:
    """Returns the values of the metrics that have counts; raises ValueError, naming the metric."""
    values = {}
    for name, own in counts.items():
        metric = plain(metrics[name])
        counting = counting_of(metric)
        assert counting is not None
        with _naming(name):
            values[name] = counting.value(_own_name(metric), own)
    return values


def plain(metric: Metric) -> Metric:
    """Returns the metric that one of several outputs has; others as they are."""
    return metric.metric if isinstance(metric, OutputMetric) else metric


def is_counted(metric: Metric) -> bool:
    """Whether a trainer's metric is made of counts, and needs no scores of a whole epoch."""
    return counting_of(plain(metric)) is not None


# ---- before the first step


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
    counts, step = CountsByName(), max(1, TRIED // math.prod(shape[1:]))
    for start in range(0, max(1, len(targets)), step):
        here = slice(start, start + step)
        counts = added(counts, counts_of(loss, metrics, targets[here], zeros[here]))
    values_of(metrics, counts)
    for group in by_output(loss, metrics, targets, zeros):
        group.only(lambda metric: is_ours(metric) and not is_counted(metric)).measured()
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


# ---- metrics that see all targets and scores


def measure(
    metrics: Mapping[str, Metric], y: Array, scores: Array, ignore_index: int | None = None
) -> dict[str, float]:
    """Returns the values of these metrics; raises TypeError or ValueError, naming the metric that fails or its type.

    ignore_index: a label that minidl's metrics and scikit-learn's get without its scores; other functions get all of y.
    """
    drops = {name for name, metric in metrics.items() if ignore_index is not None and _takes_rows(metric)}
    counted = _without(ignore_index, y, scores) if drops else (y, scores)
    values = {}
    for name, metric in metrics.items():
        own_y, own_scores = counted if name in drops else (y, scores)
        try:
            if name in drops and is_scikits(metric) and not own_y.size:
                value = float("nan")  # as minidl's metrics; scikit-learn refuses arrays without rows
            else:
                with nullcontext() if is_ours(metric) else one_blas_thread:
                    value = metric(own_y, own_scores)
        except (TypeError, ValueError) as error:
            if is_ours(metric):
                with _naming(name):
                    raise
            ignored = f"{'without' if name in drops else 'including'} the labels of ignore_index={ignore_index}, "
            shapes = f"with y of shape {own_y.shape} and scores of shape {own_scores.shape}"
            call = f"metrics: {name}(y, scores), {shapes}, {'' if ignore_index is None else ignored}failed"
            hint = "scores are the outputs of the model, not labels: for labels write a function that takes "
            raise kind_of(error)(f"{call}: {error}; {hint}scores.argmax(axis=1), or scores > 0") from error
        if np.ndim(value) != 0 or not _is_number(value):
            got = f"shape {np.shape(value)}" if np.ndim(value) else repr(value)
            raise TypeError(f"metrics: expected {name} to return a number, got {got}")
        values[name] = float(value)
    return values


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """A context in which errors begin with the name that a metric has in the history."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if str(error).startswith(name):
            raise
        raise kind_of(error)(f"metrics: {name}: {error}") from error


def _own_name(metric: Any) -> str:
    """Returns the name of a metric of minidl."""
    return str(metric.name if isinstance(metric, TopKAccuracy) else metric.__name__)


def _is_number(value: object) -> bool:
    """True for a real number or a bool, of Python or NumPy."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.dtype.kind in "biuf"
    return isinstance(value, (int, float))


def _takes_rows(metric: Metric) -> bool:
    """Returns True for a metric that may get pixels as rows: its value does not depend on which image they are from."""
    return is_ours(metric) or is_scikits(metric)


def _without(ignore_index: int | None, y: Array, scores: Array) -> tuple[Array, Array]:
    """Returns the targets (m,) that are not ignored, and their scores (m, classes). Other targets are unchanged."""
    counts = y != ignore_index
    if y.shape == scores.shape:  # a target for each score
        return y[counts], scores[counts][:, np.newaxis]
    if y.shape == (len(scores), *scores.shape[2:]):
        return y[counts], np.moveaxis(scores, 1, -1)[counts]
    return y, scores
