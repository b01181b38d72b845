"""TensorBoard: the history as curves that TensorBoard shows."""

from __future__ import annotations

import os
from typing import Any

from minidl.saving.atomic import Path, text
from minidl.utils.validation import check_int

FLUSH_SECONDS = 1  # what a killed process may lose


class TensorBoard:
    """Writes each epoch's numbers for `tensorboard --logdir folder`: "epoch/loss", "epoch/val_loss", "epoch/lr" ...

    folder: for the files, and for one trainer. every_n_steps: writes "step/loss" as well, at each n-th step; None: not.

    All curves are drawn over the steps that were done. Where a fit begins, TensorBoard forgets what earlier ones have
    written of later steps, so that a resume leaves no point twice. What happened in the last second before the process
    was killed may be missing.

    Raises ImportError without tensorboardX: pip install "minidl[tensorboard]". fit raises OSError before its first step
    if the folder cannot be made.
    """

    rank_zero_only = True  # training is the same without it

    def __init__(self, folder: Path, every_n_steps: int | None = None) -> None:
        self.folder = text(folder)
        self.every_n_steps = None if every_n_steps is None else check_int("every_n_steps", every_n_steps)
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise ImportError('TensorBoard needs tensorboardX: pip install "minidl[tensorboard]"') from error
        self._open: Any = SummaryWriter
        self._writer: Any = None

    def on_fit_begin(self, trainer: Any) -> None:
        """Makes the folder; another file begins with what comes next."""
        self.on_fit_end(trainer)  # of a fit that was broken off
        os.makedirs(self.folder, exist_ok=True)
        self._first = trainer.step + 1

    def on_step_end(self, trainer: Any, step: int, loss: float) -> None:
        """Writes the loss of this step."""
        self._write("step/loss", loss, trainer.step)

    def on_epoch_end(self, trainer: Any, epoch: int, logs: dict[str, float]) -> None:
        """Writes what the epoch was measured by."""
        for name, value in logs.items():
            if name != "epoch":
                self._write(f"epoch/{name}", value, trainer.step)

    def on_fit_end(self, trainer: Any) -> None:
        """Closes the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def on_terminate(self, trainer: Any) -> None:
        """Closes the file: nothing is lost."""
        self.on_fit_end(trainer)

    def _write(self, name: str, value: float, step: int) -> None:
        if self._writer is None:
            # A name of its own: tensorboardX gives two files of one second the same one.
            self._writer = self._open(
                self.folder, purge_step=self._first, flush_secs=FLUSH_SECONDS, filename_suffix=f".{self._first:012}"
            )
        self._writer.add_scalar(name, value, step)

    def __repr__(self) -> str:
        return f"TensorBoard({self.folder!r})"
