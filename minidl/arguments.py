"""What an object was made with: its constructor's arguments, as scikit-learn's get_params finds them."""

from __future__ import annotations

import inspect
from typing import Any


def constructor_arguments(made: object) -> dict[str, Any]:
    """The constructor's arguments, from the attributes of the same names; raises TypeError if one is missing."""
    cls = type(made)
    if cls.__init__ is object.__init__ and cls.__new__ is object.__new__:
        return {}
    if cls.__init__ is object.__init__:
        raise TypeError(f"{cls.__name__}: nobody can tell what it was made with")
    arguments = list(inspect.signature(cls.__init__).parameters.values())[1:]
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = [a.name for a in arguments if a.kind in plain]
    if len(names) < len(arguments):
        raise TypeError(f"{cls.__name__}: its constructor has arguments without a name of their own")
    for name in names:
        if not hasattr(made, name):
            raise TypeError(f"{cls.__name__}: the constructor takes {name!r} and has to keep it in self.{name}")
    return {name: getattr(made, name) for name in names}
