"""Validation of scalar arguments: integers, real numbers, bools, pairs and shapes."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

Shape = tuple[int, ...]
Pair = tuple[int, int]
Padding4 = tuple[int, int, int, int]


MAX_INT64 = 2**63 - 1
LARGEST = {dtype: float(np.finfo(dtype).max) for dtype in ("float32", "float64")}  # that a dtype can hold


def check_int(name: str, value: Any, minimum: int = 1, maximum: int = MAX_INT64) -> int:
    """Returns `value` as an int from `minimum` to `maximum`; raises TypeError or ValueError naming the argument.

    >>> check_int("units", 10)
    10
    """
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        integer = operator.index(value)
    except TypeError:  # also raised by __index__ of an array of one element
        raise TypeError(f"{name}: expected an integer, got {value!r}{_hint_for_activation(value)}") from None
    if integer < minimum:
        raise ValueError(f"{name}: expected at least {minimum}, got {integer}")
    if integer > maximum:
        raise ValueError(f"{name}: expected at most {maximum}, got {integer if integer <= MAX_INT64 else 'more'}")
    return integer


def check_real(name: str, value: Any, dtype: str = "float64") -> float:
    """Returns `value` as a float, finite in `dtype`; raises TypeError or ValueError naming the argument.

    >>> check_real("scale", 2)
    2.0
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, np.floating, np.integer)):
        raise TypeError(f"{name}: expected a number, got {value!r}")
    try:
        real = float(value)
    except OverflowError:  # an int of hundreds of digits
        real = math.inf
    if not abs(real) <= LARGEST[dtype]:
        raise ValueError(f"{name}: expected a finite number that {dtype} can hold, got {real}")
    return real


def check_non_negative(name: str, value: Any, dtype: str = "float64") -> float:
    """Returns `value` as a float of at least 0, finite in `dtype`; raises TypeError or ValueError naming the argument.

    >>> check_non_negative("weight_decay", 0)
    0.0
    """
    if check_real(name, value, dtype) < 0:
        raise ValueError(f"{name}: expected a number of at least 0, got {value}")
    return float(value)


def check_positive(name: str, value: Any) -> float:
    """Returns `value` as a float above 0; raises TypeError or ValueError naming the argument.

    >>> check_positive("gamma", 0.5)
    0.5
    """
    if check_real(name, value) <= 0:
        raise ValueError(f"{name}: expected a number above 0, got {value}")
    return float(value)


def check_limit(name: str, value: Any) -> float | None:
    """Returns `value` as a float above 0, or None for no limit; raises as `check_positive`."""
    return None if value is None else check_positive(name, value)


def check_count(name: str, value: Any) -> int:
    """Returns `value` as an int of at least 0; raises as `check_int`."""
    return check_int(name, value, minimum=0)


def check_counter(name: str, value: Any) -> int:
    """Returns `value` as `check_count`, with an upper limit that leaves room to count on; raises as `check_int`."""
    number = check_count(name, value)
    if number > MAX_INT64 // 2:
        raise ValueError(f"{name}: expected at most {MAX_INT64 // 2}, got {number}")
    return number


def check_normal_float(name: str, value: Any, dtype: str = "float32") -> float:
    """Returns `value` as a float, finite in `dtype` and at least the smallest normal float32.

    Raises TypeError or ValueError naming the argument.

    >>> check_normal_float("eps", 1e-8)
    1e-08
    """
    minimum = float(np.finfo(np.float32).tiny)
    if check_real(name, value, dtype) < minimum:
        raise ValueError(f"{name}: expected a number of at least {minimum:.4g}, got {value}")
    return float(value)


def check_fraction(name: str, value: Any) -> float:
    """Returns `value` as a float in [0, 1); raises TypeError or ValueError naming the argument.

    >>> check_fraction("momentum", 0.9)
    0.9
    """
    if not 0 <= check_real(name, value) < 1:
        raise ValueError(f"{name}: expected a number in [0, 1), got {value}")
    return float(value)


def check_bool(name: str, value: Any) -> bool:
    """Returns `value` as a bool; raises TypeError naming the argument.

    >>> check_bool("use_bias", True)
    True
    """
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name}: expected True or False, got {value!r}{_hint_for_activation(value)}")
    return bool(value)


def _hint_for_activation(value: Any) -> str:
    """Returns a hint for the name of an activation, which Keras's layers take as an argument."""
    is_activation = isinstance(value, str) and value.lower() in ("relu", "sigmoid", "softmax", "tanh", "linear", "selu")
    return "; an activation is a layer of its own, such as ReLU()" if is_activation else ""


def check_choice(name: str, value: Any, *choices: str | int | None) -> Any:
    """Returns `value` if it is one of `choices`; raises ValueError naming the argument.

    >>> check_choice("join", "add", "add", "concat")
    'add'
    """
    known = isinstance(value, (str, int, np.integer, type(None))) and not isinstance(value, bool)  # which equals 0 or 1
    if not known or value not in choices:
        *others, last = map(repr, choices)
        raise ValueError(f"{name}: expected {', '.join(others)} or {last}, got {value!r}")
    return value


def check_pair(name: str, value: Any, minimum: int = 1, maximum: int = MAX_INT64) -> Pair:
    """Returns `value`, an int or a (vertical, horizontal) pair, as a pair of ints from `minimum` to `maximum`.

    >>> check_pair("stride", 2), check_pair("stride", (1, 3))
    ((2, 2), (1, 3))
    """
    if isinstance(value, (tuple, list)):
        if len(value) != 2:
            raise ValueError(f"{name}: expected an integer or a pair, got {value!r}")
        return check_int(name, value[0], minimum, maximum), check_int(name, value[1], minimum, maximum)
    return (check_int(name, value, minimum, maximum),) * 2


def check_axes(name: str, value: Any, rank: int) -> Shape:
    """Returns an axis of an example, or several, as a tuple in their order, counted from 0; those below 0 from the end.

    >>> check_axes("axis", (-1, 0), 3)
    (0, 2)
    """
    given = value if isinstance(value, (tuple, list)) else (value,)
    axes = [check_int(name, axis, -rank, rank - 1) % rank for axis in given]
    if not axes or len(set(axes)) < len(axes):
        raise ValueError(f"{name}: expected some of 0 to {rank - 1}, each once, got {value!r}")
    return tuple(sorted(axes))


def check_interval(name: str, value: Any, centre: float, minimum: float, maximum: float) -> tuple[float, float]:
    """Returns `value`, a (smallest, largest) pair or the distance of both from `centre`, as a pair of floats.

    The pair of a distance begins at `minimum` at least. Raises TypeError or ValueError naming the argument for a
    negative distance, and for a pair that is not in order or exceeds `minimum` to `maximum`.

    >>> check_interval("brightness", 0.2, 1, 0, 10), check_interval("degrees", (0, 90), 0, -360, 360)
    ((0.8, 1.2), (0.0, 90.0))
    """
    if not isinstance(value, (tuple, list)):
        distance = check_non_negative(name, value, "float32")
        first, last = max(centre - distance, minimum), centre + distance
    elif len(value) == 2:
        first, last = (check_real(name, number, "float32") for number in value)
    else:
        raise ValueError(f"{name}: expected a number or a pair, got {value!r}")
    if not minimum <= first <= last <= maximum:
        raise ValueError(f"{name}: expected numbers from {minimum} to {maximum}, the smaller one first, got {value!r}")
    return first, last


def check_sides(name: str, value: Any) -> Padding4:
    """Returns `value`, an int, a (vertical, horizontal) pair or four sides, as (top, bottom, left, right).

    >>> check_sides("padding", (1, 2)), check_sides("padding", (1, 0, 2, 0))
    ((1, 1, 2, 2), (1, 0, 2, 0))
    """
    if isinstance(value, (tuple, list)) and len(value) != 2:
        if len(value) != 4:
            raise ValueError(f"{name}: expected an integer, a pair, or (top, bottom, left, right), got {value!r}")
        top, bottom, left, right = (check_int(name, side, minimum=0) for side in value)
        return top, bottom, left, right
    vertical, horizontal = check_pair(name, value, minimum=0)
    return vertical, vertical, horizontal, horizontal


def check_target_size(name: str, value: Any, size: tuple[int, int]) -> Pair:
    """Returns `value`, an int or a (height, width) pair, as a pair; None in it keeps that of `size`.

    >>> check_target_size("size", (None, 2), (5, 7))
    (5, 2)
    """
    if isinstance(value, (tuple, list)) and len(value) == 2:
        value = tuple(old if new is None else new for new, old in zip(value, size, strict=True))
    return check_pair(name, value)


def resolve_padding(padding: Any, size: tuple[int, int], kernel: Pair, stride: Pair, dilation: Pair) -> Padding4:
    """Returns the zeros (top, bottom, left, right) that a convolution's `padding` adds to an image of this size.

    padding: an int or a pair; "valid": none; "same": as needed for ceil(size / stride) windows, an odd zero at the end.

    >>> resolve_padding("same", (28, 28), (5, 5), (1, 1), (1, 1))
    (2, 2, 2, 2)
    """
    if isinstance(padding, str):
        if padding == "valid":
            return 0, 0, 0, 0
        if padding == "same":
            return *_pad_same(size, kernel, stride, dilation, 0), *_pad_same(size, kernel, stride, dilation, 1)
        raise ValueError(f"padding: expected an integer, a pair, 'same' or 'valid', got {padding!r}")
    vertical, horizontal = check_pair("padding", padding, minimum=0)
    return vertical, vertical, horizontal, horizontal


def resolve_padding_1d(padding: Any, length: int, kernel: int, stride: int, dilation: int) -> Pair:
    """Returns the zeros (left, right) that a convolution's `padding` adds to a signal of this length.

    padding: an int, a (left, right) pair, "valid" or "same", as in two dimensions, or "causal": all on the left.

    >>> resolve_padding_1d("causal", 100, kernel=3, stride=1, dilation=4)
    (8, 0)
    """
    if not isinstance(padding, str):
        return check_pair("padding", padding, minimum=0)
    if check_choice("padding", padding, "same", "valid", "causal") == "causal":
        return (kernel - 1) * dilation, 0
    return resolve_padding(padding, (1, length), (1, kernel), (1, stride), (1, dilation))[2:]


def _pad_same(size: tuple[int, int], kernel: Pair, stride: Pair, dilation: Pair, axis: int) -> Pair:
    windows = -(-size[axis] // stride[axis])
    total = max((windows - 1) * stride[axis] + dilation[axis] * (kernel[axis] - 1) + 1 - size[axis], 0)
    return total // 2, total - total // 2


def check_image_shape(shape: Shape) -> tuple[int, int, int]:
    """Returns `shape` as (channels, height, width); raises ValueError for any other number of axes."""
    if len(shape) != 3:
        hint = ""
        if len(shape) == 2:
            signal = f"becomes an image of height 1 by Reshape(({shape[0]}, 1, {shape[1]}))"
            hint = (
                ": for X (n, h, w), X[:, np.newaxis] has one channel; a signal (c, length) takes Conv1D and the like, "
            )
            hint += f"or {signal}"
        raise ValueError(f"expected (channels, height, width), got {shape}{hint}")
    return shape


def check_signal_shape(shape: Shape) -> tuple[int, int]:
    """Returns `shape` as (channels, length); raises ValueError for any other number of axes."""
    if len(shape) != 2:
        hint = ": for X (n, length), X[:, np.newaxis] has one channel" if len(shape) == 1 else ""
        raise ValueError(f"expected (channels, length), got {shape}{hint}")
    return shape


def check_shape(name: str, value: Any) -> Shape:
    """Returns the shape of one example as a tuple of ints of at least 1; raises TypeError or ValueError otherwise."""
    if not isinstance(value, (tuple, list)):
        raise TypeError(f"{name}: expected a tuple such as (1, 28, 28), got {value!r}")
    if not value:
        raise ValueError(f"{name}: expected at least one size, got ()")
    return tuple(check_int(name, size) for size in value)
