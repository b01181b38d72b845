"""Arguments of layers that are numbers or pairs of numbers, checked once and for all."""

from __future__ import annotations

from typing import Any

Shape = tuple[int, ...]
Pair = tuple[int, int]


def whole(name: str, value: Any, least: int = 1) -> int:
    """`value` as an int of at least `least`; raises TypeError or ValueError naming the argument.

    >>> whole("units", 10)
    10
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}: expected a whole number, got {value!r}")
    if value < least:
        raise ValueError(f"{name}: expected at least {least}, got {value}")
    return int(value)


def pair(name: str, value: Any, least: int = 1) -> Pair:
    """`value`, a number or a (vertical, horizontal) pair, as a pair of ints of at least `least`.

    >>> pair("stride", 2), pair("stride", (1, 3))
    ((2, 2), (1, 3))
    """
    if isinstance(value, (tuple, list)):
        if len(value) != 2:
            raise ValueError(f"{name}: expected a number or a pair, got {value!r}")
        return whole(name, value[0], least), whole(name, value[1], least)
    return (whole(name, value, least),) * 2


def image(shape: Shape) -> tuple[int, int, int]:
    """`shape` as (channels, height, width); raises ValueError if it is anything else."""
    if len(shape) != 3:
        raise ValueError(f"expected (channels, height, width), got {shape}")
    return shape


def input_shape(value: Any) -> Shape:
    """A model's input shape as a tuple of ints of at least 1."""
    if not isinstance(value, (tuple, list)):
        raise TypeError(f"input_shape: expected a tuple such as (1, 28, 28), got {value!r}")
    if not value:
        raise ValueError("input_shape: expected at least one size, got ()")
    return tuple(whole("input_shape", size) for size in value)
