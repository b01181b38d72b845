"""trainer.report(): describes what looks wrong with a training."""

from __future__ import annotations

from typing import Any

import numpy as np

from minidl.losses.output_losses import OutputLosses
from minidl.training.base_trainer import BaseTrainer
from minidl.training.labeled_data import LabeledData
from minidl.training.report import curves, symptoms
from minidl.training.report.findings import Findings
from minidl.training.report.probe import Probe
from minidl.training.sample_buffer import MAX_EXAMPLES, Sample
from minidl.utils.data import shape_of_examples

SYMPTOMS = (
    symptoms.not_finite, symptoms.unmovable_targets, symptoms.channels_last, symptoms.inputs,
    symptoms.unshuffled_labels, symptoms.one_class, symptoms.classes_of_pixels, symptoms.large_weight,
    curves.unscaled_targets, curves.diverging_loss, curves.stuck_loss, curves.oscillating_loss, symptoms.dead_units,
    symptoms.saturated_units, symptoms.update_sizes, symptoms.gradient_sizes, curves.overfitting,
    curves.rising_validation,
)  # fmt: skip


def report(trainer: BaseTrainer, X: Any, y: Any) -> Findings:
    """Prints and returns the findings of `Trainer.report`."""
    trainer.check_between_steps("report")
    if trainer.model.network is None:
        raise ValueError("report: the model is not built yet: fit it first, or give it an input_shape")
    if (X is None) != (y is None):
        raise TypeError("report: expected X and y, or neither of them, got one")
    with trainer.model.usage.reading("report"):
        probe = _probe(trainer, X, y)
        findings = [finding for symptom in SYMPTOMS for finding in symptom(probe)]
    steps = f"{probe.trainer.step} step{'' if probe.trainer.step == 1 else 's'}"
    found = Findings(findings, f"{len(probe.seen)} layers and {probe.count} examples looked at, {steps} done")
    print(found, flush=True)
    return found


def _probe(trainer: BaseTrainer, X: Any, y: Any) -> Probe:
    """Returns a probe of the examples given, or of those kept from the training."""
    if X is not None:
        trainer = trainer if trainer.model.sizes is None else trainer.at(shape_of_examples(X))
        data = LabeledData.from_arrays(trainer.model, trainer.loss, X, y)
        if not len(data.active_rows):
            raise ValueError("X: expected at least one example, got none")
        chosen = np.sort(np.random.default_rng(trainer.seed).permutation(len(data.active_rows))[:MAX_EXAMPLES])
        sample = Sample(data.examples.gather_copy(chosen), data.targets[chosen], None, None, MAX_EXAMPLES)
    elif (latest := trainer.sample_buffer.sample(trainer.sample_key)) is not None:
        sample = latest
    else:
        raise ValueError("report: expected a fit or a train_batch before it, or examples: report(X, y)")
    trainer = trainer.at(sample.X.shape[1:])
    given = trainer.loss.split(sample.y) if isinstance(trainer.loss, OutputLosses) else sample.y
    data = LabeledData.from_arrays(trainer.model, trainer.loss, sample.X, given, sample.weights).for_steps()
    return Probe(trainer, data, sample)
