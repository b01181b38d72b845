"""Text that quotes files, which may hold characters that terminals act upon, and long lists."""

from __future__ import annotations

from typing import Any


def escape(name: str) -> str:
    r"""Returns a name with escapes, as those of repr, in place of characters that are not printable.

    >>> print(escape("Relu\x1b[31m"))
    Relu\x1b[31m
    """
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in name)


def escape_lines(text: str) -> str:
    """Returns a text as `escape` does, except that its lines stay."""
    return "\n".join(map(escape, text.split("\n")))


def shorten(value: Any) -> str:
    """Returns the repr of a value, with the first three elements of a long list, and of long lists in it.

    >>> shorten([[0.0, 0.5], [1, 2, 3, 4, 5]])
    '[[0.0, 0.5], [1, 2, 3, ... 5 values]]'
    """
    lists = (list, tuple)
    if not isinstance(value, lists) or (len(value) <= 4 and not any(isinstance(element, lists) for element in value)):
        return repr(value)
    first = ", ".join(map(shorten, value[: 4 if len(value) <= 4 else 3]))
    return f"[{first}]" if len(value) <= 4 else f"[{first}, ... {len(value)} values]"
