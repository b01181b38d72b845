"""ObjectCodec: objects as JSON, and their reconstruction.

An object is stored as the name of its class and its constructor's arguments, a function as its name. Each name is
stored with its origin, so a user's class can never be loaded as a built-in one, or vice versa:

    {"minidl": ["Dense", {"units": 10}]}   {"custom": ["Swish", {}]}   {"minidl": "accuracy"}   {"custom": "my_loss"}

The settings of a layer, if it has any, follow its arguments: {"minidl": ["ReLU", {}, {"trainable": false}]}.

Users pass their classes and functions by name. Nothing is imported, and no code is read from a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minidl.layers.base import Layer
from minidl.saving import json_codec
from minidl.utils.constructors import construct, constructor_arguments

MAX_OBJECTS = 50_000  # layers and initializers in one config


class ObjectCodec:
    """Encodes objects as JSON. `ours`: the classes, functions and objects of minidl that may occur, by name.

    met: collects the user's classes and functions by name; the second of a name gets a number appended. None: a second
        one of a name is an error, because a file could not distinguish them.
    """

    def __init__(self, ours: Mapping[str, Any], met: dict[str, Any] | None = None) -> None:
        self.ours, self._numbers = ours, met is not None
        self.met: dict[str, Any] = {} if met is None else met
        self._depth = 0  # of nested objects

    def encode(self, value: Any, where: str) -> Any:
        """Returns `value` as JSON: an object, or a value of JSON's types, tuples and NumPy scalars.

        where: its name in errors, such as "layer 3, Conv2D". Raises TypeError for values that cannot be encoded,
        ValueError for two classes of one name.
        """
        return json_codec.encode(value, where, self._encode_object, self._depth)

    def _encode_object(self, value: Any, where: str) -> dict[str, Any] | None:
        if value is None or isinstance(value, (bool, int, float, str, list, tuple, dict, np.generic, np.ndarray)):
            return None
        if isinstance(value, type):
            raise TypeError(f"{where}: cannot be saved: expected an object, got the class {value.__name__}")
        for name, known in self.ours.items():
            if value is known:
                return {"minidl": name}
        if hasattr(value, "__name__"):
            return {"custom": self._register(value.__name__, value, where)}
        cls, arguments = type(value), self._encode_arguments(value, where)
        if any(cls is known for known in self.ours.values()):
            return {"minidl": [cls.__name__, arguments, *self._settings_of(value)]}
        return {"custom": [self._register(cls.__name__, cls, where), arguments, *self._settings_of(value)]}

    def _encode_arguments(self, value: Any, where: str) -> dict[str, Any]:
        if isinstance(value, Layer) and value.not_saved:
            raise TypeError(f"{where}: cannot be saved: {value.not_saved}")
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

    def _settings_of(self, value: Any) -> list[dict[str, Any]]:
        """Returns a layer's settings, including those of layers in it, in a list; empty if there are none."""
        return [value.settings] if isinstance(value, Layer) and value.settings and not self._depth else []

    def _register(self, name: str, value: Any, where: str) -> str:
        """Adds a user's class or function to `met` and returns its unique name."""
        unique, number = name, 1
        while self.met.setdefault(unique, value) is not value:
            if not self._numbers:
                got = f"{self.met[name]!r} and {value!r}"
                raise ValueError(f"{where}: cannot be saved: expected one {name!r}, got two: {got}")
            number += 1
            unique = f"{name} {number}"
        return unique


def made_with(cls: type, arguments: dict[str, Any], settings: Mapping[str, Any] | None = None) -> Any:
    """Returns an object of these arguments and layer settings; raises ValueError for settings of other objects."""
    value = construct(cls, arguments)
    if settings:
        if not isinstance(value, Layer):
            raise ValueError(f"{cls.__name__}: expected no settings, got {', '.join(settings)[:100]}")
        value.take_settings(settings)
    return value


def decode(config: Any, ours: Mapping[str, Any], custom_objects: Mapping[str, Any]) -> Any:
    """Returns the value that was encoded; raises ValueError or TypeError for invalid configs and unknown names."""
    check_names(config, ours, custom_objects)

    def decode_object(kind: str, content: Any) -> Any:
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
        arguments = {key: json_codec.decode(argument, decode_object) for key, argument in arguments.items()}
        return made_with(known[name], arguments, *settings)

    return json_codec.decode(config, decode_object)


def check_settings(settings: Any) -> None:
    """Raises ValueError unless these are settings of a layer and of the layers in it."""
    if not isinstance(settings, dict) or set(settings) - {"trainable", "lr_mult", "decay_mult", "layers"}:
        raise ValueError(f"expected the settings of a layer, got {str(settings)[:100]}")
    inner = settings.get("layers", {})
    if not isinstance(inner, dict):
        raise ValueError(f"expected the settings of layers by their paths, got {str(inner)[:100]}")
    for part in inner.values():
        check_settings(part)


def check_names(config: Any, ours: Mapping[str, Any], custom_objects: Mapping[str, Any]) -> None:
    """Raises ValueError, listing them, for unknown names in a config, and for more than MAX_OBJECTS objects."""
    names: dict[str, set[str]] = {"minidl": set(), "custom": set()}
    count, stack = 0, [config]
    while stack:
        value = stack.pop()
        if isinstance(value, list):
            stack += value
        elif isinstance(value, dict):
            # without the settings of layers, in which names of parameters are keys
            stack += [one[:2] if key in names and isinstance(one, list) else one for key, one in value.items()]
            for kind in names.keys() & value.keys():
                content, count = value[kind], count + 1
                name = content[0] if isinstance(content, list) and len(content) in (2, 3) else content
                parts = content[1:] if isinstance(content, list) else []
                if not isinstance(name, str) or not all(isinstance(part, dict) for part in parts):
                    raise ValueError(f"expected a name, or a class and its arguments, got {str(content)[:100]}")
                names[kind].add(name)
    if count > MAX_OBJECTS:
        raise ValueError(f"expected at most {MAX_OBJECTS} layers and initializers, got {count}")
    if unknown := sorted(names["minidl"] - ours.keys()):
        raise ValueError(f"expected names that this version of minidl has, got {', '.join(unknown)[:200]}")
    if missing := sorted(names["custom"] - custom_objects.keys()):
        needed = ", ".join(f"{name!r}: {name if name.isidentifier() else '...'}" for name in missing)
        raise ValueError(
            f"custom_objects: the file names objects that are not minidl's; pass custom_objects={{{needed}}}"
        )


def checked_custom(custom_objects: Any) -> dict[str, Any]:
    """Returns a user's classes and functions by name; raises TypeError for anything else."""
    if custom_objects is None:
        return {}
    if not isinstance(custom_objects, Mapping):
        raise TypeError(
            f'custom_objects: expected classes and functions by name, {{"Name": Name}}, got {custom_objects!r}'
        )
    for name, value in custom_objects.items():
        if not isinstance(name, str) or not callable(value):
            raise TypeError(
                f'custom_objects: expected classes and functions by name, {{"Name": Name}}, got {name!r}: {value!r}'
            )
    return dict(custom_objects)
