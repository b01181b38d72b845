"""JSON objects that have one text alone, small and shallow enough to be read from anywhere."""

from __future__ import annotations

import json
from typing import Any

MAX_COST = 2**23  # bytes that parsed JSON may take, about, beside COST for each of its own
COST = 8  # a header of many small tensors takes 5
MAX_DEPTH = 100
MAX_DIGITS = 400  # of a number: Python takes long for many thousands


def dump(value: Any, sort_keys: bool = False) -> str:
    """The text of a value of JSON's own types; raises TypeError or ValueError for others, NaN and infinity."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"), sort_keys=sort_keys)


def load(text: str, sort_keys: bool = False) -> dict[str, Any]:
    """The object of which `dump` makes this text: no key twice, no NaN, no spaces, and neither too deep nor too large.

    Raises ValueError for any other text, and for an object that would take much more memory than its text.
    """
    most = MAX_COST + COST * len(text)
    if 240 * (text.count("{") + text.count("[")) + 40 * text.count(",") > most:
        raise ValueError(f"expected JSON that takes less than {most} bytes, got more: too many lists and numbers")
    try:
        value = json.loads(text, parse_int=_short)
        canonical = isinstance(value, dict) and dump(value, sort_keys) == text
    except (ValueError, RecursionError) as error:
        raise ValueError(f"expected JSON as minidl writes it: {str(error)[:200]}") from error
    if not canonical:
        raise ValueError("expected JSON as minidl writes it (no key twice, no spaces), got other")
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in (outer.values() if isinstance(outer, dict) else outer)
                 if isinstance(inner, (dict, list))]  # fmt: skip
    if level:
        raise ValueError(f"expected JSON at most {MAX_DEPTH} deep, got deeper")
    return value


def _short(digits: str) -> int:
    """A whole number; raises ValueError for one of too many digits."""
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"expected numbers of at most {MAX_DIGITS} digits, got {len(digits)}")
    return int(digits)
