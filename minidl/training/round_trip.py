"""The check that a resume gives back an optimizer as it was: its state makes one round trip through the checkpoint."""

from __future__ import annotations

from bisect import bisect, insort
from collections.abc import Sequence
from typing import Any

import numpy as np

from minidl.optimizers.base import Optimizer
from minidl.training.optimizer_state import PLAIN, STATE_DICT_HINT, has_state_dict, holds_state, saved_attributes
from minidl.utils.arrays import Array, memory_order
from minidl.utils.constructors import constructor_arguments, parameters

MAX_ITEMS = 10_000  # items of a list that is searched: a longer one holds numbers


class RoundTrip:
    """Compares an optimizer with the one that was restored from its state, object by object.

    The values of saved attributes are equal, since they come from the file. What remains to be compared is which places
    hold the same object, and the arguments of objects that a constructor makes. A list, dict or array is restored as a
    new one at each place, so it may have only one place, and needs memory of its own. Several objects may have the same
    one as an argument.

    living: the model's parameters and gradients, which no state may be part of.
    """

    def __init__(self, living: Sequence[Array]) -> None:
        self.living = living
        self.twins: dict[int, tuple[Any, str, str]] = {}  # by the id of a part: its twin, its place and owner
        self.parts: dict[int, tuple[Any, str]] = {}  # by the id of a twin: the part that it is made of, and its place
        self.memory: list[tuple[int, int, str, str]] = []  # sorted: each array's first and last byte, place and owner

    def compare(self, part: Any, twin: Any, place: str) -> None:
        """Raises TypeError, naming the place, where an object differs from `twin`, which a resume makes of it."""
        known, first = self.parts.setdefault(id(twin), (part, place))
        if known is not part:
            raise TypeError(f"{place}: cannot be saved: it is not {first}; a resume would make them one object")
        if place != first:
            return
        saved, names = saved_attributes(part), parameters(type(part))
        for name, value in saved.items():
            owner = place if name.removeprefix("_") in names else ""
            self._compare(value, getattr(twin, name, None), f"{place}.{name}", f"{place}[{name!r}]", owner)
        for name, value in ({} if has_state_dict(part) else constructor_arguments(part)).items():
            other, is_saved = getattr(twin, name), not {name, f"_{name}"}.isdisjoint(saved)
            if not is_saved and not holds_state(value) and _signature(value) != _signature(other):
                expected = f"its {name} is {value!r}, and a resume would make it with {other!r}"
                raise TypeError(f"{place}: cannot be saved: {expected}; {STATE_DICT_HINT}")

    def _compare(self, value: Any, twin: Any, place: str, where: str, owner: str) -> None:
        """Compares what an attribute holds, and what is in it. An object is named `place`, another value `where`.

        owner: the place of the object that has the value as an argument; "" if it is no argument.
        """
        if isinstance(value, np.ndarray):
            self._add_memory(value, where, owner)
        elif holds_state(value):
            self._add(value, twin, place, place if _is_function(value) else "", "a resume would make two objects of it")
            self.compare(value, twin, place)
        elif isinstance(value, (list, dict, tuple)):
            self._add(value, twin, where, where if isinstance(value, tuple) else owner, STATE_DICT_HINT)
            items = value.items() if isinstance(value, dict) else enumerate(value if len(value) <= MAX_ITEMS else ())
            others = twin.values() if isinstance(twin, dict) else twin
            for (key, part), other in zip(items, others, strict=False):
                self._compare(part, other, f"{place}[{key!r}]", f"{where}[{key!r}]", owner)

    def _add(self, value: Any, twin: Any, place: str, owner: str, why: str) -> None:
        """Adds a value; raises TypeError if it has an earlier place, and a resume would make two objects of it."""
        if type(value) is not type(twin):
            raise TypeError(f"{place}: cannot be saved: a resume would make a {type(twin).__name__} instead")
        known, first, first_owner = self.twins.setdefault(id(value), (twin, place, owner))
        if known is not twin and not _may_share(owner, first_owner):
            raise TypeError(f"{place}: cannot be saved: it is also {first}; {why}")

    def _add_memory(self, array: Array, place: str, owner: str) -> None:
        """Adds an array; raises TypeError if it shares memory with an earlier one, or if a copy would differ."""
        if any(np.may_share_memory(array, one) for one in self.living):
            raise TypeError(f"{place}: cannot be saved: it is part of the model's parameters; {STATE_DICT_HINT}")
        is_array = type(array) is np.ndarray
        if not is_array or not array.transpose(memory_order(array)).flags.c_contiguous:
            kind = "in one piece" if is_array else f"and no {type(array).__name__}"
            raise TypeError(f"{place}: cannot be saved: expected an array of NumPy, {kind}; {STATE_DICT_HINT}")
        start = array.__array_interface__["data"][0]
        span = (start, start + array.nbytes, place, owner)
        at = bisect(self.memory, span)
        for first, end, other, other_owner in self.memory[max(at - 1, 0) : at + 1]:
            if first < span[1] and start < end and not _may_share(owner, other_owner):
                raise TypeError(f"{place}: cannot be saved: it shares memory with {other}; {STATE_DICT_HINT}")
        if array.nbytes:
            insort(self.memory, span)


def _may_share(owner: str, other: str) -> bool:
    """Whether a resume may make two of one value: only if two objects have it as an argument."""
    return bool(owner and other) and owner != other


def _is_function(part: Any) -> bool:
    """Whether an object, such as a schedule of minidl's, has no state beyond its arguments: equal ones serve as one."""
    names = {prefix + name for name in parameters(type(part)) for prefix in ("", "_")}
    return not isinstance(part, Optimizer) and not has_state_dict(part) and saved_attributes(part).keys() <= names


def _signature(value: Any) -> Any:
    """Returns what is the same for equal numbers, strings, arrays and lists, and for functions of one definition."""
    if isinstance(value, np.ndarray):
        return type(value), value.dtype, value.shape, value.tobytes()
    if isinstance(value, (list, tuple)):
        return type(value), [_signature(part) for part in value]
    if isinstance(value, dict):
        return {key: _signature(part) for key, part in value.items()}
    return (type(value), repr(value)) if isinstance(value, PLAIN) else id(getattr(value, "__code__", value))
