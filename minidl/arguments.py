"""What an object was made with: its constructor's arguments, as scikit-learn's get_params finds them."""

from __future__ import annotations

import inspect
from typing import Any


def parameters(cls: type) -> dict[str, inspect.Parameter]:
    """What the constructor takes, by name; raises TypeError for one that cannot tell."""
    init, new = (getattr(cls, name) for name in ("__init__", "__new__"))
    if init is object.__init__ and new is object.__new__:
        return {}
    if init is object.__init__:
        raise TypeError(f"{cls.__name__}: nobody can tell what it was made with")
    found = list(inspect.signature(init).parameters.values())[1:]
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    if any(parameter.kind not in plain for parameter in found):
        raise TypeError(f"{cls.__name__}: its constructor has arguments without a name of their own")
    return {parameter.name: parameter for parameter in found}


def constructor_arguments(made: object) -> dict[str, Any]:
    """The constructor's arguments, from the attributes of the same names; raises TypeError if one is missing."""
    cls = type(made)
    for name in parameters(cls):
        if not hasattr(made, name):
            raise TypeError(f"{cls.__name__}: the constructor takes {name!r} and has to keep it in self.{name}")
    return {name: getattr(made, name) for name in parameters(cls)}
