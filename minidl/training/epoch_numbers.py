"""The end of an epoch: callbacks see its record one after the other, and may add numbers to it."""

from __future__ import annotations

import json
import math
import numbers
from typing import Any

import numpy as np

from minidl.callbacks.callback_list import CallbackList
from minidl.callbacks.monitor import Monitor
from minidl.distributed.communicator import Communicator
from minidl.training.base_trainer import BaseTrainer


def end_epoch(trainer: BaseTrainer, callbacks: CallbackList, epoch: int, record: dict[str, float]) -> None:
    """Calls on_epoch_end of all callbacks. Numbers that one adds to `logs` are in the record for those that follow.

    They are also in the history. In all processes they are those that rank 0 added, also by callbacks that run there
    alone. What is in the record stays.

    record: that of the epoch, which is in the history; it grows.

    Raises TypeError or ValueError, naming the callback, for an addition that is no number or that a callback before it
    monitors, and for what it replaced or removed.
    """
    comm, logs = trainer.comm, dict(record)
    monitored: dict[str, Any] = {}  # the callbacks so far that monitor a name
    for group in callbacks.groups():
        added: dict[str, float] = {}
        with comm.raise_together():
            for callback in group:
                if (hook := getattr(callback, "on_epoch_end", None)) is not None:
                    hook(trainer, epoch, logs)
                    more = _additions(type(callback).__name__, logs, record)
                    if comm.rank == 0:
                        for name in monitored.keys() & more.keys():
                            expected = f"expected {type(callback).__name__}, which adds {name!r}, before its monitor"
                            raise ValueError(f"monitor: {expected}, got {monitored[name]!r} before it")
                        _add(trainer, record, more)
                        added |= more
                    logs.clear()
                    logs.update(record)
                if isinstance(monitor := getattr(callback, "_monitor", None), Monitor):
                    monitored[monitor.name] = callback
        if comm.size > 1:
            shared = _of_rank_zero(comm, added)
            if comm.rank:
                _add(trainer, record, shared)
                logs.update(record)


def _add(trainer: BaseTrainer, record: dict[str, float], more: dict[str, float]) -> None:
    record.update(more)
    trainer.history.extend_epoch(more)


def _additions(owner: str, logs: dict[Any, Any], record: dict[str, float]) -> dict[str, float]:
    """Returns the numbers in `logs` that are not in the record; raises TypeError or ValueError as `end_epoch`."""
    for name, value in record.items():
        found = logs.get(name)
        if found is not value and not _same(found, value):
            got = f"got {found!r:.100}" if name in logs else "it is gone"
            raise ValueError(f"logs[{name!r}]: expected {owner} to keep {value}, and to add other names only, {got}")
    return {_name(owner, name): _number(owner, name, logs[name]) for name in logs if name not in record}


def _same(found: Any, value: float) -> bool:
    """Whether these are the same number."""
    number = _as_float(found)
    return number is not None and (number == value or (math.isnan(number) and math.isnan(value)))


def _name(owner: str, name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"logs: expected names of what {owner} adds, got {name!r:.100}")
    if not name.isprintable() or not name:
        raise ValueError(f"logs: expected names of printable characters, of what {owner} adds, got {name!r:.100}")
    return name


def _number(owner: str, name: str, value: Any) -> float:
    if (number := _as_float(value)) is None:
        raise TypeError(f"logs[{name!r}]: expected a number from {owner}, got {value!r:.100}")
    return number


def _as_float(value: Any) -> float | None:
    """Returns a real number, or an array of one without dimensions, as a float; None for anything else."""
    if isinstance(value, (np.generic, np.ndarray)) and value.ndim == 0 and not np.ma.is_masked(value):
        value = value.item()
    try:
        return float(value) if isinstance(value, numbers.Real) else None
    except OverflowError:
        return None


def _of_rank_zero(comm: Communicator, added: dict[str, float]) -> dict[str, float]:
    """Returns what rank 0 added, in all processes."""
    text = json.dumps(added).encode()
    (size,) = comm.broadcast([len(text)])
    shared: dict[str, float] = json.loads(bytes(comm.broadcast(list(text) if comm.rank == 0 else [0] * size)))
    return shared
