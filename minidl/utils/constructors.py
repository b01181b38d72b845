"""An object's constructor arguments, read as scikit-learn's get_params does."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class Validated(Generic[T]):
    """An attribute that is validated on assignment: check(name, value) returns the value to store, or raises.

    together: raises ValueError for attributes, by name, that are not consistent. A rejected value changes nothing.
    """

    def __init__(
        self,
        check: Callable[[str, Any], T],
        together: Callable[[dict[str, Any]], None] | None = None,
        doc: str | None = None,
    ) -> None:
        self.check, self.together = check, together
        self.__doc__ = doc

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, owner: None, cls: type) -> Validated[T]: ...
    @overload
    def __get__(self, owner: object, cls: type | None = None) -> T: ...
    def __get__(self, owner: object | None, cls: type | None = None) -> Validated[T] | T:
        if owner is None:
            return self
        try:
            value: T = vars(owner)[self.name]
        except KeyError:
            raise AttributeError(f"{type(owner).__name__} has no {self.name} yet") from None
        return value

    def __set__(self, owner: object, value: Any) -> None:
        checked = self.check(self.name, value)
        if self.together is not None:
            self.together({**vars(owner), self.name: checked})
        vars(owner)[self.name] = checked


def parameters(cls: type) -> dict[str, inspect.Parameter]:
    """Returns the constructor's parameters by name; raises TypeError if they cannot be determined."""
    init, new = (getattr(cls, name) for name in ("__init__", "__new__"))
    if init is object.__init__ and new is object.__new__:
        return {}
    if init is object.__init__:
        raise TypeError(
            f"{cls.__name__}: cannot recover its constructor arguments: it defines __new__ but not __init__"
        )
    signature = list(inspect.signature(init).parameters.values())[1:]
    if any(parameter.kind == inspect.Parameter.POSITIONAL_ONLY for parameter in signature):
        raise TypeError(f"{cls.__name__}: its constructor has positional-only arguments")
    return {parameter.name: parameter for parameter in signature}


def constructor_arguments(value: object) -> dict[str, Any]:
    """Returns the constructor's arguments from the attributes of the same names; raises TypeError if one is missing."""
    cls = type(value)
    for name in parameters(cls):
        if not hasattr(value, name):
            raise TypeError(f"{cls.__name__}: the constructor takes {name!r} and must store it in self.{name}")
    return {name: getattr(value, name) for name in parameters(cls)}


def construct(cls: type, arguments: dict[str, Any]) -> Any:
    """Returns an object of these arguments, by name; that of `*layers` is a list, that of `**branches` a dict."""
    rest, positional = dict(arguments), list[Any]()
    kinds = {name: parameter.kind for name, parameter in parameters(cls).items()}
    if inspect.Parameter.VAR_POSITIONAL in kinds.values():
        for name, kind in kinds.items():
            if kind == inspect.Parameter.VAR_POSITIONAL:
                positional += rest.pop(name, ())
                break
            if name in rest:
                positional.append(rest.pop(name))
    for name, kind in kinds.items():
        if kind == inspect.Parameter.VAR_KEYWORD:
            rest.update(rest.pop(name, {}))
    return cls(*positional, **rest)


def readonly_argument(name: str) -> property:
    """Returns a read-only property for a constructor argument stored as _name, on which plans depend; copies a dict."""
    stored = attrgetter(f"_{name}")

    def get(owner: object) -> Any:
        value = stored(owner)
        return dict(value) if isinstance(value, dict) else value

    return property(get, doc=f"The constructor's {name}, read-only.")


def constructor_repr(value: object) -> str:
    """Returns the constructor's call, for a __repr__."""
    arguments = (f"{name}={argument!r}" for name, argument in constructor_arguments(value).items())
    return f"{type(value).__name__}({', '.join(arguments)})"
