"""Lossless JSON encoding of the values in configurations and states.

JSON has lists, strings, numbers, true, false and null. Everything else is an object with one key, its kind:

    {"tuple": [1, 2]}   {"dict": [["a", 1]]}   {"float": "nan"}   {"numpy": ["float32", 0.5]}

and the kinds that the caller adds. This module creates no object of a class and imports nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

MAX_DEPTH = 50  # levels of lists, tuples and dicts; a container that contains itself exceeds any limit
_NUMPY = {np.dtype(code).name for code in list("?bhiqBHIQefd")}


def encode(value: Any, where: str, other: Callable[[Any, str], dict[str, Any] | None], depth: int = 0) -> Any:
    """Returns `value` as JSON. other(value, where) returns {kind: content} for the caller's kinds, else None.

    Raises TypeError, naming `where`, for values of unknown types.
    """
    if depth > MAX_DEPTH:
        raise TypeError(f"{where}: expected values nested at most {MAX_DEPTH} deep, got more")

    def inner(part: Any, index: str) -> Any:
        return encode(part, f"{where}[{index}]", other, depth + 1)

    encoded = other(value, where)
    if encoded is not None:
        return encoded
    if isinstance(value, np.generic) and value.dtype.name in _NUMPY:  # its dtype affects results
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
    """Returns the value that was encoded. other(kind, content) decodes the caller's kinds, or raises ValueError.

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
            decoded = dict(pairs)
        except TypeError as error:
            raise ValueError(f"dict: {error}") from None
        if len(decoded) == len(pairs):
            return decoded
    if kind == "numpy" and isinstance(content, list) and len(content) == 2:
        return _decode_scalar(content[0], decode(content[1], other))
    return other(kind, content)


def _decode_scalar(dtype: Any, number: Any) -> np.generic:
    if not isinstance(dtype, str) or dtype not in _NUMPY or type(number) not in (bool, int, float):
        raise ValueError(f"expected the name of a dtype and a number, got {dtype!r} and {number!r}")
    numpy_dtype = np.dtype(dtype)
    limits = np.iinfo(numpy_dtype) if numpy_dtype.kind in "iu" else None
    if limits is not None and not limits.min <= number <= limits.max:  # NumPy 1 would wrap around
        raise ValueError(f"expected a number of {dtype}, got {number}")
    try:
        scalar: np.generic = numpy_dtype.type(number)
    except OverflowError as error:
        raise ValueError(f"expected a number of {dtype}: {error}") from None
    return scalar
