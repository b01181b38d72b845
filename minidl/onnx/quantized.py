"""Quantized numbers: integers that stand for (integer - zero point) * scale."""

from __future__ import annotations

from typing import Any

import numpy as np

from minidl.utils.arrays import Array

RANGES = {name: (int(np.iinfo(name).min), int(np.iinfo(name).max)) for name in ("int8", "uint8", "int16", "uint16")}
DTYPE_NUMBERS = {2: "uint8", 3: "int8", 4: "uint16", 5: "int16"}  # of TensorProto.DataType


def quantize(inputs: list[Any], attributes: dict[str, Any]) -> Array:
    """Computes QuantizeLinear, rounded half to even and saturated; raises ValueError for other dtypes than RANGES."""
    x, scale, *rest = inputs
    zero_point = rest[0] if rest else None
    dtype = DTYPE_NUMBERS.get(attributes.get("output_dtype", 2)) if zero_point is None else str(zero_point.dtype)
    if dtype not in RANGES:
        raise ValueError(f"expected a zero point of {', '.join(RANGES)}, got {dtype}")
    rounded = np.rint(x / _spread(scale, x, attributes))
    shifted = rounded + (0 if zero_point is None else _spread(zero_point, x, attributes).astype(rounded.dtype))
    return np.asarray(np.clip(shifted, *RANGES[dtype]), dtype)


def dequantize(inputs: list[Any], attributes: dict[str, Any]) -> Array:
    """Computes DequantizeLinear, in the dtype of the scale."""
    x, scale, *rest = inputs
    if scale.dtype not in (np.float32, np.float64):
        raise ValueError(f"expected a scale of float32 or float64, got {scale.dtype}")
    exact = "float32" if x.dtype.itemsize <= 2 else "float64"  # the float that holds all differences
    difference = x.astype(exact)
    if rest and rest[0] is not None:
        difference -= _spread(rest[0], x, attributes).astype(exact)
    return np.asarray(difference.astype(scale.dtype) * _spread(scale, x, attributes))


def _spread(values: Array, x: Array, attributes: dict[str, Any]) -> Array:
    """Returns one value, one for each index of an axis, or one for each block along it, in a shape that broadcasts."""
    axis, block = attributes.get("axis", 1), attributes.get("block_size", 0)
    if values.size == 1 and values.ndim <= 1:
        return values.reshape(())
    if not -x.ndim <= axis < x.ndim:
        raise ValueError(f"expected an axis of an array of {x.ndim} axes, got {axis}")
    axis %= x.ndim
    if block > 0:
        expected = tuple(-(-size // block) if i == axis else size for i, size in enumerate(x.shape))
        if values.shape != expected:
            raise ValueError(f"expected {expected} scales of blocks, got shape {values.shape}")
        return np.take(values, np.arange(x.shape[axis]) // block, axis)
    if values.shape != x.shape[axis : axis + 1]:
        raise ValueError(f"expected one scale, or {x.shape[axis]}, got shape {values.shape}")
    return values.reshape(-1, *(1,) * (x.ndim - axis - 1))
