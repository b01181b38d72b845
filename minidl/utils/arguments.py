"""What an object was made with: its constructor's arguments, as scikit-learn's get_params finds them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class Validated(Generic[T]):
    """An attribute that is checked whenever it is set: check(name, value) returns what is kept, or raises.

    together: raises ValueError for attributes, by name, that do not fit together; a refused value changes nothing.
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
            kept: T = vars(owner)[self.name]
        except KeyError:
            raise AttributeError(f"{type(owner).__name__} has no {self.name} yet") from None
        return kept

    def __set__(self, owner: object, value: Any) -> None:
        kept = self.check(self.name, value)
        if self.together is not None:
            self.together({**vars(owner), self.name: kept})
        vars(owner)[self.name] = kept


def parameters(cls: type) -> dict[str, inspect.Parameter]:
    """What the constructor takes, by name; raises TypeError for one that cannot tell."""
    init, new = (getattr(cls, name) for name in ("__init__", "__new__"))
    if init is object.__init__ and new is object.__new__:
        return {}
    if init is object.__init__:
        raise TypeError(f"{cls.__name__}: nobody can tell what it was made with")
    found = list(inspect.signature(init).parameters.values())[1:]
    unnamed = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_KEYWORD)
    if any(parameter.kind in unnamed for parameter in found):
        raise TypeError(f"{cls.__name__}: its constructor has arguments without a name of their own")
    return {parameter.name: parameter for parameter in found}


def constructor_arguments(made: object) -> dict[str, Any]:
    """The constructor's arguments, from the attributes of the same names; raises TypeError if one is missing."""
    cls = type(made)
    for name in parameters(cls):
        if not hasattr(made, name):
            raise TypeError(f"{cls.__name__}: the constructor takes {name!r} and has to keep it in self.{name}")
    return {name: getattr(made, name) for name in parameters(cls)}


def construct(cls: type, arguments: dict[str, Any]) -> Any:
    """An object made with these arguments, by name; those of `*layers` are a list or tuple."""
    rest, positional = dict(arguments), list[Any]()
    kinds = {name: parameter.kind for name, parameter in parameters(cls).items()}
    if inspect.Parameter.VAR_POSITIONAL in kinds.values():
        for name, kind in kinds.items():
            if kind == inspect.Parameter.VAR_POSITIONAL:
                positional += rest.pop(name, ())
                break
            if name in rest:
                positional.append(rest.pop(name))
    return cls(*positional, **rest)


def readonly_argument(name: str) -> property:
    """An argument that stays what it was, since plans are made with it: a constructor keeps it with a _ in front."""
    return property(attrgetter(f"_{name}"), doc=f"The constructor's {name}, which stays.")


def constructor_repr(made: object) -> str:
    """The constructor's call, for a __repr__."""
    arguments = (f"{name}={value!r}" for name, value in constructor_arguments(made).items())
    return f"{type(made).__name__}({', '.join(arguments)})"
