"""Monitor: the number of an epoch that a callback watches, and which of two values of it is better."""

from __future__ import annotations

import math
from typing import Any

from minidl.utils.validation import flag

LOWER = {"loss": True, "accuracy": False}  # is better


class Monitor:
    """Watches one name of the history.

    argument: what the callback calls it, for errors. name: such as "val_loss".
    lower: whether less is better; None: known for losses and accuracies.

    Raises TypeError for what is no name, ValueError if nobody knows which of two values is better.
    """

    def __init__(self, argument: str, name: str, lower: bool | None) -> None:
        if not isinstance(name, str):
            raise TypeError(f"{argument}: expected a name such as 'val_accuracy', got {name!r}")
        known = LOWER.get(name.removeprefix("val_")) if lower is None else flag("lower", lower)
        if known is None:
            known_names = ", ".join(f"{prefix}{known}" for prefix in ("", "val_") for known in LOWER)
            way_out = "for a metric of yours, lower=True or lower=False says which of two values is better"
            raise ValueError(f"{argument}: expected one of {known_names}, got {name!r}; {way_out}")
        self.argument, self.name, self.lower = argument, name, known

    @property
    def sign(self) -> int:
        """Of a change for the better."""
        return -1 if self.lower else 1

    def check(self, trainer: Any) -> None:
        """Raises ValueError if the fit that begins measures nothing of that name."""
        if self.name not in trainer.measures:
            unmeasured = self.name.removeprefix("val_") in trainer.measures
            hint = "; give fit validation_data or a validation_split" if unmeasured else ""
            raise ValueError(f"{self.argument}: expected one of {trainer.measures}, got {self.name!r}{hint}")

    def is_better(self, value: float, than: float | None) -> bool:
        """Whether a value is better than another one, or than none at all (None); NaN never is."""
        if than is None:
            return not math.isnan(value)
        return value < than if self.lower else value > than
