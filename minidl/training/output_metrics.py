"""Metrics of several outputs: a trainer keeps them by names such as "policy_accuracy"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from minidl.losses.output_losses import naming
from minidl.metrics import Metric, check_name, get


class OutputMetric:
    """A metric of one of several outputs, as Trainer keeps it for `metrics={"policy": ["accuracy"]}`."""

    def __init__(self, output: str, metric: Metric) -> None:
        self.output, self.metric = output, metric

    def __call__(self, y: Any, scores: Any) -> float:
        """Returns the value for dicts of targets and scores by output."""
        return self.metric(y[self.output], scores[self.output])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.output!r}, {self.metric!r})"


def of_outputs(metrics: Mapping[str, Any]) -> list[OutputMetric]:
    """Returns the metrics of outputs, by their names; raises ValueError or TypeError as `minidl.metrics.get`."""
    found = []
    for output, given in metrics.items():
        own = [given] if isinstance(given, str) or callable(given) else given
        with naming(output, "metrics"):
            found += [OutputMetric(output, metric) for metric in get(own).values()]
    return found


def named(metrics: Iterable[OutputMetric]) -> dict[str, Metric]:
    """Returns metrics of outputs by their names in a history; raises ValueError for two of one name."""
    by_name: dict[str, Metric] = {}
    for one in metrics:
        name = f"{one.output}_{next(iter(get([one.metric])))}"
        check_name(name, by_name)
        by_name[name] = one
    return by_name
