"""What a user says of a model, beside its layers and weights: metadata, and the names of its classes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import Any

import numpy as np

from minidl.saving import canonical_json
from minidl.utils.arrays import check_unmasked

MAX_TEXT = 2**20  # characters of the JSON of metadata
MAX_VALUES = 2**17  # in metadata
MAX_DEPTH = 50  # levels of lists and dicts
MAX_DIGITS = canonical_json.MAX_DIGITS
REMEDIES = {  # by the type of a value that JSON does not have
    tuple: "list(...)",
    bytes: ".decode() or .hex()",
    set: "sorted(...)",
    np.ndarray: ".tolist()",
    np.generic: ".item()",
}

About = dict[str, Any]  # "classes", a list, and "metadata", a dict: only those that a model has


def about(model: Any, metadata: Any = None, classes: Any = None) -> About:
    """Returns what a file says of a built model: the given metadata and classes, by default its own."""
    metadata = dict(model.metadata) if metadata is None else canonical_json.load(metadata_text(metadata))
    names = model.classes
    if classes is not None:
        names = check_classes("classes", classes, model.output_shape, model.output_names)
    said: About = {} if names is None else {"classes": list(names)}
    return said | {"metadata": metadata} if metadata else said


def about_slice(model: Any, has_outputs: bool) -> About:
    """Returns what is said of some layers of a model; of classes only if its outputs are those of the model."""
    return {key: said for key, said in about(model).items() if has_outputs or key != "classes"}


def describe(model: Any, said: Mapping[str, Any]) -> None:
    """Sets what a file says of a built model, where it says something; raises as the model's attributes."""
    for name in said:
        setattr(model, name, said[name])


def metadata_text(metadata: Any) -> str:
    """Returns metadata as JSON; raises TypeError or ValueError, naming the place, for what JSON does not have."""
    if not isinstance(metadata, Mapping):
        raise TypeError(f"metadata: expected a dict of JSON's values, got {metadata!r:.100}")
    text = canonical_json.dump(_Copier().copy(dict(metadata), "metadata", 0))
    if len(text) > MAX_TEXT:
        raise ValueError(f"metadata: expected at most {MAX_TEXT} characters of JSON, got {len(text)}")
    try:
        canonical_json.load(text)
    except ValueError as error:
        raise ValueError(f"metadata: {error}") from error
    return text


class _Copier:
    """Copies JSON's values, of exactly Python's types for them, and refuses all others."""

    def __init__(self) -> None:
        self.count = 0  # of values: a list may be in many others

    def copy(self, value: Any, where: str, depth: int) -> Any:
        """Returns a copy of a value; raises TypeError or ValueError, beginning with `where`."""
        self.count += 1
        if depth > MAX_DEPTH or self.count > MAX_VALUES:
            most = f"{MAX_VALUES} values, nested at most {MAX_DEPTH} deep"
            raise ValueError(f"metadata: expected at most {most}, got more in {where:.100}")
        if isinstance(value, dict):
            for key in value:
                if type(key) is not str:
                    raise TypeError(f"{where:.100}: expected strings as keys, got {key!r:.100}")
                _check_text(key, where)
            return {key: self.copy(part, f"{where}[{key!r}]", depth + 1) for key, part in value.items()}
        if type(value) is list:
            return [self.copy(part, f"{where}[{i}]", depth + 1) for i, part in enumerate(value)]
        if type(value) is str:
            return _check_text(value, where)
        if type(value) is float and not math.isfinite(value):
            raise ValueError(f"{where:.100}: expected a finite number, which JSON can hold, got {value}; write None")
        if type(value) is int and abs(value) >= 10**MAX_DIGITS:
            raise ValueError(f"{where:.100}: expected an integer of at most {MAX_DIGITS} digits, got more")
        if value is None or type(value) in (bool, int, float):
            return value
        remedy = next((f"; write {how}" for kind, how in REMEDIES.items() if isinstance(value, kind)), "")
        expected = "str, int, float, bool, None, or a list or dict of these"
        raise TypeError(f"{where:.100}: expected {expected}, got {type(value).__name__} {value!r:.100}{remedy}")


def _check_text(text: str, where: str) -> str:
    """Returns text that UTF-8 can hold; raises ValueError for lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{where:.100}: expected strings that UTF-8 can hold, got {text!r:.100}") from error
    return text


def check_one_output(argument: str, outputs: Sequence[str]) -> None:
    """Raises ValueError for a model of several outputs, of these names."""
    if outputs:
        several, first = ", ".join(outputs), outputs[0]
        raise ValueError(f"{argument}: expected a model of one output, got {several}; write model[{first!r}]")


def check_classes(
    argument: str, classes: Any, shape: Sequence[int], outputs: Sequence[str], kinds: tuple[type, ...] = (str, int)
) -> tuple[str | int, ...]:
    """Returns the names of the classes of a model with outputs of this shape: one for each, two for a single score.

    NumPy's strings and integers become Python's. Raises TypeError unless they are of one of these kinds; ValueError
    unless they are as many, and differ, and for strings that UTF-8 and C cannot hold.
    """
    check_one_output(argument, outputs)
    check_unmasked(classes, argument)
    listed = isinstance(classes, Iterable) and not isinstance(classes, str) and getattr(classes, "ndim", 1) == 1
    expected_count = 2 if shape[:1] == (1,) else shape[0]
    names: list[Any] = list(itertools.islice(classes, expected_count + 1)) if listed else [None]
    names = [name.item() if isinstance(name, np.generic) else name for name in names]
    if not any(all(type(name) is kind for name in names) for kind in kinds):
        expected = " or ".join({str: "strings", int: "ints"}[kind] for kind in kinds)
        raise TypeError(f"{argument}: expected a list of {expected}, got {classes!r:.300}")
    for name in names:
        if type(name) is int and abs(name) >= 10**MAX_DIGITS:
            raise ValueError(f"{argument}: expected integers of at most {MAX_DIGITS} digits, got more")
        if "\0" in _check_text(str(name), argument):
            raise ValueError(f"{argument}: expected strings without null characters, got {name!r:.100}")
    if len(names) != expected_count:
        count = len(classes) if isinstance(classes, Sized) else f"at least {len(names)}"
        got = f"for outputs {tuple(shape)}, got {count if len(names) > expected_count else len(names)}"
        raise ValueError(f"{argument}: expected {expected_count} names, {got}")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{argument}: expected names that differ, got {twice!r} twice")
    if len(text := canonical_json.dump(names)) > MAX_TEXT:
        raise ValueError(f"{argument}: expected at most {MAX_TEXT} characters of JSON, got {len(text)}")
    return tuple(names)
