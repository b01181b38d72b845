"""The provenance of weights: the configuration that a fit began with, and hashes of the weights on their way."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from minidl import callbacks as our_callbacks
from minidl.callbacks.time_limit import TimeLimit
from minidl.saving.object_codec import ObjectCodec
from minidl.sequential import Sequential
from minidl.training.base_trainer import BaseTrainer
from minidl.training.checkpoint_content import OURS, run_config

CALLBACKS = {made.__name__: made for made in vars(our_callbacks).values() if isinstance(made, type)}


def provenance(trainer: BaseTrainer, callbacks: Iterable[Any]) -> dict[str, Any]:
    """Returns what a receipt needs to know of a fit that begins; under "refused" why it cannot have one.

    Of the callbacks, those are left out without which training is the same, and those that only watch the clock.
    """
    needed = [
        callback
        for callback in callbacks
        if not getattr(callback, "rank_zero_only", False) and not isinstance(callback, TimeLimit)
    ]
    first = {"first": weights_hash(trainer.model), "epochs": []}
    try:
        custom: dict[str, Any] = {}
        run = run_config(trainer, ObjectCodec(OURS, custom), custom)
        run["callbacks"] = ObjectCodec(CALLBACKS, custom).encode(needed, "callbacks")
    except Exception as error:  # also of an object of the user's, which must not stop the fit
        return first | {"refused": str(error)}
    return first | {"run": run | {"epoch": trainer.epoch, "step": trainer.step}}


def weights_hash(model: Sequential) -> str:
    """Returns the SHA-256 of the bytes of all parameters and buffers, in the order of `state_dict`."""
    return arrays_hash(model.state_dict().values())


def arrays_hash(arrays: Iterable[Any]) -> str:
    """Returns the SHA-256 of the bytes of arrays in C order, one after the other."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data)
    return digest.hexdigest()
