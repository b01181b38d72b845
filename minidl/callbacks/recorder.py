"""Recorder: the base of callbacks that hash the weights on their way through a fit."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from minidl.callbacks.state_checks import check_state
from minidl.utils.arrays import Array
from minidl.utils.hashes import arrays_hash

HASH = 32  # bytes


class Recorder:
    """Records what a fit follows from, and the hash of the weights before the first step and after each epoch.

    Hashes are made in on_save, after all callbacks have seen an epoch. An interrupted fit that is completed, also from
    a checkpoint, has the record of one that was not interrupted. A subclass says in `_finish` what becomes of it.
    """

    rank_zero_only = True  # training is the same without it
    closing_note: str | None = None

    def __init__(self) -> None:
        self._origin: dict[str, Any] = {}  # what `trainer.fit_origin` returns; empty: no fit has begun
        self._epochs: list[str] = []  # hashes
        self._ended = False

    def on_fit_begin(self, trainer: Any) -> None:
        """Records configuration, data and first weights.

        Parameters
        ----------
        trainer : Trainer
            The trainer that calls it.

        Raises
        ------
        TypeError, ValueError
            If the fit has something that a receipt cannot hold.
        """
        self._origin, self._epochs, self._ended, self.closing_note = {}, [], False, None
        self._origin = trainer.fit_origin()
        self._origin["weights"] = {"first": weights_hash(trainer)}

    def on_epoch_begin(self, trainer: Any, epoch: int) -> None:
        """Records the weights of an epoch after which the fit was interrupted.

        Parameters
        ----------
        trainer : Trainer
            The trainer that calls it.
        epoch : int
            Number of the epoch, from 0.
        """
        self._record(trainer)

    def on_fit_end(self, trainer: Any) -> None:
        """Notes that the fit is over.

        Parameters
        ----------
        trainer : Trainer
            The trainer that calls it.
        """
        self._ended = True
        if not self._is_whole(trainer):
            self.closing_note = f"{type(self).__name__}: not complete, as it did not see the whole fit"

    def on_save(self, trainer: Any) -> None:
        """Records the weights after an epoch; at the end of the fit, finishes the record.

        Parameters
        ----------
        trainer : Trainer
            The trainer that calls it.
        """
        if not self._ended:
            self._record(trainer)
        elif self._is_whole(trainer):
            self._finish(trainer)

    def state_dict(self) -> dict[str, Any]:
        """Returns what has been recorded.

        Returns
        -------
        dict
            Its state, for `load_state_dict`.
        """
        if not self._origin:
            return {}
        hashes = np.frombuffer(bytes.fromhex("".join(self._epochs)), np.uint8).reshape(-1, HASH)
        return {"origin": json.dumps(self._origin), "epochs": hashes.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what `state_dict` returned.

        Parameters
        ----------
        state : dict
            That state.

        Raises
        ------
        TypeError, ValueError
            If it is another one.
        """
        origin, hashes = {}, np.zeros((0, HASH), np.uint8)
        if state:
            check_state(state, {"origin": _check_origin, "epochs": _check_hashes})
            origin, hashes = json.loads(state["origin"]), state["epochs"]
        self._origin, self._epochs = origin, [row.tobytes().hex() for row in hashes]

    def _record(self, trainer: Any) -> None:
        if self._missing(trainer) == 1:
            self._epochs.append(weights_hash(trainer))

    def _missing(self, trainer: Any) -> int:
        """Returns the number of epochs that are over and not recorded; -1 if the fit began without it."""
        if not self._origin.get("is_whole"):
            return -1
        return int(trainer.epoch - self._origin["run"]["epoch"] - len(self._epochs))

    def _is_whole(self, trainer: Any) -> bool:
        return self._missing(trainer) == 0

    def _finish(self, trainer: Any) -> None:
        raise NotImplementedError


def weights_hash(trainer: Any) -> str:
    """Returns the hash of all parameters and buffers, in the order of `state_dict`."""
    return arrays_hash(trainer.model.state_dict().values())


def _check_origin(name: str, value: Any) -> None:
    found = json.loads(value)
    if not isinstance(found, dict) or not isinstance(found.get("run"), dict) or "epoch" not in found["run"]:
        raise ValueError(f"{name}: expected the record of a fit, got {value!r:.100}")


def _check_hashes(name: str, value: Array) -> None:
    if not isinstance(value, np.ndarray) or value.dtype != np.uint8 or value.shape[1:] != (HASH,):
        raise ValueError(f"{name}: expected hashes, got {value!r:.100}")
