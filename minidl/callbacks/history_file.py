"""HistoryFile: the base of callbacks that write the history to a text file, one line per epoch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from minidl.saving import atomic
from minidl.saving.atomic import Path, check_writable, text


class HistoryFile:
    """Base class: keeps a file in step with `trainer.history`. A subclass defines the format of a line.

    An epoch is appended as one complete line. The first epoch of a fit, and one with new names, rewrites the file. That
    removes epochs that are not in the history, because a resume repeats them, and adds those that the file lacks.
    """

    opening: bytes  # the first bytes of every such file
    rank_zero_only = True  # training is the same without it

    def __init__(self, path: Path) -> None:
        self.path = text(path)
        self._names: list[str] | None = None  # the names in the lines; None: nothing written yet in this fit
        self._epochs = self._bytes = 0  # in the file

    def header(self, names: Sequence[str]) -> str:
        """Returns the text before the epochs' lines.

        Parameters
        ----------
        names : list of str
            Names of the values.

        Returns
        -------
        str
            The text.
        """
        return ""

    def line(self, names: Sequence[str], values: Sequence[float]) -> str:
        """Returns the line of one epoch, with its line end.

        Parameters
        ----------
        names : list of str
            Names of the values.
        values : list of float
            Values of the epoch.

        Returns
        -------
        str
            The line.
        """
        raise NotImplementedError

    def on_fit_begin(self, trainer: Any) -> None:
        """Checks the path; writes nothing.

        Parameters
        ----------
        trainer : Trainer
            The trainer that calls it.

        Raises
        ------
        OSError
            If the path cannot be written.
        ValueError
            If the file is of another kind.
        """
        check_writable(self.path)
        if os.path.exists(self.path):
            with open(self.path, "rb") as file:
                start = file.read(len(self.opening))
            if start not in (b"", self.opening):
                expected = f"none, or one that begins with {self.opening.decode()}"
                raise ValueError(f"path: expected a file of a {type(self).__name__}, {expected}, got {start!r}")
        self._names = None

    def on_epoch_end(self, trainer: Any, epoch: int, logs: dict[str, float]) -> None:
        """Appends the epoch's line.

        Parameters
        ----------
        trainer : Trainer
            The trainer that calls it.
        epoch : int
            Number of the epoch, from 0.
        logs : dict of str to float
            The record of the epoch.
        """
        self._write(trainer.history)

    def on_fit_end(self, trainer: Any) -> None:
        """Writes missing epochs: a resumed fit may have had no epoch left to train.

        Parameters
        ----------
        trainer : Trainer
            The trainer that calls it.
        """
        self._write(trainer.history)

    def _write(self, history: dict[str, list[float]]) -> None:
        names, epochs = list(history), list(zip(*history.values(), strict=True))
        missing = len(epochs) - self._epochs
        unchanged = self._names == names and missing in (0, 1) and os.path.exists(self.path)
        if unchanged and os.path.getsize(self.path) == self._bytes:
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
