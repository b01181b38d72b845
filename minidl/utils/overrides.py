"""Which of two methods speaks for an object, if a subclass overrides only one."""

from __future__ import annotations


def speaks_for(what: object, native: str, python: str) -> bool:
    """Whether the method `native` is the valid form of `what`: not if a subclass overrides only `python`."""
    for cls in type(what).__mro__:
        if native in vars(cls) or python in vars(cls):
            return native in vars(cls)
    return False
