"""Values as JSON and back, exactly: what configurations and states in files are made of.

JSON has lists, strings, numbers, true, false and null. All else is an object with one key, its kind:

    {"tuple": [1, 2]}   {"dict": [["a", 1]]}   {"float": "nan"}   {"numpy": ["float32", 0.5]}

and whatever kinds the caller adds. Nothing here makes an object of a class, or imports one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

DEEPEST = 50  # levels of lists, tuples and dicts: what holds itself has no end
_NUMPY = {np.dtype(code).name for code in list("?bhiqBHIQefd")}


def encode(value: Any, where: str, other: Callable[[Any, str], dict[str, Any] | None], depth: int = 0) -> Any:
    """`value` as JSON. other(value, where) encodes what it knows as {kind: content}, and else returns None.

    Raises TypeError, naming `where`, for anything that nobody knows.
    """
    if depth > DEEPEST:
        raise TypeError(f"{where}: expected values nested at most {DEEPEST} deep, got more")

    def inner(part: Any, place: str) -> Any:
        return encode(part, f"{where}[{place}]", other, depth + 1)

    encoded = other(value, where)
    if encoded is not None:
        return encoded
    if isinstance(value, np.generic) and value.dtype.name in _NUMPY:  # its dtype decides on results
        return {"numpy": [value.dtype.name, inner(value.item(), "")]}
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if type(value) is list:
        return [inner(part, str(i)) for i, part in enumerate(value)]
    if type(value) is tuple:
        return {"tuple": [inner(part, str(i)) for i, part in enumerate(value)]}
    if type(value) is dict:
        return {"dict": [[inner(key, repr(key)), inner(part, repr(key))] for key, part in value.items()]}
    raise TypeError(f"{where}: cannot be saved: expected numbers, strings, lists, tuples or dicts, got {value!r}")


def decode(encoded: Any, other: Callable[[str, Any], Any]) -> Any:
    """What `encode` was given. other(kind, content) decodes the caller's kinds, and raises ValueError for unknown ones.

    Raises ValueError for anything that `encode` cannot have written.
    """
    if isinstance(encoded, list):
        return [decode(part, other) for part in encoded]
    if not isinstance(encoded, dict):
        return encoded
    if len(encoded) != 1:
        raise ValueError(f"expected one kind of value, got {sorted(encoded)}")
    ((kind, content),) = encoded.items()
    if kind == "float" and content in ("nan", "inf", "-inf"):
        return float(content)
    if kind == "tuple" and isinstance(content, list):
        return tuple(decode(part, other) for part in content)
    if kind == "dict" and isinstance(content, list) and all(isinstance(p, list) and len(p) == 2 for p in content):
        pairs = [(decode(key, other), decode(part, other)) for key, part in content]
        try:
            found = dict(pairs)
        except TypeError as error:
            raise ValueError(f"dict: {error}") from None
        if len(found) == len(pairs):
            return found
    if kind == "numpy" and isinstance(content, list) and len(content) == 2:
        return _numpy(content[0], decode(content[1], other))
    return other(kind, content)


def _numpy(dtype: Any, number: Any) -> np.generic:
    if not isinstance(dtype, str) or dtype not in _NUMPY or type(number) not in (bool, int, float):
        raise ValueError(f"expected the name of a dtype and a number, got {dtype!r} and {number!r}")
    made = np.dtype(dtype)
    if made.kind in "iu" and not np.iinfo(made).min <= number <= np.iinfo(made).max:  # NumPy 1 would make another one
        raise ValueError(f"expected a number of {dtype}, got {number}")
    try:
        scalar: np.generic = made.type(number)
    except OverflowError as error:
        raise ValueError(f"expected a number of {dtype}: {error}") from None
    return scalar
