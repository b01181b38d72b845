"""Progress: what fit and fit_many print while they run: a bar on a terminal, otherwise plain lines."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

from minidl.utils.optional import needs
from minidl.utils.validation import check_choice


class Progress:
    """Prints the epochs of a fit, counted from 1.

    verbose: 0 prints nothing, 1 lines, 2 lines and a bar of tqdm; None: 2 on a terminal if there is tqdm, else 1.
    """

    def __init__(self, verbose: int | None, epochs: int) -> None:
        verbose = int(verbose) if isinstance(verbose, bool) else check_choice("verbose", verbose, None, 0, 1, 2)
        if verbose is None:
            verbose = 2 if sys.stderr.isatty() and find_spec("tqdm") is not None else 1
        self.verbose, self.epochs = verbose, epochs
        self._bar: Any = None
        if verbose == 2:
            with needs("tqdm", "verbose=2"):
                import tqdm  # noqa: F401 (takes a third as long as importing minidl)

    def begin_epoch(self, number: int, steps: int | None, done: int = 0) -> None:
        """Begins epoch `number` of this fit, counted from 1.

        steps: the number of steps, if it is known; done: the number of steps done so far.
        """
        self._number = number
        self.begin(f"epoch {number}/{self.epochs}", "step", steps, done)

    def begin(self, what: str, unit: str, total: int | None, done: int = 0) -> None:
        """Begins a bar for `total` units, if it is known."""
        if self.verbose == 2:
            from tqdm import tqdm

            self._bar = tqdm(total=total, initial=done, desc=what, unit=unit, leave=False)

    def advance(self, units: int, **shown: int) -> None:
        """Adds to the number of units done; shown: other numbers to show beside it."""
        if self._bar is not None:
            if shown:
                self._bar.set_postfix(shown, refresh=False)
            self._bar.update(units)

    def end_epoch(self, logs: dict[str, float]) -> None:
        """Ends the epoch and prints its record."""
        self.close()
        if self.verbose:
            shown = [_formatted(name, value) for name, value in logs.items() if name != "epoch"]
            print(f"epoch {self._number}/{self.epochs}  " + "  ".join(shown), flush=True)

    def note(self, text: str) -> None:
        """Prints a line."""
        if self.verbose:
            print(text, flush=True)

    def close(self) -> None:
        """Removes the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _formatted(name: str, value: float) -> str:
    if name == "images_per_second":
        return f"{value:,.0f} images/s"
    return f"{name} {value:.4g}" if name == "lr" else f"{name} {value:.4f}"
