"""Sparse matrices as X: rows that become dense where they are read, some at a time."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidl.utils.arrays import REAL, Array


def is_sparse(X: Any) -> bool:
    """Whether X is one of scipy.sparse's matrices or arrays, which nobody needs to import to ask."""
    return hasattr(X, "tocsr") and hasattr(X, "toarray")


class SparseRows:
    """A sparse matrix that can be read as an array is: `rows[numbers]` is dense, (n, columns), in C order.

    Raises, naming the argument, TypeError for a matrix of anything but real numbers, ValueError for one of other axes
    than two.
    """

    ndim = 2

    def __init__(self, matrix: Any, name: str) -> None:
        if matrix.ndim != 2:
            raise ValueError(f"{name}: expected a sparse matrix of two axes, got shape {matrix.shape}")
        self._matrix = matrix.tocsr()
        if not self._matrix.has_canonical_format:  # numbers that stand twice are one, their sum
            self._matrix = self._matrix.copy()
            self._matrix.sum_duplicates()
        self.shape: tuple[int, ...] = self._matrix.shape
        self.dtype: np.dtype[Any] = self._matrix.dtype
        if self.dtype.kind not in REAL:
            raise TypeError(f"{name}: expected real numbers, got dtype {self.dtype}")

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | NDArray[np.int64]) -> Array:
        dense: Array = self._matrix[rows].toarray(order="C")
        return dense

    @property
    def numbers(self) -> Array:
        """All that are not zero."""
        found: Array = self._matrix.data
        return found

    def fingerprint(self) -> str:
        """SHA-256 of shape, dtype and numbers."""
        ordered = self._matrix.sorted_indices()
        found = hashlib.sha256(f"sparse {self.shape} {self.dtype}".encode())
        for part in (ordered.indptr.astype(np.int64), ordered.indices.astype(np.int64), ordered.data):
            found.update(np.ascontiguousarray(part).tobytes())
        return found.hexdigest()
