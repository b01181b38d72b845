"""LazyRows: arrays that are read from a file when they are indexed, such as those of h5py and zarr, as X."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidl.utils.arrays import REAL, Array, check_array
from minidl.utils.sparse import is_sparse

IN_MEMORY = ("__array_interface__", "__dlpack__")  # such arrays are converted at once, without a copy


def is_lazy(X: Any) -> bool:
    """Returns True if X has rows to read on demand: a shape of at least two axes, a NumPy dtype, no memory to share."""
    if isinstance(X, np.ndarray) or is_sparse(X) or any(hasattr(X, name) for name in IN_MEMORY):
        return False
    shape, dtype = getattr(X, "shape", None), getattr(X, "dtype", None)
    has_rows = hasattr(X, "__len__") and hasattr(X, "__getitem__")
    return has_rows and isinstance(dtype, np.dtype) and isinstance(shape, tuple) and len(shape) >= 2


class LazyRows:
    """A lazy array with the interface of an array: `rows[indices]` reads these rows, in any order, also repeated ones.

    The array is asked for slices, or for increasing indices without repetition, as h5py requires; by its `oindex`
    where it has one (zarr). Raises, naming the argument, TypeError unless it holds real numbers, ValueError if it
    returns another number of rows, or rows of another shape. shape: other axes for the same numbers; None: its own.
    """

    def __init__(self, array: Any, name: str, shape: tuple[int, ...] | None = None) -> None:
        self._array, self._name = array, name
        self.shape: tuple[int, ...] = shape or tuple(int(size) for size in array.shape)
        self.ndim = len(self.shape)
        self.dtype: np.dtype[Any] = array.dtype
        if self.dtype.kind not in REAL:
            raise TypeError(f"{name}: expected real numbers, got dtype {self.dtype}")
        if len(array) != self.shape[0]:
            raise ValueError(f"{name}: expected {self.shape[0]} rows, as in its shape, got {len(array)}")

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | NDArray[np.int64]) -> Array:
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            rows = np.arange(start, stop, step)
        ordered, places = np.unique(rows, return_inverse=True)
        block = self._read(ordered)
        return block if len(ordered) == len(rows) and np.array_equal(ordered, rows) else block[places]

    def _read(self, ordered: NDArray[np.int64]) -> Array:
        """Returns these rows, in increasing order: neighbours by a slice, which files read fastest."""
        if not len(ordered):
            return np.empty((0, *self.shape[1:]), self.dtype)
        first, end = int(ordered[0]), int(ordered[-1]) + 1
        if end - first == len(ordered):
            block = self._array[first:end]
        else:
            block = getattr(self._array, "oindex", self._array)[ordered]
        block = check_array(block, self._name)
        expected = (len(ordered), *self._array.shape[1:])
        if block.shape != expected or block.dtype != self.dtype:
            got = f"{block.dtype} {block.shape}"
            raise ValueError(f"{self._name}: expected it to return rows of {self.dtype} {expected}, got {got}")
        return block.reshape(len(block), *self.shape[1:])
