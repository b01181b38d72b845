"""The state of an optimizer or a schedule in a checkpoint: collected, written as JSON and tensors, and restored.

It includes the state of nested objects at any depth: Lookahead around Adam, a list of schedules.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minidl.optimizers.base import Optimizer
from minidl.saving.json_codec import decode, encode
from minidl.training.state_ownership import MAX_ITEMS, STATE_DICT_HINT, Seen, check_own
from minidl.utils.arrays import Array, memory_order
from minidl.utils.constructors import constructor_arguments, parameters

STATE_DICT = "state_dict()"  # the key of what an object's own state_dict returned: no attribute has this name
MAX_DEPTH = 16  # of nested objects: one that contains itself would never end
PLAIN = (bool, int, float, str, np.generic, np.ndarray, list, tuple, dict, type(None))


def get_state(part: Any, living: Sequence[Array], seen: Seen | None = None) -> dict[str, Any]:
    """Returns the state of an optimizer or a schedule without the constructor's arguments: state_dict() or attributes.

    An attribute named like an argument may have changed since; a function there is the argument, and so is a private
    attribute that still equals it. A state_dict() may leave out the objects passed to the constructor, so these are
    added. Raises TypeError for attributes that would be restored as something else: copies of the `living` arrays of
    the model, of each other, or of what was `seen` in other objects.
    """
    name, found = type(part).__name__, _kept(part)
    if _has_state_dict(part):
        return {STATE_DICT: part.state_dict(), **found}
    memory = {"_memory": part.state_dict()} if isinstance(part, Optimizer) and vars(part).get("_memory") else {}
    check_own(found, name, living, Seen())
    if seen is not None:
        for key in (key for key in found if key not in parameters(type(part))):  # arguments may be shared
            check_own(found[key], f"{name}.{key}", living, seen)
    return found | memory


def _has_state_dict(part: Any) -> bool:
    """Whether an object has a state_dict of its own. That of Optimizer itself covers only steps made by hand."""
    if hasattr(part, "state_dict") != hasattr(part, "load_state_dict"):
        name = type(part).__name__
        raise TypeError(f"{name}: expected state_dict() and load_state_dict(state), or neither, got one of them")
    own = not isinstance(part, Optimizer) or type(part).state_dict is not Optimizer.state_dict
    return own and hasattr(part, "state_dict")


def _kept(part: Any) -> dict[str, Any]:
    """Returns the attributes to save; for an object with its own state_dict, the objects passed to its constructor."""
    attributes = dict(vars(part)) if hasattr(part, "__dict__") else {}
    if _has_state_dict(part):
        return {name: value for name, value in attributes.items() if name.removeprefix("_") in parameters(type(part))
                and any(True for _ in _places(value, name, set()))}  # fmt: skip
    arguments = constructor_arguments(part)
    if _slots(part) - arguments.keys():
        raise TypeError(f"{type(part).__name__}: cannot be saved: its class has __slots__; {STATE_DICT_HINT}")
    if isinstance(part, Optimizer):
        del attributes["_memory"]
    return {
        name: value
        for name, value in attributes.items()
        if (name not in arguments or isinstance(value, PLAIN) or holds_state(value))
        and (
            name[:1] != "_" or name[1:] not in arguments or value is not arguments[name[1:]] or _may_change(part, name)
        )
    }


def _may_change(part: Any, name: str) -> bool:
    """Whether a private attribute that equals the argument of its name may have changed since the constructor."""
    value = vars(part)[name]
    return holds_state(value) or (name == "_lr" and isinstance(part, Optimizer) and not callable(value))


def _slots(part: Any) -> set[str]:
    slots = [vars(cls).get("__slots__", ()) for cls in type(part).__mro__]
    return {name for names in slots for name in ([names] if isinstance(names, str) else names)}


def holds_state(value: Any) -> bool:
    """Whether a value is an object that may have state, such as an optimizer or a schedule."""
    if isinstance(value, (*PLAIN, type)) or hasattr(value, "__name__"):
        return False
    return hasattr(value, "__dict__") or bool(_slots(value))


def _places(value: Any, where: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Yields each nested object that may have state, at every place where it occurs; the objects in it only once."""
    known, inner = id(value) in seen, dict[str, Any]()
    if holds_state(value):
        yield where, value
        inner = {} if known else {f"{where}.{name}": part for name, part in _kept(value).items()}
    elif isinstance(value, dict) and not known:
        inner = {f"{where}[{key!r}]": part for key, part in value.items()}
    elif isinstance(value, (list, tuple)) and not known and len(value) <= MAX_ITEMS:
        inner = {f"{where}[{i}]": part for i, part in enumerate(value)}
    if inner:
        seen.add(id(value))
    for place, part in inner.items():
        yield from _places(part, place, seen)


def check_shared(made: Any, again: Any) -> None:
    """Raises TypeError where `again`, made by a resume, differs: one object or two, or other arguments."""
    name, first, parts = type(made).__name__, dict[int, str](), dict[int, str]()
    twins = dict(_places(again, name, set()))
    for place, part in _places(made, name, set()):
        other, twin = first.setdefault(id(part), place), twins.get(place)
        if twin is not twins.get(other) and not _is_function(part):
            raise TypeError(f"{place}: cannot be saved: it is also {other}; a resume would make two objects of it")
        if twin is None:
            continue
        if type(part) is not type(twin):
            raise TypeError(f"{place}: cannot be saved: a resume would make a {type(twin).__name__} instead")
        same = parts.setdefault(id(twin), other)
        if same != other:
            raise TypeError(f"{place}: cannot be saved: it is not {same}; a resume would make them one object")
        if not _has_state_dict(part):
            _check_arguments(part, twin, place)


def _check_arguments(part: Any, twin: Any, place: str) -> None:
    """Raises TypeError for arguments of a nested object that a resume would not restore."""
    saved = {name.removeprefix("_") for name in _kept(part)}
    for name, value in constructor_arguments(part).items():
        known = getattr(twin, name)
        if name not in saved and not holds_state(value) and not _equal(known, value):
            expected = f"its {name} is {value!r}, and a resume would make it with {known!r}"
            raise TypeError(f"{place}: cannot be saved: {expected}; {STATE_DICT_HINT}")


def _equal(a: Any, b: Any) -> bool:
    """Whether two values are equal numbers, strings, arrays or lists of them, or functions with the same definition."""
    if a is b or type(a) is not type(b):
        return a is b
    if isinstance(a, np.ndarray):
        return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_equal, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    if not isinstance(a, PLAIN):
        return getattr(a, "__code__", a) is getattr(b, "__code__", b)
    return bool(a == b) or bool(a != a and b != b)  # NaN


def _is_function(part: Any) -> bool:
    """Whether an object, such as a schedule of minidl's, has no state beyond its arguments: equal ones serve as one."""
    names = {prefix + name for name in parameters(type(part)) for prefix in ("", "_")}
    return not isinstance(part, Optimizer) and not _has_state_dict(part) and _kept(part).keys() <= names


@dataclass(frozen=True)
class Inner:
    """The state of a nested object, read from a file: the name of its class, and its state."""

    name: str
    state: dict[str, Any]


def set_state(part: Any, state: Any, ours: Collection[Any]) -> None:
    """Restores what `get_state` returned; raises ValueError for any other state of an object of `ours`."""
    if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
        raise ValueError(f"{type(part).__name__}: expected its state by name, got {type(state).__name__}")
    if type(part) in ours and state.keys() - {"_memory", "_lr"} != get_state(part, []).keys() - {"_memory", "_lr"}:
        raise ValueError(f"{type(part).__name__}: expected {sorted(get_state(part, []))}, got {sorted(state)}")
    entries = dict(state)
    if isinstance(part, Optimizer) and not _has_state_dict(part):
        part.load_state_dict(entries.pop("_memory", {}))
    own = entries.pop(STATE_DICT) if _has_state_dict(part) else None
    if type(part) not in ours and not _has_state_dict(part):
        for name in _kept(part).keys() - entries.keys():  # set by the constructor, deleted in training
            del vars(part)[name]
    for name, value in entries.items():
        known = vars(part).get(name)
        found = _with_inner(known, value, f"{type(part).__name__}.{name}", ours)
        if type(part) not in ours:
            vars(part)[name] = found
        elif found is not known:
            setattr(part, "lr" if name == "_lr" else name, found)  # which checks it
    if _has_state_dict(part):
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
    """Encodes what JSON cannot hold: arrays, with their layout, and long lists of numbers as tensors; nested objects.

    living: the model's arrays, which no state may contain.
    """

    def __init__(self, tensors: dict[str, Array], living: Sequence[Array] = ()) -> None:
        self.tensors, self.living = tensors, living
        self.seen = Seen()  # in the attributes of all objects
        self._depth = 0  # of objects in objects

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
            return {
                "object": [type(value).__name__, encode(get_state(value, self.living, self.seen), where, self.encode)]
            }
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
