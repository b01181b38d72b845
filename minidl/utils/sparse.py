"""SparseRows: sparse matrices as X, whose rows become dense when they are read."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidl.utils.arrays import REAL, Array


def is_sparse(X: Any) -> bool:
    """Returns True if X is a matrix or array of scipy.sparse, without importing it."""
    return hasattr(X, "tocsr") and hasattr(X, "toarray")


class SparseRows:
    """A sparse matrix with the interface of an array: `rows[indices]` is dense, (n, columns), in C order.

    Raises, naming the argument, TypeError unless the matrix holds real numbers, ValueError unless it has two axes.
    """

    ndim = 2

    def __init__(self, matrix: Any, name: str) -> None:
        if matrix.ndim != 2:
            raise ValueError(f"{name}: expected a sparse matrix of two axes, got shape {matrix.shape}")
        self._matrix = matrix.tocsr()
        if not self._matrix.has_canonical_format:  # duplicate entries are summed
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

    def stored_values(self, rows: NDArray[np.int64] | None = None) -> Array:
        """Returns the stored elements, all that are not zero, of these rows; None: of all."""
        stored: Array = (self._matrix if rows is None else self._matrix[rows]).data
        return stored

    def fingerprint(self) -> str:
        """Returns the SHA-256 of shape, dtype and elements."""
        ordered = self._matrix.sorted_indices()
        digest = hashlib.sha256(f"sparse {self.shape} {self.dtype}".encode())
        for part in (ordered.indptr.astype(np.int64), ordered.indices.astype(np.int64), ordered.data):
            digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()
