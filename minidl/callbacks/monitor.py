"""Monitor: a name in the history that a callback watches, and the direction in which its values improve."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from minidl.metrics import ERRORS, NAMES
from minidl.utils.foreign_words import MONITORS
from minidl.utils.hints import hint
from minidl.utils.validation import check_bool

LOWER_IS_BETTER = {"loss": True} | {name: metric in ERRORS for name, metric in NAMES.items()} | {"d2_pinball": False}


def known_measure(name: str) -> tuple[str, str] | None:
    """Returns the output ("": there is one) and minidl's name of a measure: "policy", "accuracy"; None: unknown."""
    own = name.removeprefix("val_")
    if own in LOWER_IS_BETTER:
        return "", own
    known = max((one for one in LOWER_IS_BETTER if own.endswith(f"_{one}")), key=len, default="")
    return (own.removesuffix(f"_{known}"), known) if known else None


class Monitor:
    """Watches one name in the history.

    name: such as "val_loss". lower_is_better: None for losses and metrics of minidl, by name, and those of an output.

    Raises TypeError unless the name is a string, ValueError if the direction is not known.
    """

    def __init__(self, name: str, lower_is_better: bool | None) -> None:
        if not isinstance(name, str):
            raise TypeError(f"monitor: expected a name such as 'val_accuracy', got {name!r}")
        self._is_own = lower_is_better is not None  # the user's direction
        self._output = ""  # whose measure it is, if its direction follows from the name
        if lower_is_better is None:
            if (found := known_measure(name)) is None:
                raise _unknown(name)
            self._output, known = found
            lower_is_better = LOWER_IS_BETTER[known]
        self.name, self.lower_is_better = name, check_bool("lower_is_better", lower_is_better)

    @property
    def is_held_out(self) -> bool:
        """True if its values are those of the weights at the end of the epoch."""
        return self.name.startswith("val_")

    def beyond(self, value: float, margin: float) -> float:
        """Returns the value that is better than this one by a margin of at least 0."""
        return value - margin if self.lower_is_better else value + margin

    def check(self, trainer: Any) -> None:
        """Raises ValueError unless the fit that begins measures this name, or may get it from a callback."""
        self.check_name(trainer.measures, trainer.model.output_names, trainer.may_measure_more)

    def value(self, trainer: Any, logs: Mapping[str, float]) -> float:
        """Returns the value of an epoch, NaN if no callback added it this time; raises ValueError if none ever did."""
        if self.name not in logs and self.name not in trainer.history:
            before = "a callback that adds it has to come before the one that monitors it"
            raise ValueError(f"monitor: expected one of {list(logs)}, got {self.name!r}; {before}")
        return logs.get(self.name, math.nan)

    def check_name(self, measures: Sequence[str], outputs: Collection[str], may_be_added: bool = False) -> None:
        """Raises ValueError unless the name is among these measures, which are those of these outputs.

        may_be_added: whether callbacks may add others. One of these needs a direction of its own.
        """
        if self.name not in measures:
            unmeasured = self.name.removeprefix("val_") in measures
            if may_be_added and self._is_own and not unmeasured:
                return
            needs = "; it needs validation_data, validation_split, or an estimator's early_stopping"
            remedy = needs if unmeasured else hint(self.name, MONITORS, measures)
            raise ValueError(f"monitor: expected one of {measures}, got {self.name!r}{remedy}")
        if self._output and self._output not in outputs:
            raise _unknown(self.name)

    def is_better(self, value: float, than: float | None) -> bool:
        """Returns True if `value` is better than `than`, or is the first one (None); NaN never is."""
        if than is None:
            return not math.isnan(value)
        return value < than if self.lower_is_better else value > than


def _unknown(name: str) -> ValueError:
    """Returns the error for a name whose direction is not known."""
    known = [f"{prefix}{known}" for prefix in ("", "val_") for known in LOWER_IS_BETTER]
    own = "for your own metric, set lower_is_better=True or False"
    return ValueError(f"monitor: expected one of {', '.join(known)}, got {name!r}{hint(name, MONITORS, known)}; {own}")
