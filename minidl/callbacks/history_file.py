"""HistoryFile: the base of callbacks that keep the history in a text file, a line an epoch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from minidl.saving import atomic
from minidl.saving.atomic import Path, check_writable, text


class HistoryFile:
    """Keeps a file that says what `trainer.history` says; a subclass says how an epoch is a line.

    An epoch's line goes to the end of the file, whole. The first one of a fit, and one with names that are new, has the
    file written anew: epochs that are not in the history, because a resume does them once more, are gone then, and
    those that the file has missed are there.
    """

    opening: bytes  # what each such file begins with
    rank_zero_only = True  # training is the same without it

    def __init__(self, path: Path) -> None:
        self.path = text(path)
        self._names: list[str] | None = None  # of what the lines hold; None: nothing was written in this fit
        self._epochs = self._bytes = 0  # that are in the file

    def header(self, names: Sequence[str]) -> str:
        """What stands above the epochs' lines."""
        return ""

    def line(self, names: Sequence[str], values: Sequence[float]) -> str:
        """One epoch, with the end of the line."""
        raise NotImplementedError

    def on_fit_begin(self, trainer: Any) -> None:
        """Raises OSError for a path that cannot be written, ValueError for a file of another kind; writes nothing."""
        check_writable(self.path)
        if os.path.exists(self.path):
            with open(self.path, "rb") as file:
                start = file.read(len(self.opening))
            if start not in (b"", self.opening):
                expected = f"none, or one that begins with {self.opening.decode()}"
                raise ValueError(f"path: expected a file of a {type(self).__name__}, {expected}, got {start!r}")
        self._names = None

    def on_epoch_end(self, trainer: Any, epoch: int, logs: dict[str, float]) -> None:
        """Writes the epoch's line."""
        self._write(trainer.history)

    def on_fit_end(self, trainer: Any) -> None:
        """Writes what is missing: a resumed fit may have had nothing left to do."""
        self._write(trainer.history)

    def _write(self, history: dict[str, list[float]]) -> None:
        names, epochs = list(history), list(zip(*history.values(), strict=True))
        missing = len(epochs) - self._epochs
        as_left = self._names == names and missing in (0, 1) and os.path.exists(self.path)
        if as_left and os.path.getsize(self.path) == self._bytes:
            content = "".join(self.line(names, values) for values in epochs[self._epochs :]).encode()
            with open(self.path, "ab") as file:
                file.write(content)
            self._bytes += len(content)
        else:
            lines = [self.header(names) if names else "", *(self.line(names, values) for values in epochs)]
            content = "".join(lines).encode()
            atomic.write(self.path, [memoryview(content)])
            self._bytes = len(content)
        self._names, self._epochs = names, len(epochs)
