"""trainer.report(): what looks wrong with a training, in words."""

from __future__ import annotations

from typing import Any

import numpy as np

from minidl.training.base_trainer import BaseTrainer
from minidl.training.labeled_data import LabeledData
from minidl.training.report import curves, symptoms
from minidl.training.report.findings import Findings
from minidl.training.report.probe import Probe
from minidl.training.sample_buffer import MAX_EXAMPLES, Sample

SYMPTOMS = (
    symptoms.not_finite, symptoms.channels_last, symptoms.inputs, symptoms.unshuffled_labels, symptoms.one_class,
    curves.unscaled_targets, curves.diverging_loss, curves.stuck_loss, curves.oscillating_loss, symptoms.dead_units,
    symptoms.saturated_units, symptoms.update_sizes, symptoms.gradient_sizes, curves.overfitting,
    curves.rising_validation,
)  # fmt: skip


def report(learner: BaseTrainer, X: Any, y: Any) -> Findings:
    """The findings of `Trainer.report`, printed."""
    learner.check_between_steps("report")
    if learner.model.network is None:
        raise ValueError("report: the model is not built yet: fit it first, or give it an input_shape")
    if (X is None) != (y is None):
        raise TypeError("report: expected X and y, or neither of them, got one")
    with learner.model.busy.reading("report"):
        probe = _probe(learner, X, y)
        findings = [finding for symptom in SYMPTOMS for finding in symptom(probe)]
    steps = f"{probe.learner.step} step{'' if probe.learner.step == 1 else 's'}"
    found = Findings(findings, f"{len(probe.seen)} layers and {probe.count} examples looked at, {steps} done")
    print(found, flush=True)
    return found


def _probe(learner: BaseTrainer, X: Any, y: Any) -> Probe:
    """A probe with the examples given, or with those that were kept."""
    if X is not None:
        data = LabeledData.from_arrays(learner.model, learner.loss, X, y)
        if not len(data.active_rows):
            raise ValueError("X: expected at least one example, got none")
        chosen = np.sort(np.random.default_rng(learner.seed).permutation(len(data.active_rows))[:MAX_EXAMPLES])
        sample = Sample(data.examples.gather_copy(chosen), data.targets[chosen], None, None, MAX_EXAMPLES)
    else:
        kept = learner.kept.sample(learner.sample_key)
        if kept is None:
            raise ValueError("report: expected a fit or a train_batch before it, or examples: report(X, y)")
        sample = kept
    data = LabeledData.from_arrays(learner.model, learner.loss, sample.X, sample.y, sample.weights)
    return Probe(learner, data, sample.size, sample.batches)
