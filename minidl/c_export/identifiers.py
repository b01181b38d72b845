"""Names in C."""

from __future__ import annotations

import os
import re
from typing import Any

KEYWORDS = """
auto break case char const continue default do double else enum extern float for goto if inline int long register
restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
asm bool catch class constexpr delete explicit export false friend main mutable namespace new nullptr operator private
protected public template this throw true try typename using virtual
"""  # of C and C++


def name_from(name: Any, path: str) -> str:
    """Returns the name that a file's functions begin with: `name`, or by default the file's without its suffix.

    Raises TypeError for another type, ValueError unless it is a C identifier, and for a path without ".c".

    >>> name_from(None, "models/digits.c")
    'digits'
    """
    if not path.endswith(".c"):
        raise ValueError(f"path: expected a file name that ends with .c, got {path!r}")
    if name is None:
        given, source = os.path.splitext(os.path.basename(path))[0], "path: without a name, expected a file named by"
    elif isinstance(name, str):
        given, source = name, "name: expected"
    else:
        raise TypeError(f"name: expected a string or None, got {name!r}")
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", given) or given in KEYWORDS.split():
        raise ValueError(f"{source} an identifier of C, such as 'digits', got {given!r}")
    return given
