"""Numbers as C constants: exactly, as hexadecimal floats or as the bits of floats."""

from __future__ import annotations

import math

import numpy as np

from minidl.utils.arrays import Array

SUFFIX = {"float32": "f", "float64": ""}
PER_LINE = {"float32": 7, "float64": 5}
WORD = {"float32": ("<u4", "0x%08x"), "float64": ("<u8", "0x%016x")}


def flushed(array: Array) -> Array:
    """Returns a copy with zeros of their sign in place of subnormal numbers, as kernels read them."""
    subnormal = np.abs(array) < np.finfo(array.dtype).tiny
    return np.where(subnormal, np.copysign(np.zeros_like(array), array), array)


def number(value: float, dtype: str) -> str:
    """Returns one number of the dtype as a C constant.

    >>> number(0.1, "float32"), number(-3.0, "float64"), number(float("nan"), "float32")
    ('0x1.99999ap-4f', '-0x1.8p+1', 'real_from_bits(QUIET_NAN)')
    """
    rounded = float(np.dtype(dtype).type(value))
    if math.isnan(rounded):
        return "real_from_bits(QUIET_NAN)"
    mantissa, exponent = rounded.hex().split("p")
    return f"{mantissa.rstrip('0').rstrip('.') if rounded else mantissa}p{exponent}{SUFFIX[dtype]}"


def numbers(array: Array) -> str:
    """Returns the elements of a float array as the lines of a C initializer."""
    dtype = array.dtype.name
    return _lines([number(value, dtype) for value in array.ravel().tolist()], dtype)


def words(array: Array) -> str:
    """Returns the bits of the elements of a float array as integers, as the lines of a C initializer."""
    kind, form = WORD[array.dtype.name]
    bits = np.ascontiguousarray(array.ravel(), array.dtype.newbyteorder("<")).view(kind)
    return _lines([form % word for word in bits.tolist()], array.dtype.name)


def _lines(items: list[str], dtype: str) -> str:
    step = PER_LINE[dtype]
    return ",\n".join(", ".join(items[i : i + step]) for i in range(0, len(items), step))
