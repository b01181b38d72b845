"""Names in C."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

KEYWORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class co_await
co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype default delete do
double dynamic_cast else enum explicit export extern false float for friend goto if import inline int long module
mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast struct switch template
this thread_local throw true try typedef typeid typename typeof typeof_unqual union unsigned using virtual void
volatile wchar_t while xor xor_eq
"""  # of C23 and C++20

USED = """
x arena transformed i j real bits integer arithmetic copy transpose flush errno linux unix uint8_t int32_t
"""  # in a function with outputs as arguments: names of exported files, and macros

HEADERS = """
assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign stdarg stdatomic stdbit
stdbool stdckdint stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar wchar wctype
alloca endian features malloc memory newlib reent stdc-predef strings unistd values
corecrt corecrt_math corecrt_memory corecrt_string crtdefs sal vadefs vcruntime vcruntime_string _mingw
"""  # of C, and those that they include in C libraries


def name_from(name: Any, path: str) -> str:
    """Returns the name that a file's functions begin with: `name`, or by default the file's without its suffix.

    Raises TypeError for another type, ValueError unless it is a C identifier, and for a path without ".c".

    >>> name_from(None, "models/digits.c")
    'digits'
    """
    if not path.endswith(".c"):
        raise ValueError(f"path: expected a file name that ends with .c, got {path!r}")
    if name is not None and not isinstance(name, str):
        raise TypeError(f"name: expected a string or None, got {name!r}")
    given = os.path.splitext(os.path.basename(path))[0] if name is None else name
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", given) and given not in KEYWORDS.split():
        return given
    expected = "an identifier of C, such as 'digits', that is no keyword of C or C++"
    if name is None:
        raise ValueError(f"path: gives the name {given!r}, expected {expected}: pass name=")
    raise ValueError(f"name: expected {expected}, got {given!r}")


def output_identifiers(outputs: Sequence[str], name: str) -> list[str]:
    """Returns the names in C of outputs: their own, or output_0 and so on for those that C does not allow.

    Nor do names differ in case alone: macros are named after them, too. name: that of the file's functions.
    """
    found, reserved = list[str](), {*KEYWORDS.split(), *USED.split()}
    for i, output in enumerate(outputs):
        fits = re.fullmatch(r"(?!output_)[a-z]\w*", output, re.ASCII | re.IGNORECASE) and output not in reserved
        macros = {output, *map(str.upper, found)}
        is_own = fits and not output.startswith(f"{name}_") and output.upper() not in macros
        found.append(output if is_own else f"output_{i}")
    return found


def comment_text(text: str) -> str:
    """Returns text that can stand in a comment of C."""
    plain = text.replace("*/", "* /").replace("/*", "/ *").replace("??/", "? ?/")
    return plain.encode("ascii", "backslashreplace").decode()


def check_stem(stem: str, header: bool, separate_tables: bool) -> None:
    """Raises ValueError for the name of a file, without ".c", whose header file or table cannot be included."""
    if header and stem.lower() in HEADERS.split():
        raise ValueError(
            f"path: with header=True, expected a name that no header of the C library has, got {stem + '.c'!r}: "
            f"{stem}.h would hide <{stem.lower()}.h>"
        )
    if separate_tables and (not stem.isprintable() or any(part in stem for part in ('"', "\\", "??"))):
        raise ValueError(
            f'path: with weights="inc", expected a name that C can include: without quotes, backslashes, ?? and '
            f"characters that are not printable, got {stem + '.c'!r}"
        )
