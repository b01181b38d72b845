"""Checkpoint: saves a trainer while it is fitted."""

from __future__ import annotations

import contextlib
import os
import re
from typing import Any

from minidl.callbacks.monitor import Monitor
from minidl.callbacks.state_checks import check_state, optional, real
from minidl.saving.atomic import Path, check_writable, text
from minidl.utils.validation import check_int

_FIELDS = re.compile(r"\{(step|epoch)\}")


class Checkpoint:
    """Saves the trainer while it is fitted, so that `Trainer.resume` can go on from there.

    path: of the file. Its name may hold "{step}" or "{epoch}" (how many were done: 1 after the first), and then is
        another one each time.
    every_n_steps: saves behind each n-th step of the trainer; None: behind each epoch. Both: at the end of the fit.
    max_to_keep: how many files of such a path are kept, the latest ones; None: all of them. Files of other runs stay.
    monitor: the name of something in the history, such as "val_accuracy": saves only after an epoch in which it is
        better than ever before. None: saves whether or not anything got better.
    lower_is_better: of what is monitored; known for losses and accuracies, to be said for all else.

    A SIGTERM saves as well, except with `monitor`. A save that is due writes a whole file or, if it fails,
    raises OSError and leaves the old one; files that are not kept any more go after that.

    Raises TypeError or ValueError for arguments that make no sense; fit raises before its first step if the folder is
    missing, if nothing is called `monitor`, or if something in the trainer cannot be saved.
    """

    rank_zero_only = True  # a resume may do without it, or write to another place

    def __init__(
        self,
        path: Path,
        every_n_steps: int | None = None,
        max_to_keep: int | None = None,
        monitor: str | None = None,
        lower_is_better: bool | None = None,
    ) -> None:
        self.path = text(path)
        self._many = _is_pattern(self.path)
        if max_to_keep is not None:
            check_int("max_to_keep", max_to_keep)
        if max_to_keep not in (None, 1) and not self._many:
            expected = "expected None for a path without {step} or {epoch} in its name"
            raise ValueError(f"max_to_keep: {expected}, got {max_to_keep}")
        if every_n_steps is not None:
            check_int("every_n_steps", every_n_steps)
        if monitor is not None and every_n_steps is not None:
            raise ValueError("every_n_steps: expected None with monitor, which is known after an epoch alone")
        if monitor is None and lower_is_better is not None:
            raise ValueError("lower_is_better: expected None without monitor")
        self.every_n_steps, self.max_to_keep, self.monitor = every_n_steps, max_to_keep, monitor
        self._monitor = None if monitor is None else Monitor(monitor, lower_is_better)
        self._due = False
        self._record: float | None = None
        self._saved: list[str] = []  # names of what this run has written and not deleted, if each has another one

    def on_fit_begin(self, trainer: Any) -> None:
        """Raises what a save would raise."""
        check_writable(self._name(trainer))
        if self._monitor is not None:
            self._monitor.check(trainer)
        trainer.check_savable()

    def on_step_end(self, trainer: Any, step: int, loss: float) -> None:
        """A save is due: this is an n-th step."""
        self._due = True

    def on_epoch_end(self, trainer: Any, epoch: int, logs: dict[str, float]) -> None:
        """A save is due, if epochs are what is asked for, and if this one is the best so far."""
        if self._monitor is not None:
            value = logs[self._monitor.name]
            self._due = self._monitor.is_better(value, self._record)
            self._record = value if self._due else self._record
        elif self.every_n_steps is None:
            self._due = True

    def on_fit_end(self, trainer: Any) -> None:
        """A save is due: what other callbacks make of the weights now (the best ones, an average) is in the file."""
        self._due = self.monitor is None

    def on_terminate(self, trainer: Any) -> None:
        """A save is due."""
        self._due = self.monitor is None

    def on_save(self, trainer: Any) -> None:
        """Saves, if that is due: all callbacks have seen this step, and remember the same."""
        if not self._due:
            return
        name, self._due = self._name(trainer), False
        if self._many:
            self._saved = [*(old for old in self._saved if old != os.path.basename(name)), os.path.basename(name)]
        trainer.save_checkpoint(name)
        while self.max_to_keep is not None and len(self._saved) > self.max_to_keep:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(os.path.dirname(name), self._saved.pop(0)))

    @property
    def state_key(self) -> str:
        """The name of its files, wherever they are: a resume finds by that what it remembered."""
        return f"Checkpoint {os.path.basename(self.path)!r}"

    def state_dict(self) -> dict[str, Any]:
        """The best value so far, and the files of this run; empty if neither matters."""
        if self.monitor is None and not self._many:
            return {}
        return {"record": self._record, "saved": list(self._saved)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where the interrupted fit was; raises TypeError or ValueError for other states."""
        check_state(state, {"record": optional(real), "saved": self._check_saved})
        self._record, self._saved = state["record"], list(state["saved"])

    def _check_saved(self, name: str, saved: Any) -> None:
        """Names of files of this path: those that are too many will be deleted."""
        pattern = _pattern(os.path.basename(self.path))
        if not isinstance(saved, list) or not all(isinstance(one, str) and pattern.fullmatch(one) for one in saved):
            raise ValueError(f"{name}: expected names of files of {self.path!r}, got {saved!r:.100}")

    @staticmethod
    def latest(path: Path) -> str | None:
        """The file that was written last by a Checkpoint with this path, or None: what to resume from."""
        files = _files(text(path))
        return files[-1] if files else None

    def __repr__(self) -> str:
        monitor = f", monitor={self.monitor!r}" if self.monitor is not None else ""
        return f"Checkpoint({self.path!r}{monitor})"

    def _name(self, trainer: Any) -> str:
        return _FIELDS.sub(lambda found: str(getattr(trainer, found[1])), self.path)


def _is_pattern(path: str) -> bool:
    """Whether the name holds a field; raises ValueError for fields elsewhere, and for those that nobody fills."""
    folder, name = os.path.split(path)
    unknown = re.findall(r"\{[^}]*\}", _FIELDS.sub("", name)) + re.findall(r"\{[^}]*\}", folder)
    if unknown:
        raise ValueError(f"path: expected {{step}} and {{epoch}} in the file's name, and no more, got {unknown[0]}")
    return bool(_FIELDS.search(name))


def _pattern(name: str) -> re.Pattern[str]:
    """What the files are called that a path with this name has become."""
    parts = re.split(r"(\{step\}|\{epoch\})", name)
    return re.compile("".join(r"(\d+)" if _FIELDS.fullmatch(part) else re.escape(part) for part in parts))


def _files(path: str) -> list[str]:
    """The files that this path has become, in the order in which they were written."""
    folder, name = os.path.split(path)
    pattern, found = _pattern(name), []
    for entry in os.scandir(folder or ".") if os.path.isdir(folder or ".") else ():
        match = pattern.fullmatch(entry.name)
        if match and entry.is_file():
            found.append((entry.stat().st_mtime_ns, tuple(map(int, match.groups())), os.path.join(folder, entry.name)))
    return [file for _, _, file in sorted(found)]
