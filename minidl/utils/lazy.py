"""LazyRows: arrays that are read from a file when they are indexed, such as those of h5py and zarr, as X."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidl.utils.arrays import ARRAY_ATTRIBUTES, REAL, Array, check_array, has_buffer
from minidl.utils.sparse import is_sparse

IN_MEMORY = ("__array_interface__", "__dlpack__")  # such arrays are converted at once, without a copy


def is_lazy(X: Any) -> bool:
    """Returns True if X has rows to read on demand: a shape of at least two axes, a NumPy dtype, no memory to share."""
    if isinstance(X, np.ndarray) or is_sparse(X) or any(hasattr(X, name) for name in IN_MEMORY):
        return False
    return not _lacking(X)


def _lacking(X: Any) -> list[str]:
    """Returns what an object lacks to be a lazy array."""
    shape = getattr(X, "shape", None)
    parts = {
        "a tuple shape of at least two axes": isinstance(shape, tuple) and len(shape) >= 2,
        "a NumPy dtype": isinstance(getattr(X, "dtype", None), np.dtype),
        "__len__": hasattr(X, "__len__"),
        "__getitem__": hasattr(X, "__getitem__"),
    }
    return [part for part, found in parts.items() if not found]


def check_complete(X: Any, name: str) -> None:
    """Raises TypeError for an object with indices that is neither an array nor a sequence, nor, for now, a lazy array.

    NumPy would read it index by index, until it raises IndexError.
    """
    arrays = np.ndarray, Sequence, Set, Mapping
    if isinstance(X, arrays) or not hasattr(X, "__getitem__") or is_sparse(X) or has_buffer(X):
        return
    if any(hasattr(X, attribute) for attribute in (*IN_MEMORY, *ARRAY_ATTRIBUTES, "toarray") if attribute != "dtype"):
        return
    if lacking := _lacking(X):
        as_lazy = f"as a lazy array, it lacks {' and '.join(lacking)}"
        raise TypeError(f"{name}: expected an array, got {type(X).__name__}; only `fit` takes batches; {as_lazy}")


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
        try:
            if end - first == len(ordered):
                block = self._array[first:end]
            else:
                block = getattr(self._array, "oindex", self._array)[ordered]
        except Exception as error:
            asked = "slices, and for NumPy arrays of increasing indices"
            error.add_note(f"{self._name}: a lazy array, which is asked for {asked}: {type(self._array).__name__}")
            raise
        block = check_array(block, self._name)
        expected = (len(ordered), *self._array.shape[1:])
        if block.shape != expected or block.dtype != self.dtype:
            got = f"{block.dtype} {block.shape}"
            raise ValueError(f"{self._name}: expected it to return rows of {self.dtype} {expected}, got {got}")
        return block.reshape(len(block), *self.shape[1:])
