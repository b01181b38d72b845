"""Trainer.backward_step: a step from the gradient of a user's own objective."""

from __future__ import annotations

from collections.abc import Mapping

from numpy.typing import ArrayLike

from minidl.layers.outputs import check_names
from minidl.losses.output_losses import OutputLosses
from minidl.training.base_trainer import BaseTrainer
from minidl.training.diagnosis import explain_gradients
from minidl.training.steps import Clip


def backward_step(trainer: BaseTrainer, dscores: ArrayLike | Mapping[str, ArrayLike]) -> None:
    """Makes the step; raises as Trainer.backward_step."""
    model = trainer.model
    _ = model.output_shape  # raises
    if trainer.comm.size > 1:
        expected = "expected one process for backward_step"
        raise ValueError(f"distributed: {expected}, got {trainer.comm.size}: use train_batch, with a loss of your own")
    if trainer.per_example_clip_norm is not None:
        expected = "expected None for backward_step, which knows no gradients of single examples"
        raise ValueError(f"per_example_clip_norm: {expected}, got {trainer.per_example_clip_norm}")
    if isinstance(trainer.loss, OutputLosses) and isinstance(dscores, Mapping):
        without = [name for name in dscores if name in model.output_names and name not in trainer.loss.losses]
        if without:
            raise ValueError(f"dscores: expected outputs that have a loss in this trainer, got {without[0]!r}")
        check_names("dscores", dscores, trainer.loss.losses)
    trainer.check_trainable()
    limits = {"clip_norm": trainer.clip_norm, "clip_value": trainer.clip_value}
    given: Clip = {name: limit for name, limit in limits.items() if limit is not None}
    with model.usage.training("backward_step"), trainer.stepping():
        rate, descent = trainer.rate_at(trainer.step), trainer.steps().descent
        model.manual.last_backward(dscores, model.changes)
        model.changes += 1
        if not descent.step(rate, given, trainer.step_counter, trainer.num_threads):
            raise FloatingPointError(explain_gradients(trainer.network, trainer.step))
