"""The state of an optimizer or a schedule in a checkpoint: collected, written as JSON and tensors, and restored.

It includes the state of nested objects at any depth: Lookahead around Adam, a list of schedules.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from minidl.optimizers.base import Optimizer
from minidl.saving.json_codec import decode, encode
from minidl.utils.arrays import Array, memory_order
from minidl.utils.constructors import constructor_arguments, parameters

STATE_DICT = "state_dict()"  # the key of what an object's own state_dict returned: no attribute has this name
STATE_DICT_HINT = "give its class a state_dict() and a load_state_dict(state)"
MAX_DEPTH = 16  # levels of nested objects: an object that contains itself would never end
PLAIN = (bool, int, float, str, np.generic, np.ndarray, list, tuple, dict, type(None))


def get_state(part: Any) -> dict[str, Any]:
    """Returns the state of an optimizer or a schedule without the constructor's arguments: state_dict() or attributes.

    An attribute named like an argument may have changed since; a function there is the argument, and so is a private
    attribute that still equals it. A state_dict() may leave out the objects passed to the constructor, so these are
    added.
    """
    if has_state_dict(part):
        return {STATE_DICT: part.state_dict(), **saved_attributes(part)}
    memory = {"_memory": part.state_dict()} if isinstance(part, Optimizer) and vars(part).get("_memory") else {}
    return saved_attributes(part) | memory


def has_state_dict(part: Any) -> bool:
    """Whether an object has a state_dict of its own: Optimizer's covers only steps that were made by hand."""
    if hasattr(part, "state_dict") != hasattr(part, "load_state_dict"):
        name = type(part).__name__
        raise TypeError(f"{name}: expected state_dict() and load_state_dict(state), or neither, got one of them")
    own = not isinstance(part, Optimizer) or type(part).state_dict is not Optimizer.state_dict
    return own and hasattr(part, "state_dict")


def saved_attributes(part: Any) -> dict[str, Any]:
    """Returns the attributes to save; for an object with its own state_dict, the objects passed to its constructor."""
    attributes = dict(vars(part)) if hasattr(part, "__dict__") else {}
    if has_state_dict(part):
        names = parameters(type(part))
        return {name: one for name, one in attributes.items() if name.removeprefix("_") in names and _has_objects(one)}
    arguments = constructor_arguments(part)
    if _slots(part) - arguments.keys():
        raise TypeError(f"{type(part).__name__}: cannot be saved: its class has __slots__; {STATE_DICT_HINT}")
    if isinstance(part, Optimizer):
        del attributes["_memory"]

    def is_argument(name: str, value: Any) -> bool:
        """Whether an attribute is what the constructor was given, and stays that."""
        if holds_state(value) or (name == "_lr" and isinstance(part, Optimizer) and not callable(value)):
            return False
        if name in arguments:
            return not isinstance(value, PLAIN)
        return name[:1] == "_" and name[1:] in arguments and value is arguments[name[1:]]

    return {name: value for name, value in attributes.items() if not is_argument(name, value)}


def _has_objects(value: Any) -> bool:
    """Whether a value is an object that may have state, or has one in it."""
    if isinstance(value, (list, tuple, dict)):
        return any(map(_has_objects, value.values() if isinstance(value, dict) else value))
    return holds_state(value)


def _slots(part: Any) -> set[str]:
    slots = [vars(cls).get("__slots__", ()) for cls in type(part).__mro__]
    return {name for names in slots for name in ([names] if isinstance(names, str) else names)}


def holds_state(value: Any) -> bool:
    """Whether a value is an object that may have state, such as an optimizer or a schedule."""
    if isinstance(value, (*PLAIN, type)) or hasattr(value, "__name__"):
        return False
    return hasattr(value, "__dict__") or bool(_slots(value))


@dataclass(frozen=True)
class Inner:
    """The state of a nested object, read from a file: the name of its class, and its state."""

    name: str
    state: dict[str, Any]


def set_state(part: Any, state: Any, ours: Collection[Any]) -> None:
    """Restores what `get_state` returned; raises ValueError for any other state of an object of `ours`."""
    if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
        raise ValueError(f"{type(part).__name__}: expected its state by name, got {type(state).__name__}")
    if type(part) in ours and state.keys() - {"_memory", "_lr"} != get_state(part).keys() - {"_memory", "_lr"}:
        raise ValueError(f"{type(part).__name__}: expected {sorted(get_state(part))}, got {sorted(state)}")
    entries = dict(state)
    if isinstance(part, Optimizer) and not has_state_dict(part):
        part.load_state_dict(entries.pop("_memory", {}))
    own = entries.pop(STATE_DICT) if has_state_dict(part) else None
    if type(part) not in ours and not has_state_dict(part):
        for name in saved_attributes(part).keys() - entries.keys():  # set by the constructor, deleted in training
            del vars(part)[name]
    for name, value in entries.items():
        known = vars(part).get(name)
        found = _with_inner(known, value, f"{type(part).__name__}.{name}", ours)
        if type(part) not in ours:
            vars(part)[name] = found
        elif found is not known:
            setattr(part, "lr" if name == "_lr" else name, found)  # which checks it
    if has_state_dict(part):
        part.load_state_dict(_with_inner(None, own, f"{type(part).__name__}.{STATE_DICT}", ours))


def _with_inner(known: Any, value: Any, where: str, ours: Collection[Any]) -> Any:
    """Returns a value read from a file, in which nested objects are those the constructor made, with their state."""
    if isinstance(value, Inner):
        if type(known).__name__ != value.name:
            raise ValueError(f"{where}: expected the {value.name} that was saved, from its constructor, got {known!r}")
        set_state(known, value.state, ours)
        return known
    if isinstance(value, (list, tuple)):
        items = known if isinstance(known, type(value)) and len(known) == len(value) else [None] * len(value)
        return type(value)(_with_inner(one, part, where, ours) for one, part in zip(items, value, strict=True))
    if isinstance(value, dict):
        entries = known if isinstance(known, dict) else {}
        return {key: _with_inner(entries.get(key), part, where, ours) for key, part in value.items()}
    return value


class TensorCodec:
    """Encodes what JSON cannot hold: nested objects, arrays with their layout, and long lists of numbers as tensors."""

    def __init__(self, tensors: dict[str, Array]) -> None:
        self.tensors = tensors
        self._depth = 0  # the level of the object that is being encoded

    def encode(self, value: Any, where: str) -> dict[str, Any] | None:
        """Encodes a value for `json_codec.encode`; raises TypeError for what no tensor or constructor can hold."""
        return self._inner(value, where) if holds_state(value) else self.encode_array(value, where)

    def encode_array(self, value: Any, where: str) -> dict[str, Any] | None:
        """Encodes an array or a long list of numbers as a tensor; returns None for anything else."""
        if isinstance(value, list) and len(value) > 100:  # too long for a header
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
        order = memory_order(value)
        if order == tuple(range(value.ndim)):
            return self._add("array", value)
        stored = self._add("permuted", value.transpose(order))  # NumPy sums in the order of memory
        return {"permuted": [stored["permuted"], list(order)]}

    def _inner(self, value: Any, where: str) -> dict[str, Any]:
        if self._depth >= MAX_DEPTH:
            raise TypeError(f"{where}: cannot be saved: expected objects nested at most {MAX_DEPTH} deep, got more")
        self._depth += 1
        try:
            return {"object": [type(value).__name__, encode(get_state(value), where, self.encode)]}
        except ValueError as error:  # a constructor whose arguments are unknown
            raise TypeError(f"{where}: cannot be saved: {error}; {STATE_DICT_HINT}") from error
        finally:
            self._depth -= 1

    def _add(self, kind: str, array: Array) -> dict[str, Any]:
        name = f"array/{len(self.tensors)}"
        self.tensors[name] = np.array(array, order="C")
        return {kind: name}

    def decode(self, kind: str, content: Any) -> Any:
        """Decodes a value for `json_codec.decode`; removes its tensor."""
        if kind == "object":
            name, state = content
            return Inner(name, decode(state, self.decode))
        if kind not in ("array", "permuted", "bools", "floats", "ints"):
            raise ValueError(f"unknown kind {kind!r}")
        if kind == "permuted":
            name, order = content
            stored = self.tensors.pop(name)
            if sorted(order) != list(range(stored.ndim)):
                raise ValueError(f"{name}: expected the axes of an array of {stored.ndim}, got {order}")
            return stored.transpose(np.argsort(order))
        array = self.tensors.pop(content)
        if kind == "bools":
            return array.astype(bool)
        return array if kind == "array" else array.tolist()
