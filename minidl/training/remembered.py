"""What an optimizer or a schedule remembers: found for a checkpoint, its arrays written as tensors, and given back."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from minidl.arguments import constructor_arguments
from minidl.arrays import Array

WAY_OUT = "give its class a state_dict() and a load_state_dict(state)"
MOST = 10_000  # things that are looked at: what is longer is a list of numbers


def remembered(part: Any, living: Sequence[Array]) -> dict[str, Any]:
    """What an optimizer or a schedule knows beside what made it: its state_dict(), or its attributes.

    An attribute that is named like an argument may have changed since; a function or an object there is the argument,
    and so is a private attribute that still equals it. Raises TypeError for attributes that would come back as
    something else: copies of what is `living` in the model, or of each other.
    """
    if hasattr(part, "state_dict") != hasattr(part, "load_state_dict"):
        name = type(part).__name__
        raise TypeError(f"{name}: expected state_dict() and load_state_dict(state), or neither, got one of them")
    if hasattr(part, "state_dict"):
        state: dict[str, Any] = part.state_dict()
        return state
    if any(vars(cls).get("__slots__") for cls in type(part).__mro__):
        raise TypeError(f"{type(part).__name__}: cannot be saved, for its class has __slots__; {WAY_OUT}")
    arguments = constructor_arguments(part)
    attributes = vars(part) if hasattr(part, "__dict__") else {}
    plain = (bool, int, float, str, np.generic, np.ndarray, list, dict, type(None))
    found = {
        name: value
        for name, value in attributes.items()
        if (name not in arguments or isinstance(value, plain))
        and not (name[:1] == "_" and name[1:] in arguments and value is arguments[name[1:]])
    }
    _check_own(found, type(part).__name__, living, {})
    return found


def _check_own(value: Any, where: str, living: Sequence[Array], seen: dict[int, str]) -> None:
    """Raises TypeError for an array of the model's own memory, and for what is in two places."""
    if not isinstance(value, (list, tuple, dict, np.ndarray)) or len(seen) > MOST:
        return
    if id(value) in seen:
        raise TypeError(f"{where}: cannot be saved, for it is {seen[id(value)]} as well; {WAY_OUT}")
    if isinstance(value, np.ndarray) and any(np.may_share_memory(value, array) for array in living):
        raise TypeError(f"{where}: cannot be saved, for it lies in the model's parameters; {WAY_OUT}")
    if not isinstance(value, tuple):
        seen[id(value)] = where
    if not isinstance(value, np.ndarray):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            _check_own(part, f"{where}[{key!r}]", living, seen)


def remember(part: Any, state: dict[str, Any], ours: bool) -> None:
    """Gives back what `remembered` found; raises ValueError for what it cannot have found in a part of ours."""
    if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
        raise ValueError(f"{type(part).__name__}: expected what it remembers by name, got {type(state).__name__}")
    if ours and state.keys() != remembered(part, []).keys():
        raise ValueError(f"{type(part).__name__}: expected {sorted(remembered(part, []))}, got {sorted(state)}")
    if hasattr(part, "load_state_dict"):
        part.load_state_dict(state)
    elif state:
        vars(part).update(state)


class Arrays:
    """What in a state is no JSON: arrays, with their layout, and long lists of numbers, as tensors."""

    def __init__(self, tensors: dict[str, Array]) -> None:
        self.tensors = tensors

    def encode(self, value: Any, where: str) -> dict[str, Any] | None:
        """For `encoding.encode`: adds a tensor; raises TypeError for arrays that no tensor can be."""
        if isinstance(value, list) and len(value) > 100:  # a header is no place for them
            for kind, number, dtype in (("floats", float, np.float64), ("ints", int, np.int64)):
                if all(type(item) is number for item in value):
                    with contextlib.suppress(OverflowError):
                        return self._add(kind, np.array(value, dtype))
        if not isinstance(value, np.ndarray):
            return None
        if isinstance(value, np.ma.MaskedArray) or value.dtype.kind not in "biuf" or value.dtype.itemsize > 8:
            got = f"{type(value).__name__} of {value.dtype}"
            raise TypeError(f"{where}: cannot be saved: expected an array of integers or real numbers, got {got}")
        if value.dtype == bool:
            return self._add("bools", value.astype(np.uint8))
        fortran = value.flags.f_contiguous and not value.flags.c_contiguous  # NumPy sums in the order of memory
        return self._add("transposed", value.T) if fortran else self._add("array", value)

    def _add(self, kind: str, array: Array) -> dict[str, Any]:
        name = f"array/{len(self.tensors)}"
        self.tensors[name] = np.array(array, order="C")
        return {kind: name}

    def decode(self, kind: str, name: Any) -> Any:
        """For `encoding.decode`: takes a tensor away."""
        if kind not in ("array", "transposed", "bools", "floats", "ints"):
            raise ValueError(f"unknown kind {kind!r}")
        array = self.tensors.pop(name)
        if kind == "bools":
            return array.astype(bool)
        return array.T if kind == "transposed" else array if kind == "array" else array.tolist()
