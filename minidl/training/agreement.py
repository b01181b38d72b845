"""What the processes that train together must have in common, compared before a fit and behind each of its epochs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from minidl.arrays import Array
from minidl.distributed import Alone
from minidl.sequential import Sequential
from minidl.training.hooks import Hooks
from minidl.training.steps import FusedSteps
from minidl.training.supervised import Supervised
from minidl_c import isa

TIMES = "images_per_second"  # in the history: another one in each process


def check_weights(team: Alone, model: Sequential) -> None:
    """Raises ValueError in all processes, naming the parameter, unless all have the same weights to the last bit."""
    if team.ranks > 1:
        team.check_same(_hashes(model.state_dict()))


def check_call(
    team: Alone, arguments: Mapping[str, Any], hooks: Hooks, config: Mapping[str, Any], tensors: Mapping[str, Array]
) -> None:
    """Raises ValueError in all processes, naming what differs, unless they are about to do the same training.

    arguments: those of fit, arrays as hashes; config, tensors: the trainer, as a checkpoint has it.
    """
    if team.ranks == 1:
        return
    facts = {name: json.dumps(value, sort_keys=True) for name, value in config.items()}
    facts.update({name: str(value) for name, value in arguments.items()})
    facts["instruction set"] = "v2" if isa == "v2" else "v3 or v4, which have the same bits"
    facts["callbacks"] = str([type(one).__name__ for one in hooks.callbacks if not getattr(one, "only_watches", False)])
    team.check_same(facts | _hashes({name: array for name, array in tensors.items() if TIMES not in name}))


def check_data(team: Alone, data: Supervised, step: int) -> None:
    """Raises ValueError in all processes unless all have the same batch, and have done equally many steps."""
    if team.ranks > 1:
        hashes = {name: str(hash_of) for name, hash_of in data.fingerprints().items()}
        team.check_same({"steps done": str(step), **hashes})


def whole_steps(steps: Any) -> str | None:
    """Why each process does all of each step, in words; None: it does a part."""
    if steps.shares:
        return None
    if isinstance(steps, FusedSteps):
        return "a layer's kernel reads the whole batch, or nothing is trained"
    return "a layer, the loss or the optimizer is in Python, or micro-batches are apart"


def _hashes(arrays: Mapping[str, Array]) -> dict[str, str]:
    return {
        name: hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=16).hexdigest()
        for name, array in arrays.items()
    }
