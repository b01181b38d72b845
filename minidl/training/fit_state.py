"""FitConfig, the arguments of a fit, and FitState, its progress between two steps. FitLoop.resume restores a state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minidl.callbacks.callback_list import State
from minidl.training.labeled_data import LabeledData
from minidl.utils.arrays import Array
from minidl.utils.data import Index


@dataclass(frozen=True)
class FitConfig:
    """The arguments of a call of fit, checked."""

    data: LabeledData
    rows: Index  # to train on
    validation: tuple[LabeledData, Index] | None
    epochs: int
    batch_size: int
    gradient_accumulation_steps: int
    shuffle: bool
    validation_split: float
    mixup: float  # alpha; 0: none

    @property
    def step_size(self) -> int:
        """The number of examples of a step."""
        return self.batch_size * self.gradient_accumulation_steps

    def describe(self, outputs: str, rows_hashed: int | None = None) -> dict[str, Any]:
        """Returns the arguments that decide on the weights: numbers as they are, arrays as hashes.

        outputs: of the trainer's model. rows_hashed: the number of rows of each array that are hashed; None: all.
        """
        return {
            "epochs": self.epochs,
            "batch_size": self.batch_size,
            "gradient_accumulation_steps": self.gradient_accumulation_steps,
            "shuffle": self.shuffle,
            "validation_split": self.validation_split,
            "mixup": self.mixup,
            "validation_data": self._validation_data(rows_hashed),
            **self.data.fingerprints(rows_hashed),
            "rows_hashed": rows_hashed,
            "outputs": outputs,
        }

    def _validation_data(self, rows_hashed: int | None) -> str | None:
        """Returns a hash of validation_data; None without it, also if rows were held out."""
        if self.validation is None or self.validation[0] is self.data:
            return None
        return " ".join(value for value in self.validation[0].fingerprints(rows_hashed).values() if value is not None)


@dataclass(frozen=True, repr=False)
class FitState:
    """Where a fit stands between two steps: all that is needed to complete it."""

    arguments: dict[str, Any]  # of FitConfig.describe; those of the call that completes it are equal
    step: int  # of the trainer
    epochs_done: int  # epochs of this fit that are in the history
    in_epoch: bool  # whether it is in the middle of the next one
    should_stop: bool
    losses: Array  # of the examples that this epoch has seen, in their order
    scores: Array | None  # their outputs, if there are metrics
    callbacks: list[State]  # of those that have a state

    @property
    def is_complete(self) -> bool:
        """Whether the fit is complete."""
        return not self.in_epoch and (self.should_stop or self.epochs_done >= self.arguments["epochs"])

    def __repr__(self) -> str:
        return f"<fit at step {self.step}, {self.epochs_done} of {self.arguments['epochs']} epochs done>"
