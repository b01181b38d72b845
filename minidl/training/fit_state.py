"""The arguments of a fit, on arrays or on batches, and FitState, its progress between two steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from minidl.callbacks.callback_list import State
from minidl.training.batch_feed import BatchFeed
from minidl.training.labeled_data import LabeledData
from minidl.training.measurement import CountsByName
from minidl.utils.arrays import Array
from minidl.utils.data import Index

Validation = tuple[LabeledData, Index] | None
ADDED = {"cutmix": 0.0}  # arguments of a fit on arrays that files of earlier versions lack, with their values then


@dataclass(frozen=True, kw_only=True)
class FitConfig(ABC):
    """The arguments of a fit, checked."""

    epochs: int
    batch_size: int
    gradient_accumulation_steps: int
    validation: Validation  # the data to evaluate on after each epoch, and its rows; None: none

    @property
    def step_size(self) -> int:
        """The number of examples of a step, or 1 if it varies."""
        return self.batch_size * self.gradient_accumulation_steps

    @property
    def holds_out(self) -> bool:
        """Whether the validation data are rows that were held out."""
        return False

    @abstractmethod
    def numbers(self) -> dict[str, Any]:
        """Returns the arguments that are no data."""

    @abstractmethod
    def describe(self, outputs: str, rows_hashed: int | None = None) -> dict[str, Any]:
        """Returns the arguments that decide on the weights: numbers as they are, arrays as hashes.

        outputs: BaseTrainer.outputs. rows_hashed: the number of rows of each array that are hashed; None: all.
        """


@dataclass(frozen=True, kw_only=True)
class ArrayFitConfig(FitConfig):
    """The arguments of a fit on arrays, checked."""

    data: LabeledData
    rows: Index  # the rows to train on
    shuffle: bool
    validation_split: float
    class_weight: dict[Any, float] | str | None
    mixup: float  # alpha; 0: none
    cutmix: float  # the same
    normalize_weights: bool

    @property
    def holds_out(self) -> bool:
        """See FitConfig."""
        return self.validation is not None and self.validation[0] is self.data

    def numbers(self) -> dict[str, Any]:
        """See FitConfig."""
        return {
            "epochs": self.epochs,
            "batch_size": self.batch_size,
            "gradient_accumulation_steps": self.gradient_accumulation_steps,
            "shuffle": self.shuffle,
            "validation_split": self.validation_split,
            "class_weight": self.class_weight,
            "mixup": self.mixup,
            "cutmix": self.cutmix,
            "normalize_weights": self.normalize_weights,
        }

    def describe(self, outputs: str, rows_hashed: int | None = None) -> dict[str, Any]:
        """See FitConfig; validation_data is None if rows of X were held out."""
        return {
            **self.numbers(),
            "validation_data": None if self.holds_out else _hash_of(self.validation, rows_hashed),
            **self.data.fingerprints(rows_hashed),
            "rows_hashed": rows_hashed,
            "outputs": outputs,
        }


@dataclass(frozen=True, kw_only=True)
class BatchFitConfig(FitConfig):
    """The arguments of a fit on batches, checked. Each batch is a step."""

    feed: BatchFeed
    batch_size: int = 1
    gradient_accumulation_steps: int = 1

    def numbers(self) -> dict[str, Any]:
        """See FitConfig."""
        return {
            "batches": self.feed.kind,
            "epochs": self.epochs,
            "steps_per_epoch": self.feed.steps_per_epoch,
            "batch_size": None,
        }

    def describe(self, outputs: str, rows_hashed: int | None = None) -> dict[str, Any]:
        """See FitConfig; without hashes of batches, which are not known before they are read."""
        return {
            **self.numbers(),
            "validation_data": _hash_of(self.validation, rows_hashed),
            "rows_hashed": rows_hashed,
            "outputs": outputs,
        }


def _hash_of(validation: Validation, rows_hashed: int | None) -> str | None:
    """Returns a hash of the validation data; None if there are none."""
    if validation is None:
        return None
    return " ".join(value for value in validation[0].fingerprints(rows_hashed).values() if value is not None)


@dataclass(frozen=True, repr=False)
class FitState:
    """Where a fit stands between two steps: all that is needed to complete it."""

    arguments: dict[str, Any]  # what FitConfig.describe returned; the call that completes the fit has to give the same
    step: int  # the trainer's step
    epochs_done: int  # epochs of this fit that are in the history
    in_epoch: bool  # whether the fit is in the middle of the next epoch
    should_stop: bool
    losses: Array  # the losses of the examples that this epoch has seen, in their order
    scores: Array | None  # their outputs, if the trainer keeps scores
    counts: CountsByName  # what metrics of labels have counted in this epoch
    callbacks: list[State]  # the states of the callbacks that have one
    batches: dict[str, Any] | None = None  # what a BatchFitLoop knows of the batches it has read; None for arrays

    @property
    def is_complete(self) -> bool:
        """Whether the fit is complete."""
        return not self.in_epoch and (self.should_stop or self.epochs_done >= self.arguments["epochs"])

    def __repr__(self) -> str:
        return f"<fit at step {self.step}, {self.epochs_done} of {self.arguments['epochs']} epochs done>"
