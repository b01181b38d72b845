"""Text that quotes files, which may hold characters that terminals act upon."""

from __future__ import annotations


def escape(name: str) -> str:
    r"""Returns a name with escapes, as those of repr, in place of characters that are not printable.

    >>> print(escape("Relu\x1b[31m"))
    Relu\x1b[31m
    """
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in name)


def escape_lines(text: str) -> str:
    """Returns a text as `escape` does, except that its lines stay."""
    return "\n".join(map(escape, text.split("\n")))
