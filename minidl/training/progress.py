"""What fit shows while it runs: a bar where a terminal looks, a plain line an epoch otherwise."""

from __future__ import annotations

import sys
from typing import Any


class Progress:
    """Shows epochs as they pass, counted from 1 in each fit.

    verbose: None decides by the terminal, 0 shows nothing, 1 lines, 2 lines and a bar.
    """

    def __init__(self, verbose: int | None, epochs: int) -> None:
        if verbose not in (None, 0, 1, 2):
            raise ValueError(f"verbose: expected None, 0, 1 or 2, got {verbose!r}")
        if verbose is None:
            verbose = 2 if sys.stderr.isatty() else 1
        self.verbose, self.epochs = verbose, epochs
        self._bar: Any = None

    def begin_epoch(self, number: int, steps: int, done: int = 0) -> None:
        """Epoch `number` of this fit begins, counted from 1; it has so many steps, some of which may be done."""
        self._number = number
        if self.verbose == 2:
            from tqdm import tqdm  # a third of the time that importing minidl would take

            self._bar = tqdm(total=steps, initial=done, desc=f"epoch {number}/{self.epochs}", unit="step", leave=False)

    def advance(self, steps: int) -> None:
        """So many more steps are done."""
        if self._bar is not None:
            self._bar.update(steps)

    def end_epoch(self, logs: dict[str, float]) -> None:
        """The epoch is over; prints its record."""
        self.close()
        if self.verbose:
            shown = [_told(name, value) for name, value in logs.items() if name != "epoch"]
            print(f"epoch {self._number}/{self.epochs}  " + "  ".join(shown), flush=True)

    def note(self, text: str) -> None:
        """Says something once."""
        if self.verbose:
            print(text, flush=True)

    def close(self) -> None:
        """Takes the bar away."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _told(name: str, value: float) -> str:
    if name == "images_per_second":
        return f"{value:,.0f} images/s"
    return f"{name} {value:.4g}" if name == "lr" else f"{name} {value:.4f}"
