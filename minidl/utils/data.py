"""The door for arrays: what comes in as X is checked here, and read batch by batch, never copied whole."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidl.utils.arrays import Array, as_array, check_array
from minidl.utils.sparse import SparseRows, is_sparse
from minidl.utils.validation import Shape

Index = NDArray[np.int64]
READABLE = {np.dtype(name) for name in ("uint8", "float32", "float64")}  # by kernels, as they lie
CHUNK = 4096  # examples looked at together where all of X is
CHUNK_BYTES = 2**26  # that they may take, if they are converted


class ArraySource:
    """X, checked: (n, size) rows that can be read in any order.

    X: real numbers of any dtype, layout and byte order, as an array, a list or a memory map; (n, *shape), or 2-D of the
    same width, then also a sparse matrix. uint8, float32 and float64 in C order are read where they lie; anything else
    is converted as it is read.
    Raises TypeError for anything but real numbers, ValueError for another shape, NaN or infinity (in a memory map: when
    the rows are read).
    """

    def __init__(self, X: Any, shape: Shape, dtype: str, name: str = "X") -> None:
        array = as_numbers(X, name)
        size = math.prod(shape)
        if array.shape[1:] != shape and (array.ndim != 2 or array.shape[1] != size):
            flat = "" if len(shape) == 1 else f" or (n, {size})"
            expected = "(n, " + ", ".join(map(str, shape)) + ")"
            raise ValueError(f"{name}: expected shape {expected}{flat}, got {array.shape}{_remedy(name, array, shape)}")
        self.name, self.dtype, self.size = name, dtype, size
        self._array = array
        self._is_memmap = _is_memory_map(array)
        self._zero_copy = False
        if isinstance(array, SparseRows):
            self._check(array.numbers)
            return
        self._zero_copy = array.dtype in READABLE and array.flags.c_contiguous and array.flags.aligned
        if not self._is_memmap and array.dtype.kind == "f":
            for start in range(0, len(array), CHUNK):
                self._check(array[start : start + CHUNK], start)

    def __len__(self) -> int:
        return len(self._array)

    @property
    def chunk_size(self) -> int:
        """How many examples may be copied together: of large ones fewer, so that a copy stays small."""
        return max(1, min(CHUNK, CHUNK_BYTES // (self.size * np.dtype(self.dtype).itemsize)))

    def gather(self, rows: Index) -> tuple[Array, Index]:
        """An array (m, size) that kernels can read, and the numbers of the wanted rows in it."""
        if isinstance(self._array, SparseRows) or not self._zero_copy:
            return self.gather_copy(rows), np.arange(len(rows))
        if self._is_memmap:
            self._check(self._array[rows])
        return self._array.reshape(len(self._array), self.size), rows

    def chunk(self, start: int, stop: int) -> Array:
        """Rows start to stop as an array (m, size) that kernels can read: a view where that is possible."""
        stop = min(stop, len(self))
        if not self._zero_copy:
            return self.gather_copy(np.arange(start, stop))
        block = self._array[start:stop].reshape(stop - start, self.size)
        if self._is_memmap:
            self._check(block)
        return block

    def chunks(self, most: int) -> Iterator[tuple[slice, Array]]:
        """All rows in blocks of at most so many, each with its place."""
        step = min(most, self.chunk_size)
        for start in range(0, len(self), step):
            yield slice(start, start + step), self.chunk(start, start + step)

    def gather_copy(self, rows: Index) -> Array:
        """The wanted rows as an array (m, size) of the model's dtype."""
        block = self._array[rows]
        if self._is_memmap:
            self._check(block)
        return np.ascontiguousarray(block.reshape(len(rows), self.size), self.dtype)

    def fingerprint(self, most: int | None = None) -> str:
        """A hash of shape, dtype and numbers: of all rows, of at most so many, or of some thousands of a memory map."""
        if isinstance(self._array, SparseRows) and most is None:
            return self._array.fingerprint()
        return fingerprint(self._array, some_rows(len(self), CHUNK if self._is_memmap and most is None else most))

    def _check(self, block: Array, start: int | None = None) -> None:
        """Raises ValueError unless all is finite in the model's dtype; `start`: the number of the first example."""
        if block.dtype.kind != "f":
            return
        if not np.isfinite(block).all():
            bad = ~np.isfinite(block).reshape(len(block), -1).all(axis=1)
            where = "" if start is None else f" (first in example {start + int(bad.argmax())})"
            raise ValueError(f"{self.name}: expected finite numbers, got NaN or infinity{where}")
        if block.size and block.dtype.itemsize > np.dtype(self.dtype).itemsize:
            largest = np.finfo(self.dtype).max
            if max(block.max(), -block.min()) > largest:
                raise ValueError(
                    f"{self.name}: expected numbers of at most {largest:.3g} ({self.dtype}), got larger ones"
                )


def _remedy(name: str, array: Array | SparseRows, shape: Shape) -> str:
    """What to do about a shape that is wrong in one of the usual ways."""
    if array.shape == shape:
        return f": one example alone is {name}[np.newaxis]"
    if array.shape[1:] == shape[1:] and shape[0] == 1:
        return f": one channel is {name}[:, np.newaxis]"
    if array.ndim == 4 and array.shape[1:] == (*shape[1:], shape[0]):
        return f": channels come first, {name}.transpose(0, 3, 1, 2)"
    return ""


def as_numbers(X: Any, name: str) -> Array | SparseRows:
    """X as an array of real numbers with at least two axes, without a copy where that is possible."""
    if is_sparse(X):
        return SparseRows(X, name)
    array = as_array(X, name)
    if array.ndim < 2:
        raise ValueError(
            f"{name}: expected examples along the first of at least two axes, got shape {array.shape}; "
            f"one example alone is {name}[np.newaxis]"
        )
    return array


def some_rows(n: int, most: int | None) -> Index:
    """At most so many of n rows, from all parts; None: all."""
    return np.arange(n) if most is None or n <= most else np.linspace(0, n - 1, most).astype(np.int64)


def fingerprint(array: Array | SparseRows, rows: Index) -> str:
    """SHA-256 of an array's shape and dtype, and of the numbers in these rows, whatever their layout."""
    found = hashlib.sha256(f"{array.shape} {array.dtype.newbyteorder('=')}".encode())
    for start in range(0, len(rows), CHUNK):
        block = array[rows[start : start + CHUNK]]
        if array.dtype.kind == "O":  # of a user's own loss: any objects
            found.update(repr(block.tolist()).encode())
        else:
            found.update(np.ascontiguousarray(block, array.dtype.newbyteorder("=")).tobytes())
    return found.hexdigest()


def as_weights(weights: Any, n: int) -> NDArray[np.float64]:
    """sample_weight as float64 (n,), all finite, none negative, not all zero."""
    array = as_array(weights, "sample_weight")
    if array.shape != (n,):
        raise ValueError(f"sample_weight: expected shape ({n},), got {array.shape}")
    array = array.astype(np.float64)
    if not np.isfinite(array).all() or (array < 0).any():
        raise ValueError("sample_weight: expected finite weights of at least 0")
    if n and not array.any():
        raise ValueError("sample_weight: expected at least one weight above 0, got zeros")
    return array


def class_weights(class_weight: dict[int, float] | str, y: Array) -> NDArray[np.float64]:
    """The weight of each example's class: from a dict (other labels count 1), or "balanced" (scikit-learn's)."""
    y = check_array(y, "y")
    if y.ndim != 1 or y.dtype.kind not in "iub":
        raise TypeError(f"class_weight: expected integer labels y of shape (n,) with it, got {y.dtype} {y.shape}")
    if isinstance(class_weight, str) and class_weight == "balanced":
        labels, place, counts = np.unique(y, return_inverse=True, return_counts=True)
        return np.asarray((len(y) / (len(labels) * counts))[place], np.float64)
    if not isinstance(class_weight, dict):
        raise TypeError(f"class_weight: expected a dict, 'balanced' or None, got {class_weight!r}")
    weights = np.ones(len(y))
    for label, weight in class_weight.items():
        chosen = y == label
        if not chosen.any():
            raise ValueError(f"class_weight: expected labels that y has, got {label!r}")
        if not isinstance(weight, (int, float, np.number)) or not np.isfinite(weight) or weight < 0:
            raise ValueError(f"class_weight: expected finite weights of at least 0, got {weight!r} for {label!r}")
        weights[chosen] = weight
    return weights


def epoch_order(n: int, seed: int, epoch: int, shuffle: bool) -> Index:
    """The order of n examples in an epoch: a function of its arguments alone, each example once."""
    if not shuffle:
        return np.arange(n)
    return np.random.default_rng([seed, epoch]).permutation(n)


def _is_memory_map(array: Any) -> bool:
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            return True
        array = array.base
    return False
