"""Canonical JSON: each object has exactly one text, small and shallow enough to be safe to parse."""

from __future__ import annotations

import json
from typing import Any

MAX_COST = 2**23  # bytes of memory for parsed JSON, approximately, in addition to COST for each byte of text
COST = 8  # bytes of memory per byte of text; a header of many small tensors takes 5
MAX_DEPTH = 100
MAX_DIGITS = 400  # of an integer: Python's parsing of long ones is slow


def dump(value: Any, sort_keys: bool = False) -> str:
    """Returns the JSON text of a value; raises TypeError or ValueError for other types, NaN and infinity."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"), sort_keys=sort_keys)


def load(text: str, sort_keys: bool = False) -> dict[str, Any]:
    """Returns the object whose `dump` is this text: no duplicate keys, no NaN, no spaces, limited depth and size.

    Raises ValueError for any other text, and for an object that would take much more memory than its text.
    """
    limit = MAX_COST + COST * len(text)
    if 240 * (text.count("{") + text.count("[")) + 40 * text.count(",") > limit:
        raise ValueError(f"expected JSON that takes less than {limit} bytes, got more: too many lists and numbers")
    try:
        value = json.loads(text, parse_int=_parse_int)
        canonical = isinstance(value, dict) and dump(value, sort_keys) == text
    except (ValueError, RecursionError) as error:
        raise ValueError(f"expected JSON as minidl writes it: {str(error)[:200]}") from error
    if not canonical:
        raise ValueError("expected JSON as minidl writes it (no duplicate keys, no spaces), got other JSON")
    check_depth(value)
    return value


def check_depth(value: dict[str, Any] | list[Any]) -> None:
    """Raises ValueError for lists and objects that are nested more than MAX_DEPTH deep."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in (outer.values() if isinstance(outer, dict) else outer)
                 if isinstance(inner, (dict, list))]  # fmt: skip
    if level:
        raise ValueError(f"expected JSON at most {MAX_DEPTH} deep, got deeper")


def _parse_int(digits: str) -> int:
    """Returns an integer; raises ValueError for too many digits."""
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"expected numbers of at most {MAX_DIGITS} digits, got {len(digits)}")
    return int(digits)
