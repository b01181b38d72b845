"""TargetsOnDisk: numbers as targets that are a memory map or a lazy array, converted and checked as they are read."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from minidl.engine.network import Network
from minidl.losses import Loss
from minidl.losses.output_losses import OutputLosses
from minidl.utils.arrays import Array
from minidl.utils.data import CHUNK, Index, fingerprint, is_memory_map, some_rows
from minidl.utils.errors import refusing_input
from minidl.utils.lazy import LazyRows, is_lazy


def stays_on_disk(network: Network, loss: Loss, y: Any) -> bool:
    """Whether targets are read as steps need them: an array on disk, for a loss that takes numbers and not labels."""
    if not (is_lazy(y) or is_memory_map(y)) or isinstance(loss, OutputLosses) or network.moves_pixels:
        return False
    takes_labels = getattr(loss, "classes", False) or getattr(loss, "ignore_index", None) is not None
    return hasattr(loss, "targets") and not takes_labels


class TargetsOnDisk:
    """n targets with the interface of an array: `targets[rows]` reads these rows, as the loss takes them.

    used: rows that are read, of which the first says shape and dtype. convert: returns targets for rows of y.

    Raises InputError for another number of rows, and, as rows are read, for those that `convert` refuses.
    """

    def __init__(self, y: Any, n: int, used: Index, convert: Callable[[Any], Array]) -> None:
        self.source = LazyRows(y, "y") if is_lazy(y) else y  # the numbers as they are
        self._rows, self._convert = np.arange(n), convert
        if len(y) != n:
            raise ValueError(f"y: expected {n} targets, one for each example of X, got {len(y)}")
        try:
            one = self[used[:1]]
        except ValueError as error:
            shape = self.source.shape
            raise type(error)(str(error).replace(f"got {(1, *shape[1:])}", f"got {shape}")) from error
        self.shape, self.dtype, self.itemsize = (n, *one.shape[1:]), one.dtype, one.itemsize
        self.ndim = one.ndim

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, rows: slice | Index) -> Array:
        rows = self._rows[rows]
        try:
            with refusing_input():
                return self._convert(self.source[rows])
        except ValueError as error:
            words = re.sub(r"(?<=first in example )\d+", lambda found: str(rows[int(found[0])]), str(error))
            raise type(error)(words) from error

    def __array__(self, dtype: Any = None, *, copy: bool | None = None) -> Array:
        return np.asarray(self[:], dtype)

    def of(self, rows: Index) -> TargetsOnDisk:
        """Returns the targets of these rows, without reading them."""
        part = copy.copy(self)
        part._rows = self._rows[rows]
        part.shape = (len(rows), *self.shape[1:])
        return part

    def fingerprint(self, limit: int) -> str:
        """Returns the hash that these targets have in memory, of at most `limit` rows, which are not checked."""
        as_they_are: Any = copy.copy(self)
        as_they_are._convert = self._unchecked
        return fingerprint(as_they_are, some_rows(len(self), limit))

    def _unchecked(self, block: Array) -> Array:
        with np.errstate(all="ignore"):
            numbers = block.reshape(len(block), -1).astype(self.dtype)  # all, or one for all outputs (Pinball)
            return np.broadcast_to(numbers, (len(block), math.prod(self.shape[1:]))).reshape(-1, *self.shape[1:])

    def equals(self, other: TargetsOnDisk) -> bool:
        """Whether both have the same numbers; reads them until some differ."""
        starts = range(0, len(self), CHUNK)
        return all(np.array_equal(self[i : i + CHUNK], other[i : i + CHUNK]) for i in starts)
