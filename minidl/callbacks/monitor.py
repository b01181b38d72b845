"""Monitor: the number of an epoch that a callback watches, and which of two values of it is better."""

from __future__ import annotations

import math
from typing import Any

from minidl.utils.validation import check_bool

LOWER_IS_BETTER = {"loss": True, "accuracy": False}


class Monitor:
    """Watches one name of the history.

    name: such as "val_loss". lower_is_better: None if it is known, as of losses and accuracies.

    Raises TypeError for what is no name, ValueError if it is not known which of two values is better.
    """

    def __init__(self, name: str, lower_is_better: bool | None) -> None:
        if not isinstance(name, str):
            raise TypeError(f"monitor: expected a name such as 'val_accuracy', got {name!r}")
        if lower_is_better is None:
            lower_is_better = LOWER_IS_BETTER.get(name.removeprefix("val_"))
        if lower_is_better is None:
            known = ", ".join(f"{prefix}{known}" for prefix in ("", "val_") for known in LOWER_IS_BETTER)
            hint = "for a metric of yours, lower_is_better=True or False says which of two values is better"
            raise ValueError(f"monitor: expected one of {known}, got {name!r}; {hint}")
        self.name, self.lower_is_better = name, check_bool("lower_is_better", lower_is_better)

    @property
    def sign(self) -> int:
        """Of a change for the better."""
        return -1 if self.lower_is_better else 1

    def check(self, trainer: Any) -> None:
        """Raises ValueError if the fit that begins measures nothing of that name."""
        if self.name not in trainer.measures:
            unmeasured = self.name.removeprefix("val_") in trainer.measures
            hint = "; give fit validation_data or a validation_split" if unmeasured else ""
            raise ValueError(f"monitor: expected one of {trainer.measures}, got {self.name!r}{hint}")

    def is_better(self, value: float, than: float | None) -> bool:
        """Whether a value is better than another one, or than none at all (None); NaN never is."""
        if than is None:
            return not math.isnan(value)
        return value < than if self.lower_is_better else value > than
