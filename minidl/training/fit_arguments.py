"""fit_config: the arguments of a fit, checked against the data and the model."""

from __future__ import annotations

from typing import Any

from minidl.training.base_trainer import BaseTrainer
from minidl.training.fit_state import FitConfig
from minidl.training.labeled_data import LabeledData
from minidl.training.mixup import check_mixable
from minidl.utils.validation import check_non_negative

MAX_ALPHA = 1e6  # of Beta(alpha, alpha), whose standard deviation is 0.0004 then


def fit_config(
    trainer: BaseTrainer,
    data: LabeledData,
    validation: tuple[Any, float],
    epochs: int,
    batch_size: int,
    gradient_accumulation_steps: int,
    shuffle: bool,
    mixup: float,
) -> FitConfig:
    """Returns the configuration of a fit; validation: validation_data and validation_split. Raises as Trainer.fit."""
    if not len(data.active_rows):
        raise ValueError("X: expected at least one example, got none")
    given, share = validation
    alpha = check_non_negative("mixup", mixup)
    if alpha > MAX_ALPHA:
        raise ValueError(f"mixup: expected at most {MAX_ALPHA:g}, got {alpha:g}: lambda is 1/2 then")
    if alpha:
        check_mixable(trainer.loss, data.targets, trainer.model.output_shape)
    rows, held_back = data.split(share, trainer.seed)
    other = data.to_validate(trainer.model, trainer.loss, held_back, given)
    trainer.check_batch(len(rows) % batch_size or batch_size)  # the last one
    trainer.check_trainable()
    trainer.check_metrics(data)
    return FitConfig(data, rows, other, epochs, batch_size, gradient_accumulation_steps, shuffle, float(share), alpha)
