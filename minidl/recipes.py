"""Values as JSON and back: what a layer was made with, written into a file without a line of code.

JSON's numbers, strings, booleans and None are themselves, and so are lists. Everything else is a JSON object whose keys
tell what it is:

    {"tuple": [...]}                           {"dict": [[key, value], ...]}, in order
    {"class": "minidl.Dense", "config": {...}} an object, by class and the arguments that its `config()` gives;
                                               "Dense" alone is a class of a user's own
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

MAX_DEPTH = 30  # of what is encoded: values in values
MAX_OBJECTS = 10_000  # in one file
OWN = "minidl."  # in front of our own classes' names


def encode(value: Any, where: str, classes: dict[str, type] | None = None) -> Any:
    """`value` as JSON. NumPy's scalars become Python's numbers.

    where: what errors call it, such as "layer 3, Conv2D". classes: by name, those met so far; more are added.
    Raises TypeError for what cannot be written, ValueError for two classes of one name.
    """
    return _encode(value, where, {} if classes is None else classes, 0)


def _encode(value: Any, where: str, classes: dict[str, type], depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise TypeError(f"{where}: expected values at most {MAX_DEPTH} deep, got deeper")
    plain = value.item() if isinstance(value, np.generic) else value
    if plain is None or type(plain) in (bool, int, str) or (type(plain) is float and np.isfinite(plain)):
        return plain
    if type(value) in (list, tuple):
        items = [_encode(item, f"{where}[{i}]", classes, depth + 1) for i, item in enumerate(value)]
        return items if type(value) is list else {"tuple": items}
    if type(value) is dict and all(type(key) is str for key in value):
        return {"dict": [[key, _encode(item, f"{where}[{key!r}]", classes, depth + 1)] for key, item in value.items()]}
    if callable(getattr(value, "config", None)) and not isinstance(value, type):
        config = {name: _encode(item, f"{where}: {name}", classes, depth + 1) for name, item in value.config().items()}
        return {"class": _name(type(value), where, classes), "config": config}
    raise TypeError(
        f"{where}: expected numbers that are finite, strings, booleans, None, lists, tuples, dicts with strings as "
        f"keys, or layers, got {value!r}"
    )


def _name(cls: type, where: str, classes: dict[str, type]) -> str:
    name = cls.__name__
    if not name.isidentifier():
        raise TypeError(f"{where}: expected a class with a name, got {name!r}")
    if cls.__module__.split(".")[0] == "minidl":
        name = OWN + name
    if classes.setdefault(name, cls) is not cls:
        raise ValueError(f"{where}: expected one class called {name!r}, got two: {classes[name]!r} and {cls!r}")
    return name


def checked_custom(custom: Any) -> dict[str, type]:
    """A user's classes by name; raises TypeError for anything else."""
    if custom is None:
        return {}
    if not isinstance(custom, Mapping):
        raise TypeError(f'custom: expected classes by name, {{"Name": Name}}, got {custom!r}')
    for name, cls in custom.items():
        if not isinstance(name, str) or not name.isidentifier() or not isinstance(cls, type):
            raise TypeError(f'custom: expected classes by name, {{"Name": Name}}, got {name!r}: {cls!r}')
    return dict(custom)


def decode(value: Any, classes: Mapping[str, type]) -> Any:
    """What `encode` got. classes: by name, "minidl.Dense" being our own and "Dense" a user's; no other is made.

    Raises ValueError or TypeError for classes that are missing, naming all of them, and for what `encode` never gives.
    """
    names = _names(value)
    if len(names) > MAX_OBJECTS:
        raise ValueError(f"expected at most {MAX_OBJECTS} layers, got {len(names)}")
    missing = sorted(set(names) - set(classes))
    if unknown := [name for name in missing if not name.isidentifier()]:
        raise ValueError(f"expected classes of this version of minidl, got {', '.join(unknown)[:200]}")
    if missing:
        wanted = ", ".join(f'"{name}": {name}' for name in missing)
        raise ValueError(f"has classes that are not minidl's; expected them as custom={{{wanted}}}")
    return _decode(value, classes)


def _names(value: Any) -> list[str]:
    """The classes of all objects in a JSON value."""
    names, rest = [], [value]
    while rest:
        value = rest.pop()
        if isinstance(value, dict):
            rest += value.values()
            if isinstance(value.get("class"), str):
                names.append(value["class"])
        elif isinstance(value, list):
            rest += value
    return names


def _decode(value: Any, classes: Mapping[str, type]) -> Any:
    if isinstance(value, list):
        return [_decode(item, classes) for item in value]
    if not isinstance(value, dict):
        return value
    keys, inner = set(value), next(iter(value.values()), None)
    if keys == {"tuple"} and isinstance(inner, list):
        return tuple(_decode(item, classes) for item in inner)
    if keys == {"dict"} and isinstance(inner, list):
        return {key: _decode(item, classes) for key, item in inner}
    if keys == {"class", "config"} and isinstance(value["class"], str) and isinstance(value["config"], dict):
        return classes[value["class"]](**{name: _decode(item, classes) for name, item in value["config"].items()})
    raise ValueError(f"expected a tuple, a dict or an object of a class, got {sorted(keys)}")
