"""TensorBoard: the history as TensorBoard event files."""

from __future__ import annotations

import os
from typing import Any

from minidl.callbacks.run_file import FIELD, RunFile
from minidl.saving.atomic import Path, text
from minidl.utils.hints import answers
from minidl.utils.optional import needs
from minidl.utils.validation import check_int

PARAMETERS = "run"  # .json, in the folder
EVENTS = "events.out.tfevents"  # the first part of the names of event files
FLUSH_SECONDS = 1  # the most that a killed process loses


@answers({})
class TensorBoard:
    """Writes the values of each epoch for `tensorboard --logdir folder`: "epoch/loss", "epoch/val_loss", "epoch/lr" ...

    The x-axis of all curves is the number of steps done. When a fit begins, TensorBoard discards points of later steps
    that earlier fits wrote, so a resume duplicates no point. If the process is killed, the last second may be missing.

    Parameters
    ----------
    folder : str or os.PathLike
        Folder of the event files, for one run: a trainer with all its fits. "{run}" is the number of the run, as in
        `CSVLogger`; the attribute `run_folder` is the folder with the number. `run.json` in it holds the parameters.
    every_n_steps : int or None, default None
        Also writes "step/loss", at every n-th step; None: never.
    overwrite : bool, default False
        Whether the folder may be that of another run, whose points TensorBoard then discards. False refuses it.

    Raises
    ------
    ImportError
        Without tensorboardX: pip install "minidl[tensorboard]".
    TypeError, ValueError
        If an argument is invalid.
    OSError
        In `fit`, before its first step, if the folder cannot be created.

    See Also
    --------
    CSVLogger : Writes CSV; it says what belongs to a run.

    Examples
    --------
    >>> import os, tempfile
    >>> from minidl import Sequential, Trainer
    >>> from minidl.callbacks import TensorBoard
    >>> from minidl.layers import Dense
    >>> from minidl.optimizers import SGD
    >>> trainer = Trainer(Sequential([Dense(1)]), "mean_squared_error", SGD(0.1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     board = TensorBoard(folder, every_n_steps=10)
    ...     history = trainer.fit([[0.0], [1.0]], [0.0, 1.0], epochs=2, callbacks=[board], verbose=0)
    ...     print(sorted(name.partition(".")[0] for name in os.listdir(folder)))
    ['events', 'run']
    """

    rank_zero_only = True  # training is the same without it

    def __init__(self, folder: Path, every_n_steps: int | None = None, overwrite: bool = False) -> None:
        self.folder = text(folder, "folder")
        self._place = RunFile(os.path.join(self.folder, PARAMETERS), overwrite, "folder", _has_events)
        self.overwrite = self._place.overwrite
        self.every_n_steps = None if every_n_steps is None else check_int("every_n_steps", every_n_steps)
        with needs("tensorboardX", "TensorBoard"):
            from tensorboardX import SummaryWriter
        self._open: Any = SummaryWriter
        self._writer: Any = None

    @property
    def run_folder(self) -> str | None:
        """The folder with the number of the run in place of "{run}"; None before there is one."""
        return None if self._place.name is None else os.path.dirname(self._place.name)

    def on_fit_begin(self, trainer: Any) -> None:
        """Creates the folder, or the one in which that of the run will be; the next value starts a new file.

        Parameters
        ----------
        trainer : Trainer
            The trainer that calls it.

        Raises
        ------
        OSError
            If the folder cannot be created.
        ValueError
            If it is that of another run and not to be overwritten.
        """
        self.on_fit_end(trainer)  # closes the file of an interrupted fit
        before = os.path.dirname(self.folder[: self.folder.find(FIELD)]) or "."
        os.makedirs(before if FIELD in self.folder else self.folder, exist_ok=True)
        self._place.begin(trainer)
        name = self._place.name
        found = os.path.dirname(name) if name is not None and _has_events(name) else ""
        self._place.check_owner(found, lambda: False)
        self._first = trainer.step + 1

    def on_step_end(self, trainer: Any, step: int, loss: float) -> None:
        """Writes the loss of this step.

        Parameters
        ----------
        trainer : Trainer
            The trainer that calls it.
        step : int
            Number of the step, from 0.
        loss : float
            Loss of the step.
        """
        self._write("step/loss", loss, trainer.step)

    def on_epoch_end(self, trainer: Any, epoch: int, logs: dict[str, float]) -> None:
        """Writes the values of the epoch's record.

        Parameters
        ----------
        trainer : Trainer
            The trainer that calls it.
        epoch : int
            Number of the epoch, from 0.
        logs : dict of str to float
            The record of the epoch.
        """
        for name, value in logs.items():
            if name != "epoch":
                self._write(f"epoch/{name}", value, trainer.step)

    def on_fit_end(self, trainer: Any) -> None:
        """Closes the file.

        Parameters
        ----------
        trainer : Trainer
            The trainer that calls it.
        """
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def on_terminate(self, trainer: Any) -> None:
        """Closes the file, so that nothing is lost.

        Parameters
        ----------
        trainer : Trainer
            The trainer that calls it.
        """
        self.on_fit_end(trainer)

    def _write(self, name: str, value: float, step: int) -> None:
        if self._writer is None:
            folder = os.path.dirname(self._place.open())
            # The suffix keeps names unique: tensorboardX names two files of the same second alike.
            self._writer = self._open(
                folder, purge_step=self._first, flush_secs=FLUSH_SECONDS, filename_suffix=f".{self._first:012}"
            )
        self._writer.add_scalar(name, value, step)

    def __repr__(self) -> str:
        return f"TensorBoard({self.folder!r})"


def _has_events(name: str) -> bool:
    """Whether event files are beside a file."""
    folder = os.path.dirname(name)
    return os.path.isdir(folder) and any(other.startswith(EVENTS) for other in os.listdir(folder))
