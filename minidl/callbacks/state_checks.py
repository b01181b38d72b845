"""Checks of callbacks' states in a checkpoint, as strict as those of arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from minidl.utils.arrays import Array
from minidl.utils.validation import Shape

_RUN = re.compile(r"[0-9a-f]{32}")
Check = Callable[[str, Any], Any]  # check(name, value) raises TypeError or ValueError


def check_state(state: Any, checks: Mapping[str, Check], **newer: Any) -> dict[str, Any]:
    """Returns a state; raises TypeError or ValueError unless it has exactly one valid entry for each check.

    newer: entries that files of earlier versions lack, with their values then.
    """
    state = newer | state if isinstance(state, dict) else state
    if not isinstance(state, Mapping) or state.keys() != checks.keys():
        got = sorted(map(str, state)) if isinstance(state, Mapping) else type(state).__name__
        raise ValueError(f"state: expected {sorted(checks)}, got {got}")
    for name, check in checks.items():
        check(name, state[name])
    return dict(state)


def check_number(name: str, value: Any) -> None:
    """Raises TypeError unless `value` is a real number; infinity and NaN are allowed."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.floating, np.integer)):
        raise TypeError(f"{name}: expected a number, got {value!r:.100}")


def check_run(name: str, run: Any) -> str:
    """Returns the id of a run; raises ValueError for anything else."""
    if not isinstance(run, str) or not _RUN.fullmatch(run):
        raise ValueError(f"{name}: expected 32 hexadecimal digits, got {run!r:.100}")
    return run


def optional(check: Check) -> Check:
    """Returns a check that also accepts None."""

    def checked(name: str, value: Any) -> None:
        if value is not None:
            check(name, value)

    return checked


def arrays_like(arrays: Mapping[str, Array]) -> Check:
    """Returns a check for a dict of arrays with the same names, shapes and dtypes as these. It can be pickled."""
    return partial(_check_arrays, {key: (array.dtype, array.shape) for key, array in arrays.items()})


def _check_arrays(kinds: Mapping[str, tuple[np.dtype[Any], Shape]], name: str, value: Any) -> None:
    if not isinstance(value, Mapping) or value.keys() != kinds.keys():
        raise ValueError(f"{name}: expected an array for each of {sorted(kinds)}, got something else")
    for key, (dtype, shape) in kinds.items():
        other = value[key]
        if not isinstance(other, np.ndarray) or other.shape != shape or other.dtype != dtype:
            got = f"{other.dtype} {other.shape}" if isinstance(other, np.ndarray) else type(other).__name__
            raise ValueError(f"{name}[{key!r}]: expected {dtype} {shape}, got {got}")
