"""What callbacks find in a checkpoint, checked as arguments are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from minidl.utils.arrays import Array

Check = Callable[[str, Any], Any]  # of a name and a value; raises TypeError or ValueError


def check_state(state: Any, checks: Mapping[str, Check]) -> None:
    """Raises TypeError or ValueError unless a state has an entry for each check, which passes, and no more."""
    if not isinstance(state, Mapping) or state.keys() != checks.keys():
        got = sorted(map(str, state)) if isinstance(state, Mapping) else type(state).__name__
        raise ValueError(f"state: expected {sorted(checks)}, got {got}")
    for name, check in checks.items():
        check(name, state[name])


def real(name: str, value: Any) -> None:
    """A real number, infinity and NaN too."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.floating, np.integer)):
        raise TypeError(f"{name}: expected a number, got {value!r:.100}")


def optional(check: Check) -> Check:
    """None, or what passes the check."""

    def checked(name: str, value: Any) -> None:
        if value is not None:
            check(name, value)

    return checked


def arrays_like(arrays: Mapping[str, Array]) -> Check:
    """Arrays of the same names, shapes and dtypes as these."""

    def checked(name: str, value: Any) -> None:
        if not isinstance(value, Mapping) or value.keys() != arrays.keys():
            raise ValueError(f"{name}: expected an array for each of {sorted(arrays)}, got something else")
        for key, array in arrays.items():
            found = value[key]
            if not isinstance(found, np.ndarray) or found.shape != array.shape or found.dtype != array.dtype:
                got = f"{found.dtype} {found.shape}" if isinstance(found, np.ndarray) else type(found).__name__
                raise ValueError(f"{name}[{key!r}]: expected {array.dtype} {array.shape}, got {got}")

    return checked
