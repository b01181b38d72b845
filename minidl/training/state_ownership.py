"""Checks that an optimizer owns each list, dict and array in its state: a copy of a shared one would be different."""

from __future__ import annotations

from bisect import bisect, insort
from collections.abc import Sequence
from typing import Any

import numpy as np

from minidl.utils.arrays import Array, memory_order

STATE_DICT_HINT = "give its class a state_dict() and a load_state_dict(state)"
MAX_ITEMS = 10_000  # values that are checked: anything longer is a list of numbers


class Seen:
    """Lists, dicts and arrays seen so far, and the place of each."""

    def __init__(self) -> None:
        self.places = dict[int, str]()
        self.memory: list[tuple[int, int, str]] = []  # first and last byte of each array, sorted

    def add_array(self, array: Array, where: str) -> None:
        """Adds an array; raises TypeError if it shares memory with an earlier one, or if a copy would differ."""
        is_array = type(array) is np.ndarray
        if not is_array or not array.transpose(memory_order(array)).flags.c_contiguous:
            kind = "in one piece" if is_array else f"and no {type(array).__name__}"
            raise TypeError(f"{where}: cannot be saved: expected an array of NumPy, {kind}; {STATE_DICT_HINT}")
        start = array.__array_interface__["data"][0]
        span = (start, start + array.nbytes, where)
        at = bisect(self.memory, span)
        for first, end, other in self.memory[max(at - 1, 0) : at + 1]:
            if first < span[1] and start < end:
                raise TypeError(f"{where}: cannot be saved: it shares memory with {other}; {STATE_DICT_HINT}")
        if array.nbytes:
            insort(self.memory, span)


def check_own(value: Any, where: str, living: Sequence[Array], seen: Seen) -> None:
    """Raises TypeError for a view of the model's own memory, and for an object that occurs twice."""
    if not isinstance(value, (list, tuple, dict, np.ndarray)) or len(seen.places) > MAX_ITEMS:
        return
    if id(value) in seen.places:
        raise TypeError(f"{where}: cannot be saved: it is also {seen.places[id(value)]}; {STATE_DICT_HINT}")
    if isinstance(value, np.ndarray) and any(np.may_share_memory(value, array) for array in living):
        raise TypeError(f"{where}: cannot be saved: it is part of the model's parameters; {STATE_DICT_HINT}")
    if not isinstance(value, tuple):
        seen.places[id(value)] = where
    if isinstance(value, np.ndarray):
        seen.add_array(value, where)
    else:
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            check_own(part, f"{where}[{key!r}]", living, seen)
