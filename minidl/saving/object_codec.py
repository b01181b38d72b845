"""ObjectCodec: what objects are made of, as JSON, and the objects made again from it.

An object is the name of its class and its constructor's arguments, a function its name. Whose name it is, is written
with it, so that a user's class never loads as one of ours, nor ours as his:

    {"minidl": ["Dense", {"units": 10}]}   {"custom": ["Swish", {}]}   {"minidl": "accuracy"}   {"custom": "my_loss"}

Behind the arguments of a layer stand its settings, if it has any: {"minidl": ["ReLU", {}, {"trainable": false}]}.

Users give their classes and functions by name; nothing is imported, and no code comes out of a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minidl.layers.base import Layer
from minidl.saving import json_codec
from minidl.utils.arguments import construct, constructor_arguments

MOST = 50_000  # objects in one recipe: layers, and their initializers


class ObjectCodec:
    """Writes objects as JSON; `ours` are the classes, functions and objects of minidl that may be in it, by name.

    met: takes the user's classes and functions by name, of two of one name the second one with a number behind it;
        None: the second one is refused, for the user of a file could not tell them apart.
    """

    def __init__(self, ours: Mapping[str, Any], met: dict[str, Any] | None = None) -> None:
        self.ours, self._numbers = ours, met is not None
        self.met: dict[str, Any] = {} if met is None else met
        self._depth = 0  # of objects in objects

    def encode(self, value: Any, where: str) -> Any:
        """`value` as JSON: an object, or anything that JSON, tuples and NumPy's scalars can say.

        where: what errors call it, such as "layer 3, Conv2D". Raises TypeError for what cannot be written, ValueError
        for two classes of one name.
        """
        return json_codec.encode(value, where, self._object, self._depth)

    def _object(self, value: Any, where: str) -> dict[str, Any] | None:
        if value is None or isinstance(value, (bool, int, float, str, list, tuple, dict, np.generic, np.ndarray)):
            return None
        if isinstance(value, type):
            raise TypeError(f"{where}: cannot be saved: expected an object, got the class {value.__name__}")
        for name, known in self.ours.items():
            if value is known:
                return {"minidl": name}
        if hasattr(value, "__name__"):
            return {"custom": self._named(value.__name__, value, where)}
        cls, arguments = type(value), self._arguments(value, where)
        if any(cls is known for known in self.ours.values()):
            return {"minidl": [cls.__name__, arguments, *self._settings(value)]}
        return {"custom": [self._named(cls.__name__, cls, where), arguments, *self._settings(value)]}

    def _arguments(self, value: Any, where: str) -> dict[str, Any]:
        try:
            arguments = value.config() if isinstance(value, Layer) else constructor_arguments(value)
        except (TypeError, ValueError) as error:
            known = "numbers, strings, lists, tuples, dicts, functions, or objects made of these"
            raise TypeError(f"{where}: cannot be saved: expected {known}, got {error}") from error
        self._depth += 1
        try:
            return {name: self.encode(argument, f"{where}: {name}") for name, argument in arguments.items()}
        finally:
            self._depth -= 1

    def _settings(self, value: Any) -> list[dict[str, Any]]:
        """A layer's settings, if it has any; those of layers in it are among them."""
        return [value.settings] if isinstance(value, Layer) and value.settings and not self._depth else []

    def _named(self, name: str, what: Any, where: str) -> str:
        told, number = name, 1
        while self.met.setdefault(told, what) is not what:
            if not self._numbers:
                got = f"{self.met[name]!r} and {what!r}"
                raise ValueError(f"{where}: cannot be saved: expected one {name!r}, got two: {got}")
            number += 1
            told = f"{name} {number}"
        return told


def made_with(cls: type, arguments: dict[str, Any], settings: Mapping[str, Any] | None = None) -> Any:
    """An object made with these arguments, and a layer's settings; raises ValueError for settings of anything else."""
    made = construct(cls, arguments)
    if settings:
        if not isinstance(made, Layer):
            raise ValueError(f"{cls.__name__}: expected no settings, got {', '.join(settings)[:100]}")
        made.take_settings(settings)
    return made


def decode(recipe: Any, ours: Mapping[str, Any], custom_objects: Mapping[str, Any]) -> Any:
    """Returns what `encode` was given; raises ValueError or TypeError for what that never writes, and missing names."""
    check_names(recipe, ours, custom_objects)

    def made(kind: str, content: Any) -> Any:
        known = {"minidl": ours, "custom": custom_objects}.get(kind)
        if known is None:
            raise ValueError(f"expected a kind of value, got {kind!r}")
        if isinstance(content, str):
            if isinstance(known[content], type):
                raise TypeError(f"{kind}: expected a function or an object, got the class {content}")
            return known[content]
        name, arguments, *settings = content
        for part in settings:
            check_settings(part)
        if not isinstance(known[name], type):
            raise TypeError(f"{kind}: expected the class {name}, got {known[name]!r}")
        arguments = {key: json_codec.decode(argument, made) for key, argument in arguments.items()}
        return made_with(known[name], arguments, *settings)

    return json_codec.decode(recipe, made)


def check_settings(settings: Any) -> None:
    """Raises ValueError for what are no settings of a layer, and of the layers in it."""
    if not isinstance(settings, dict) or set(settings) - {"trainable", "lr_mult", "layers"}:
        raise ValueError(f"expected the settings of a layer, got {str(settings)[:100]}")
    inner = settings.get("layers", {})
    if not isinstance(inner, dict):
        raise ValueError(f"expected the settings of layers by their places, got {str(inner)[:100]}")
    for part in inner.values():
        check_settings(part)


def check_names(recipe: Any, ours: Mapping[str, Any], custom_objects: Mapping[str, Any]) -> None:
    """Raises ValueError, with all of them, for names in a recipe that nobody knows; and for too many of them."""
    names: dict[str, set[str]] = {"minidl": set(), "custom": set()}
    found, rest = 0, [recipe]
    while rest:
        value = rest.pop()
        if isinstance(value, list):
            rest += value
        elif isinstance(value, dict):
            rest += value.values()
            for kind in names.keys() & value.keys():
                content, found = value[kind], found + 1
                name = content[0] if isinstance(content, list) and len(content) in (2, 3) else content
                parts = content[1:] if isinstance(content, list) else []
                if not isinstance(name, str) or not all(isinstance(part, dict) for part in parts):
                    raise ValueError(f"expected a name, or a class and its arguments, got {str(content)[:100]}")
                names[kind].add(name)
    if found > MOST:
        raise ValueError(f"expected at most {MOST} layers and initializers, got {found}")
    if unknown := sorted(names["minidl"] - ours.keys()):
        raise ValueError(f"expected what this version of minidl has, got {', '.join(unknown)[:200]}")
    if missing := sorted(names["custom"] - custom_objects.keys()):
        needed = ", ".join(f"{name!r}: {name if name.isidentifier() else '...'}" for name in missing)
        raise ValueError(f"custom_objects: the file names what is not minidl's own; pass custom_objects={{{needed}}}")


def checked_custom(custom_objects: Any) -> dict[str, Any]:
    """A user's classes and functions by name; raises TypeError for anything else."""
    if custom_objects is None:
        return {}
    if not isinstance(custom_objects, Mapping):
        raise TypeError(
            f'custom_objects: expected classes and functions by name, {{"Name": Name}}, got {custom_objects!r}'
        )
    for name, what in custom_objects.items():
        if not isinstance(name, str) or not callable(what):
            raise TypeError(
                f'custom_objects: expected classes and functions by name, {{"Name": Name}}, got {name!r}: {what!r}'
            )
    return dict(custom_objects)
