"""HistoryFile: the base of callbacks that write the history to a text file, one line per epoch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from minidl.callbacks.run_file import RunFile
from minidl.saving import atomic
from minidl.saving.atomic import Path, check_writable


class HistoryFile:
    """Base class: keeps a file in step with `trainer.history`. A subclass defines the format of a line.

    An epoch is appended as one complete line. The first epoch of a fit, one with new names, and one after which earlier
    numbers have changed, rewrites the file. That removes epochs that are not in the history, because a resume repeats
    them, and adds those that the file lacks.
    """

    opening: bytes  # the first bytes of every such file
    rank_zero_only = True  # training is the same without it

    def __init__(self, path: Path, overwrite: bool = False) -> None:
        self._place = RunFile(path, overwrite)
        self.path, self.overwrite = self._place.path, self._place.overwrite
        self._names: list[str] | None = None  # the names in the lines; None: nothing written yet in this fit
        self._epochs = self._bytes = 0  # in the file
        self._last = ""  # its last line

    @property
    def file(self) -> str | None:
        """The path of the file: that with the number of the run in place of "{run}"; None before there is one."""
        return self._place.name

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
        """Checks the path, and that its file is not that of another run; writes nothing.

        Parameters
        ----------
        trainer : Trainer
            The trainer that calls it.

        Raises
        ------
        OSError
            If the path cannot be written.
        ValueError
            If the file is of another kind, or of another run and not to be overwritten.
        """
        self._names, self._epochs, self._last = None, 0, ""
        self._place.begin(trainer)
        found = self.file if self.file is not None and os.path.exists(self.file) else ""
        if found:
            check_writable(found)
            with open(found, "rb") as file:
                start = file.read(len(self.opening))
            if start not in (b"", self.opening):
                expected = f"none, or one that begins with {self.opening.decode()}"
                raise ValueError(f"path: expected a file of a {type(self).__name__}, {expected}, got {start!r}")
        self._place.check_owner(found, lambda: self._holds(found, trainer.history))

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
        if trainer.history or self.file is not None:  # without an epoch, a run needs no number
            self._write(trainer.history)

    def _write(self, history: dict[str, list[float]]) -> None:
        names, epochs = list(history), list(zip(*history.values(), strict=True))
        new = [self.line(names, values) for values in epochs[max(self._epochs - 1, 0) :]]
        last = new.pop(0) if self._epochs and new else ""  # as it is now: later callbacks may have added to it
        path = self.file if self._names is not None else None
        unchanged = path is not None and self._names == names and last == self._last and len(new) < 2
        if path is not None and unchanged and os.path.exists(path) and os.path.getsize(path) == self._bytes:
            content = "".join(new).encode()
            with open(path, "ab") as file:
                file.write(content)
            self._bytes += len(content)
        else:
            content = self._content(names, epochs)
            atomic.write(self._place.open(), [memoryview(content)])
            self._bytes = len(content)
        self._names, self._epochs, self._last = names, len(epochs), new[-1] if new else last

    def _content(self, names: Sequence[str], epochs: Sequence[Sequence[float]]) -> bytes:
        """Returns the whole file."""
        lines = (self.line(names, values) for values in epochs)
        return "".join([self.header(names) if names else "", *lines]).encode()

    def _holds(self, path: str, history: dict[str, list[float]]) -> bool:
        """Whether a file has nothing, or the epochs of this history, or more, or their beginning."""
        with open(path, "rb") as file:
            found = file.read()
        ours = self._content(list(history), list(zip(*history.values(), strict=True)))
        return not found or bool(ours and (found.startswith(ours) or ours.startswith(found)))
