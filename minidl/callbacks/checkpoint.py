"""Checkpoint: saves a trainer during training."""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from typing import Any

from minidl.callbacks.monitor import Monitor
from minidl.callbacks.state_checks import check_number, check_run, check_state, optional
from minidl.saving import safetensors_file
from minidl.saving.atomic import Path, check_writable, text
from minidl.utils.hints import answers
from minidl.utils.validation import check_int

_FIELDS = re.compile(r"\{(step|epoch)\}")


@answers({})
class Checkpoint:
    """Saves the trainer during training, for `Trainer.resume`.

    SIGTERM also triggers a save, unless `monitor` is set. Saves are atomic: on failure OSError is raised and the old
    file stays. Old files are deleted only after a successful save.

    Parameters
    ----------
    path : str or os.PathLike
        The file. Its name may contain "{step}" or "{epoch}" (the number done: 1 after the first), so that every save
        has its own file.
    every_n_steps : int or None, default None
        Saves after every n-th step of the trainer; None: after every epoch. Without `monitor`, also
        saves at the end of the fit.
    max_to_keep : int or None, default None
        Number of files of such a path to keep, the latest ones of this fit; None: all. Files of other fits are not
        deleted, even if they have replaced one of this fit.
    monitor : str or None, default None
        A name in the history, such as "val_accuracy": saves only after epochs with a new best value of this fit. None:
        saves regardless. Without `val_`, it is a mean over the steps of the epoch, each before its update, and not the
        value of the weights that are saved.
    lower_is_better : bool or None, default None
        Direction of `monitor`. Known for losses and minidl's metrics, required for others.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid. `fit` raises before its first step if the history has no `monitor`, or if part of the
        trainer cannot be saved.
    OSError
        In `fit`: before its first step, if the folder is missing or cannot be written; later, if a save fails.

    See Also
    --------
    minidl.Trainer.save_checkpoint : Saves once.

    Examples
    --------
    >>> import os, tempfile
    >>> from minidl import Sequential, Trainer
    >>> from minidl.callbacks import Checkpoint
    >>> from minidl.layers import Dense
    >>> from minidl.optimizers import SGD
    >>> trainer = Trainer(Sequential([Dense(1)]), "mean_squared_error", SGD(0.1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "run-{epoch}.safetensors")
    ...     checkpoint = Checkpoint(path, max_to_keep=2)
    ...     history = trainer.fit([[0.0], [1.0]], [0.0, 1.0], epochs=3, callbacks=[checkpoint], verbose=0)
    ...     print(sorted(os.listdir(folder)))
    ...     resumed = Trainer.resume(Checkpoint.latest(path))
    ['run-2.safetensors', 'run-3.safetensors']
    >>> resumed.epoch
    3
    """

    rank_zero_only = True  # a resume may omit it, or write to another path

    def __init__(
        self,
        path: Path,
        every_n_steps: int | None = None,
        max_to_keep: int | None = None,
        monitor: str | None = None,
        lower_is_better: bool | None = None,
    ) -> None:
        self.path = text(path)
        self._has_fields = _is_pattern(self.path)
        if max_to_keep is not None:
            check_int("max_to_keep", max_to_keep)
        if max_to_keep not in (None, 1) and not self._has_fields:
            expected = "expected None for a path without {step} or {epoch} in its name"
            raise ValueError(f"max_to_keep: {expected}, got {max_to_keep}")
        if every_n_steps is not None:
            check_int("every_n_steps", every_n_steps)
        if monitor is not None and every_n_steps is not None:
            raise ValueError("every_n_steps: expected None with monitor, whose value is known only after an epoch")
        if monitor is None and lower_is_better is not None:
            raise ValueError("lower_is_better: expected None without monitor")
        self.every_n_steps, self.max_to_keep, self.monitor = every_n_steps, max_to_keep, monitor
        self._monitor = None if monitor is None else Monitor(monitor, lower_is_better)
        self._due = False
        self._record: float | None = None
        self._saved: list[str] = []  # names of the files of this fit that exist, if the path is a pattern
        self._run: str | None = None  # what they all contain, if some are to be deleted

    def on_fit_begin(self, trainer: Any) -> None:
        """Raises the errors of a save before training starts.

        Parameters
        ----------
        trainer : Trainer
            The trainer that calls it.

        Raises
        ------
        OSError
            If the folder is missing or cannot be written.
        TypeError, ValueError
            If part of the trainer cannot be saved, or if the history has no `monitor`.
        """
        check_writable(self._name(trainer))
        if self._monitor is not None:
            self._monitor.check(trainer)
        self._due = False
        self._run = None if self.max_to_keep is None else uuid.uuid4().hex
        trainer.check_savable()

    def on_step_end(self, trainer: Any, step: int, loss: float) -> None:
        """Requests a save: this is an n-th step.

        Parameters
        ----------
        trainer : Trainer
            The trainer that calls it.
        step : int
            Number of the step, from 0.
        loss : float
            Loss of the step.
        """
        self._due = True

    def on_epoch_end(self, trainer: Any, epoch: int, logs: dict[str, float]) -> None:
        """Requests a save, if saves are by epoch and, with `monitor`, this epoch is the best so far.

        Parameters
        ----------
        trainer : Trainer
            The trainer that calls it.
        epoch : int
            Number of the epoch, from 0.
        logs : dict of str to float
            The record of the epoch.
        """
        if self._monitor is not None:
            value = self._monitor.value(trainer, logs)
            self._due = self._monitor.is_better(value, self._record)
            self._record = value if self._due else self._record
        elif self.every_n_steps is None:
            self._due = True

    def on_fit_end(self, trainer: Any) -> None:
        """Requests a save, which includes what other callbacks now do to the weights (the best ones, an average).

        Parameters
        ----------
        trainer : Trainer
            The trainer that calls it.
        """
        self._due = self.monitor is None

    def on_terminate(self, trainer: Any) -> None:
        """Requests a save, unless `monitor` is set.

        Parameters
        ----------
        trainer : Trainer
            The trainer that calls it.
        """
        self._due = self.monitor is None

    def on_save(self, trainer: Any) -> None:
        """Saves if requested. All callbacks have seen this step, so their states agree.

        Parameters
        ----------
        trainer : Trainer
            The trainer that calls it.

        Raises
        ------
        OSError
            If the file cannot be written.
        """
        if not self._due:
            return
        name, self._due = self._name(trainer), False
        if self._has_fields:
            self._saved = [*(old for old in self._saved if old != os.path.basename(name)), os.path.basename(name)]
        trainer.save_checkpoint(name)
        while self.max_to_keep is not None and len(self._saved) > self.max_to_keep:
            old = os.path.join(os.path.dirname(name), self._saved.pop(0))
            with contextlib.suppress(FileNotFoundError):
                if self._wrote(old):
                    os.unlink(old)

    def _wrote(self, path: str) -> bool:
        """Whether this fit wrote a file, and not another one with the same path."""
        with safetensors_file.open_regular(path) as file:
            length = min(int.from_bytes(file.read(8), "little"), safetensors_file.MAX_HEADER)
            return self._run is not None and self._run.encode() in file.read(length)

    @property
    def state_key(self) -> str:
        """The file name without its folder, by which a resume finds this callback's state."""
        return f"Checkpoint {os.path.basename(self.path)!r}"

    def state_dict(self) -> dict[str, Any]:
        """Returns the best value so far and the files of this fit.

        Returns
        -------
        dict
            The state.
        """
        return {"record": self._record, "saved": list(self._saved), "run": self._run}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores a state.

        Parameters
        ----------
        state : dict
            What `state_dict` returned.

        Raises
        ------
        TypeError, ValueError
            If the state is invalid.
        """
        checks = {"record": optional(check_number), "saved": self._check_saved, "run": optional(check_run)}
        state = check_state(state, checks, run=None)
        self._record, self._saved, self._run = state["record"], list(state["saved"]), state["run"] or self._run

    def _check_saved(self, name: str, saved: Any) -> None:
        """Checks that these are names of files of this path, since surplus ones will be deleted."""
        pattern = _pattern(os.path.basename(self.path))
        if not isinstance(saved, list) or not all(isinstance(file, str) and pattern.fullmatch(file) for file in saved):
            raise ValueError(f"{name}: expected names of files of {self.path!r}, got {saved!r:.100}")

    @staticmethod
    def latest(path: Path) -> str | None:
        """Returns the file last written by a Checkpoint with this path, to resume from.

        Parameters
        ----------
        path : str or os.PathLike
            The path of the Checkpoint, with its "{step}" or "{epoch}".

        Returns
        -------
        str or None
            The file with the latest time of modification; None if there is none.

        Examples
        --------
        >>> from minidl.callbacks import Checkpoint
        >>> Checkpoint.latest("no/such/folder/run-{step}.safetensors") is None
        True
        """
        files = _files(text(path))
        return files[-1] if files else None

    def __repr__(self) -> str:
        monitor = f", monitor={self.monitor!r}" if self.monitor is not None else ""
        return f"Checkpoint({self.path!r}{monitor})"

    def _name(self, trainer: Any) -> str:
        return _FIELDS.sub(lambda match: str(getattr(trainer, match[1])), self.path)


def _is_pattern(path: str) -> bool:
    """Returns True if the name contains a field; raises ValueError for fields in the folder and for unknown ones."""
    folder, name = os.path.split(path)
    unknown = re.findall(r"\{[^}]*\}", _FIELDS.sub("", name)) + re.findall(r"\{[^}]*\}", folder)
    if unknown:
        raise ValueError(f"path: expected only {{step}} and {{epoch}}, in the file's name, got {unknown[0]}")
    return bool(_FIELDS.search(name))


def _pattern(name: str) -> re.Pattern[str]:
    """Returns the pattern of the file names that this name expands to."""
    parts = re.split(r"(\{step\}|\{epoch\})", name)
    return re.compile("".join(r"(\d+)" if _FIELDS.fullmatch(part) else re.escape(part) for part in parts))


def _files(path: str) -> list[str]:
    """Returns the files that this path has expanded to, in the order in which they were written."""
    folder, name = os.path.split(path)
    pattern, entries = _pattern(name), []
    for entry in os.scandir(folder or ".") if os.path.isdir(folder or ".") else ():
        match = pattern.fullmatch(entry.name)
        if match and entry.is_file():
            key = entry.stat().st_mtime_ns, tuple(map(int, match.groups()))
            entries.append((*key, os.path.join(folder, entry.name)))
    return [file for _, _, file in sorted(entries)]
