"""Numbers in C text, exactly: single ones as hexadecimal floats, those of tables as their bits, which are shorter."""

from __future__ import annotations

import math

import numpy as np

from minidl.utils.arrays import Array

SUFFIX = {"float32": "f", "float64": ""}
PER_LINE = {"float32": 12, "float64": 7, "int8": 28, "uint8": 35, "int32": 12}
WORD = {"float32": "<u4", "float64": "<u8"}


def flushed(array: Array) -> Array:
    """Returns a copy with zeros of their sign in place of subnormal numbers, as kernels read them."""
    subnormal = np.abs(array) < np.finfo(array.dtype).tiny
    return np.where(subnormal, np.copysign(np.zeros_like(array), array), array)


def number(value: float, dtype: str) -> str:
    """Returns one number of the dtype as an expression of C. Subnormal numbers become zeros, as kernels read them.

    >>> number(0.1, "float32"), number(-3.0, "float64"), number(float("inf"), "float32")
    ('0x1.99999ap-4f', '(-0x1.8p+1)', 'real_from_bits(0x7f800000)')
    """
    with np.errstate(over="ignore"):
        rounded = flushed(np.array([value]).astype(dtype))
    if math.isnan(rounded[0]):
        return "real_from_bits(QUIET_NAN)"
    if math.isinf(rounded[0]):
        return f"real_from_bits({words(rounded)})"
    constant = _constant(float(rounded[0]), dtype)
    return f"({constant})" if constant[0] == "-" else constant


def decimal(value: float) -> str:
    """Returns a float32 as a decimal constant of float, from which every compiler makes these bits, also in C++.

    >>> decimal(0.1), decimal(1.0)
    ('0.1f', '1.0f')
    """
    return f"{np.float32(value)!s}f"


def words(array: Array) -> str:
    """Returns the elements of an array as the lines of a C initializer: integers, or the bits of floats as such.

    >>> words(np.array([0.1, 0.0, -3.0], "float32"))
    '0x3dcccccd,0,0xc0400000'
    >>> words(np.array([-128, 5], "int8"))
    '-128,5'
    """
    dtype = array.dtype.name
    if dtype in WORD:
        bits = np.ascontiguousarray(array.ravel(), array.dtype.newbyteorder("<")).view(WORD[dtype])
        items = [f"{word:#x}" if word else "0" for word in bits.tolist()] or ["0"]
    else:
        items = [str(number) for number in array.ravel().tolist()]
    step = PER_LINE[dtype]
    return ",\n".join(",".join(items[i : i + step]) for i in range(0, len(items), step))


def _constant(value: float, dtype: str) -> str:
    """Returns a finite number, exactly, as a hexadecimal constant."""
    mantissa, exponent = value.hex().split("p")
    return f"{mantissa.rstrip('0').rstrip('.') if value else mantissa}p{exponent}{SUFFIX[dtype]}"
