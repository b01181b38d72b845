"""Hashes of arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from minidl.utils.arrays import Array


def arrays_hash(arrays: Iterable[Array]) -> str:
    """Returns the SHA-256 of the bytes of arrays in C order, one after the other: 64 hexadecimal digits.

    Raises TypeError for arrays of objects, whose bytes are addresses.
    """
    digest = hashlib.sha256()
    for array in arrays:
        if array.dtype.hasobject:
            raise TypeError(f"expected an array of numbers to hash, got dtype {array.dtype}")
        digest.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()
