"""Checks that the processes that train together agree: before a fit and after each of its epochs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from minidl.callbacks.callback_list import CallbackList
from minidl.distributed import MPI
from minidl.distributed.communicator import Communicator
from minidl.engine.network import Network
from minidl.losses import Loss
from minidl.sequential import Sequential
from minidl.training.labeled_data import LabeledData
from minidl.training.native_update import is_native
from minidl.training.per_example_steps import ClippedSteps
from minidl.training.steps import Steps
from minidl.utils.arrays import Array
from minidl.utils.overrides import speaks_for
from minidl_c import isa
from minidl_c.optimizers.update import Update
from minidl_c.runtime.partition import local_range

TIMES = "images_per_second"  # a series of the history that differs between processes


def check_epoch(comm: Communicator, rate: float, model: Sequential) -> None:
    """Raises ValueError in all processes, naming the parameter, unless all have the same weights to the last bit."""
    if comm.size > 1:
        comm.check_consistent({"learning rate": repr(rate), **_hashes(model.state_dict())})


def check_call(
    comm: Communicator,
    arguments: Mapping[str, Any],
    hooks: CallbackList,
    config: Mapping[str, Any],
    tensors: Mapping[str, Array],
) -> None:
    """Raises ValueError in all processes, naming what differs, unless they are about to do the same training.

    arguments: the arguments of fit, arrays as hashes. config, tensors: the content of a checkpoint of the trainer.
    """
    facts = {"called": "fit", "instruction set": "v2" if isa == "v2" else "v3 or v4"}  # these have the same bits
    facts.update({f"model {name}": _fact(value) for name, value in config["model"].items()})
    facts.update({name: _fact(value) for name, value in config.items() if name not in ("model", "callbacks", "run_id")})
    facts.update({name: _fact(value) for name, value in arguments.items()})
    taking_part = [one for one in hooks.callbacks if not getattr(one, "rank_zero_only", False)]
    names = [f"{type(one).__name__} {getattr(one, 'every_n_steps', None) or ''}".strip() for one in taking_part]
    facts["callbacks (without rank_zero_only)"] = ", ".join(names) or "none"
    comm.check_consistent(facts | _hashes({name: array for name, array in tensors.items() if TIMES not in name}))


def check_data(comm: Communicator, data: LabeledData, step: int) -> None:
    """Raises ValueError in all processes unless all have the same batch and the same number of steps."""
    if comm.size > 1:
        hashes = {name: _fact(value) for name, value in data.fingerprints().items()}
        comm.check_consistent({"called": "train_batch", "steps done": str(step), **hashes})


def warnings_for(comm: Communicator, steps: Steps | ClippedSteps, network: Network, loss: Loss, size: int) -> list[str]:
    """Returns warnings for a fit, in steps of `size` examples, in which processes do less or more than expected."""
    if comm.size == 1:
        alone = "distributed: this trainer was made without it, so each rank trains alone"
        return [alone] if MPI.max_size > 1 else []
    if not steps.is_distributable:
        why = _whole_steps(network, loss, steps.update)
        return [f"distributed: each of {comm.size} ranks does all of each step: {why}"]
    busy = sum(first < end for first, end in (local_range(size, rank, comm.size) for rank in range(comm.size)))
    if busy < comm.size:
        return [f"distributed: {comm.size - busy} of {comm.size} ranks have nothing to do in steps of {size} examples"]
    return []


def _whole_steps(network: Network, loss: Loss, update: Update | None) -> str:
    """Returns the reason why each process does all of each step."""
    in_python = [type(leaf).__name__ for leaf in network.leaves if not leaf.native]
    if in_python:
        return f"{in_python[0]} is a layer in NumPy"
    if not speaks_for(loss, "op", "__call__"):
        return "the loss is in Python"
    if not is_native(update):
        return "the optimizer is in Python"
    if network.couples_examples:
        return "layers see each micro-batch of a step alone, or a kernel reads the whole batch"
    return "a kernel reads the whole batch, or nothing is trained"


def _fact(value: Any) -> str:
    """Returns a value as text; the hash of an array begins with #, and is not shown in errors."""
    if isinstance(value, str) and len(value) >= 64:
        return f"#{value}"
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _hashes(arrays: Mapping[str, Array]) -> dict[str, str]:
    return {name: "#" + hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest() for name, a in arrays.items()}
