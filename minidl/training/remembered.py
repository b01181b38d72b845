"""What an optimizer or a schedule remembers: found for a checkpoint, its arrays written as tensors, and given back.

One that holds others (Lookahead around Adam, a list of schedules) remembers what these do, at any depth.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minidl.arguments import constructor_arguments
from minidl.arrays import Array
from minidl.optimizer import Optimizer
from minidl.saving.encoding import decode, encode

WAY_OUT = "give its class a state_dict() and a load_state_dict(state)"
MOST = 10_000  # things that are looked at: what is longer is a list of numbers
DEEPEST = 16  # objects in objects: what holds itself has no end
PLAIN = (bool, int, float, str, np.generic, np.ndarray, list, tuple, dict, type(None))


def remembered(part: Any, living: Sequence[Array]) -> dict[str, Any]:
    """What an optimizer or a schedule knows beside what made it: its state_dict(), or its attributes.

    An attribute that is named like an argument may have changed since; a function there is the argument, and so is a
    private attribute that still equals it. Raises TypeError for attributes that would come back as something else:
    copies of what is `living` in the model, or of each other.
    """
    if hasattr(part, "state_dict") != hasattr(part, "load_state_dict"):
        name = type(part).__name__
        raise TypeError(f"{name}: expected state_dict() and load_state_dict(state), or neither, got one of them")
    own = not isinstance(part, Optimizer) or type(part).state_dict is not Optimizer.state_dict
    if own and hasattr(part, "state_dict"):
        state: dict[str, Any] = part.state_dict()
        return state
    if any(vars(cls).get("__slots__") for cls in type(part).__mro__):
        raise TypeError(f"{type(part).__name__}: cannot be saved, for its class has __slots__; {WAY_OUT}")
    arguments = constructor_arguments(part)
    attributes = dict(vars(part)) if hasattr(part, "__dict__") else {}
    memory = {} if own or not attributes.pop("_memory") else {"_memory": part.state_dict()}
    found = {
        name: value
        for name, value in attributes.items()
        if (name not in arguments or isinstance(value, PLAIN) or holds_state(value))
        and not (name[:1] == "_" and name[1:] in arguments and value is arguments[name[1:]] and not holds_state(value))
    }
    _check_own(found, type(part).__name__, living, {})
    return found | memory


def holds_state(value: Any) -> bool:
    """Whether it is an object, an optimizer or a schedule, that may remember something itself."""
    return hasattr(value, "__dict__") and not isinstance(value, type) and not hasattr(value, "__name__")


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


@dataclass(frozen=True)
class Inner:
    """What an object in another one remembers, out of a file: the name of its class, and its state."""

    name: str
    state: dict[str, Any]


def remember(part: Any, state: Any, ours: Collection[Any]) -> None:
    """Gives back what `remembered` found; raises ValueError for what it cannot have found in a part of `ours`."""
    if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
        raise ValueError(f"{type(part).__name__}: expected what it remembers by name, got {type(state).__name__}")
    own = isinstance(part, Optimizer) and type(part).state_dict is Optimizer.state_dict
    if type(part) in ours and state.keys() - {"_memory"} != remembered(part, []).keys() - {"_memory"}:
        raise ValueError(f"{type(part).__name__}: expected {sorted(remembered(part, []))}, got {sorted(state)}")
    if hasattr(part, "load_state_dict") and not own:
        part.load_state_dict(state)
        return
    if own and "_memory" in state:
        part.load_state_dict(state.pop("_memory"))
    for name, value in state.items():
        known = vars(part).get(name)
        found = _with_inner(known, value, f"{type(part).__name__}.{name}", ours)
        if type(part) not in ours:
            vars(part)[name] = found
        elif found is not known:
            setattr(part, name, found)  # which checks it


def _with_inner(known: Any, value: Any, where: str, ours: Collection[Any]) -> Any:
    """The value out of a file, with the objects in it that the constructor has made, which remember again."""
    if isinstance(value, Inner):
        if type(known).__name__ != value.name:
            raise ValueError(f"{where}: expected the {value.name} that was saved, from its constructor, got {known!r}")
        remember(known, value.state, ours)
        return known
    if isinstance(value, (list, tuple)):
        items = known if isinstance(known, type(value)) and len(known) == len(value) else [None] * len(value)
        return type(value)(_with_inner(one, part, where, ours) for one, part in zip(items, value, strict=True))
    if isinstance(value, dict):
        entries = known if isinstance(known, dict) else {}
        return {key: _with_inner(entries.get(key), part, where, ours) for key, part in value.items()}
    return value


class Arrays:
    """What in a state is no JSON: arrays, with their layout, long lists of numbers, as tensors, and objects in others.

    living: the model's arrays, which no part may keep.
    """

    def __init__(self, tensors: dict[str, Array], living: Sequence[Array] = ()) -> None:
        self.tensors, self.living = tensors, living
        self._depth = 0  # of objects in objects

    def encode(self, value: Any, where: str) -> dict[str, Any] | None:
        """For `encoding.encode`: adds a tensor; raises TypeError for what neither a tensor nor a constructor can be."""
        if isinstance(value, list) and len(value) > 100:  # a header is no place for them
            for kind, number, dtype in (("floats", float, np.float64), ("ints", int, np.int64)):
                if all(type(item) is number for item in value):
                    with contextlib.suppress(OverflowError):
                        return self._add(kind, np.array(value, dtype))
        if holds_state(value):
            return self._inner(value, where)
        if not isinstance(value, np.ndarray):
            return None
        if isinstance(value, np.ma.MaskedArray) or value.dtype.kind not in "biuf" or value.dtype.itemsize > 8:
            got = f"{type(value).__name__} of {value.dtype}"
            raise TypeError(f"{where}: cannot be saved: expected an array of integers or real numbers, got {got}")
        if value.dtype == bool:
            return self._add("bools", value.astype(np.uint8))
        fortran = value.flags.f_contiguous and not value.flags.c_contiguous  # NumPy sums in the order of memory
        return self._add("transposed", value.T) if fortran else self._add("array", value)

    def _inner(self, value: Any, where: str) -> dict[str, Any]:
        if self._depth >= DEEPEST:
            raise TypeError(f"{where}: cannot be saved: expected objects nested at most {DEEPEST} deep, got more")
        self._depth += 1
        try:
            return {"object": [type(value).__name__, encode(remembered(value, self.living), where, self.encode)]}
        except ValueError as error:  # a constructor that tells nothing of its arguments
            raise TypeError(f"{where}: cannot be saved: {error}; {WAY_OUT}") from error
        finally:
            self._depth -= 1

    def _add(self, kind: str, array: Array) -> dict[str, Any]:
        name = f"array/{len(self.tensors)}"
        self.tensors[name] = np.array(array, order="C")
        return {kind: name}

    def decode(self, kind: str, content: Any) -> Any:
        """For `encoding.decode`: takes a tensor away."""
        if kind == "object":
            name, state = content
            return Inner(name, decode(state, self.decode))
        if kind not in ("array", "transposed", "bools", "floats", "ints"):
            raise ValueError(f"unknown kind {kind!r}")
        array = self.tensors.pop(content)
        if kind == "bools":
            return array.astype(bool)
        return array.T if kind == "transposed" else array if kind == "array" else array.tolist()
