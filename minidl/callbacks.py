"""Callbacks that come with minidl. What a callback is: hooks.py."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import Any

from minidl.shapes import whole

Place = str | os.PathLike[str]
_FIELDS = re.compile(r"\{(step|epoch)\}")


class Checkpoint:
    """Saves the trainer while it is fitted, so that `Trainer.resume` can go on from there.

    path: of the file. It may name "{step}" or "{epoch}" (how many were done), and then is another one each time.
    every_n_steps: saves behind each n-th step of the trainer; None: behind each epoch.
    keep: how many files of such a path are kept, the newest; None: all of them.
    best: the name of something in the history, such as "val_accuracy": saves only behind the epoch where it is better
        than ever before. Lower is better for what is called a loss, higher for all else, unless `lower` says which.

    A SIGTERM saves as well, but where `best` is asked for. A save that is due writes a whole file or, if it fails,
    raises OSError and leaves the old one; files that are not kept any more go after that.

    Raises TypeError or ValueError for arguments that make no sense; fit raises before its first step if the folder is
    missing, or if something in the trainer cannot be saved.
    """

    last = True  # behind the other callbacks: what they remember belongs to the same step

    def __init__(
        self,
        path: Place,
        every_n_steps: int | None = None,
        keep: int | None = 1,
        best: str | None = None,
        lower: bool | None = None,
    ) -> None:
        self.path = os.fspath(path)
        if not isinstance(self.path, str):
            raise TypeError(f"path: expected a str or a Path, got {path!r}")
        if keep is not None:
            whole("keep", keep)
        if every_n_steps is not None:
            whole("every_n_steps", every_n_steps)
        if best is not None and not isinstance(best, str):
            raise TypeError(f"best: expected a name such as 'val_accuracy', got {best!r}")
        if best is not None and every_n_steps is not None:
            raise ValueError("every_n_steps: expected None with best, which is known behind an epoch alone")
        if lower is not None and best is None:
            raise ValueError("lower: expected None without best")
        if keep != 1 and not _FIELDS.search(Path(self.path).name):
            raise ValueError(f"keep: expected 1 for a path without {{step}} or {{epoch}} in its name, got {keep}")
        if _FIELDS.search(os.path.dirname(self.path)):
            raise ValueError(f"path: expected {{step}} and {{epoch}} in the file's name alone, got {self.path!r}")
        self.every_n_steps, self.keep, self.best, self.lower = every_n_steps, keep, best, lower
        self._record: float | None = None

    def on_fit_begin(self, trainer: Any) -> None:
        """Raises what a save would raise."""
        folder = Path(self._name(trainer)).resolve().parent
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            raise OSError(f"path: expected a folder to write into, got {str(folder)!r}")
        trainer.check_savable()

    def on_step_end(self, trainer: Any, step: int, loss: float) -> None:
        """Saves: this is an n-th step."""
        self._save(trainer)

    def on_epoch_end(self, trainer: Any, epoch: int, logs: dict[str, float]) -> None:
        """Saves, if epochs are what is asked for, and if this one is the best so far."""
        if self.best is not None and self.best not in logs:
            raise ValueError(f"best: expected one of {sorted(logs)}, got {self.best!r}")
        if self.every_n_steps is None and (self.best is None or self._is_best(logs[self.best])):
            self._save(trainer)

    def on_terminate(self, trainer: Any) -> None:
        """Saves where the fit stands."""
        if self.best is None:
            self._save(trainer)

    def state_dict(self) -> dict[str, Any]:
        """The best value so far."""
        return {"record": self._record}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on comparing with the best value of the interrupted fit."""
        self._record = state["record"]

    @staticmethod
    def newest(path: Place) -> str | None:
        """The newest file that a Checkpoint with this path has written, or None: what to resume from."""
        files = _files(os.fspath(path))
        return files[-1] if files else None

    def _is_best(self, value: float) -> bool:
        lower = self.lower if self.lower is not None else str(self.best).endswith("loss")
        if math.isnan(value):
            return False
        if self._record is not None and not (value < self._record if lower else value > self._record):
            return False
        self._record = value
        return True

    def _name(self, trainer: Any) -> str:
        return _FIELDS.sub(lambda found: str(getattr(trainer, found[1])), self.path)

    def _save(self, trainer: Any) -> None:
        trainer.save_checkpoint(self._name(trainer))
        if self.keep is not None and _FIELDS.search(Path(self.path).name):
            for old in _files(self.path)[: -self.keep]:
                Path(old).unlink(missing_ok=True)


def _files(path: str) -> list[str]:
    """The files that this path has become, in the order in which they were written."""
    folder, name = os.path.split(path)
    parts = re.split(r"(\{step\}|\{epoch\})", name)
    pattern = re.compile("".join(r"(\d+)" if _FIELDS.fullmatch(part) else re.escape(part) for part in parts))
    found = []
    for entry in os.scandir(folder or ".") if os.path.isdir(folder or ".") else ():
        match = pattern.fullmatch(entry.name)
        if match and entry.is_file():
            found.append((entry.stat().st_mtime_ns, tuple(map(int, match.groups())), os.path.join(folder, entry.name)))
    return [file for _, _, file in sorted(found)]
