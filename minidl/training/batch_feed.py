"""BatchFeed: the batches of a fit, from an iterator, another iterable, or a sequence such as Keras's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from minidl.utils.arrays import ARRAY_ATTRIBUTES
from minidl.utils.sparse import is_sparse
from minidl.utils.validation import check_int


def is_batches(X: Any) -> bool:
    """True for what can be read as batches: an iterable, or a sequence with a length, that is no array."""
    if isinstance(X, (str, bytes, dict)) or is_sparse(X) or any(hasattr(X, name) for name in ARRAY_ATTRIBUTES):
        return False
    return hasattr(X, "__iter__") or (hasattr(X, "__len__") and hasattr(X, "__getitem__"))


def gives_pairs(X: Any) -> bool:
    """True for what can only be batches: an iterable without indices, or pairs of arrays of different shapes."""
    if not isinstance(X, (list, tuple)):
        return is_batches(X) and not hasattr(X, "__getitem__")
    first = X[0] if X else None
    if not isinstance(first, (list, tuple)) or len(first) not in (2, 3):
        return False
    shapes = [getattr(one, "shape", None) for one in first[:2]]
    return None not in shapes and shapes[0] != shapes[1]


class BatchFeed:
    """Batches as they come: (X, y) or (X, y, sample_weight) each.

    source: an iterator, read once; or an iterable, or a sequence with `__len__` and `__getitem__` alone, which each
        epoch reads from its beginning. An `on_epoch_end` method is called after each epoch.
    steps_per_epoch: the number of batches of an epoch; None: all.

    Raises TypeError or ValueError for an invalid number, and for several epochs of an iterator without it.
    """

    def __init__(self, source: Any, steps_per_epoch: int | None, epochs: int) -> None:
        self.steps_per_epoch = None if steps_per_epoch is None else check_int("steps_per_epoch", steps_per_epoch)
        self.is_iterator = hasattr(source, "__next__")
        if self.is_iterator and steps_per_epoch is None and epochs > 1:
            raise ValueError(f"steps_per_epoch: expected a number for {epochs} epochs, as an iterator is read once")
        self._source = source
        self._iterator: Iterator[Any] | None = None
        self._ahead: list[Any] = []  # a batch that `peek` has read
        self._given = 0  # in this epoch
        self._is_open = False

    @property
    def kind(self) -> str:
        """What the batches come from, for the arguments of a fit."""
        return "an iterator" if self.is_iterator else "an iterable"

    @property
    def steps(self) -> int | None:
        """The number of batches of an epoch, if it is known before it ends."""
        if self.steps_per_epoch is not None or not hasattr(self._source, "__len__"):
            return self.steps_per_epoch
        return len(self._source)

    def peek(self) -> Any:
        """Begins the first epoch, and returns its first batch, which stays; raises ValueError if there is none."""
        self.open()
        first = self.next()
        if first is None:
            raise ValueError("X: expected at least one batch, got none")
        self._ahead, self._given = [first], 0
        self._is_open = True
        return first

    def open(self) -> None:
        """Begins an epoch, unless `peek` did so."""
        if self._is_open:
            self._is_open = False
            return
        self._given = 0
        if self._iterator is None or not self.is_iterator:
            self._ahead = []
            own = hasattr(self._source, "__iter__")
            self._iterator = iter(self._source) if own else (self._source[i] for i in range(len(self._source)))

    def reopen(self) -> None:
        """Makes the next `open` read an iterable from its beginning, whatever has been read of it."""
        self._is_open = False

    def next(self) -> Any:
        """Returns the next batch; None at the end of the epoch. Raises ValueError if there are too few batches."""
        assert self._iterator is not None
        if self._given == self.steps_per_epoch:
            return None
        for batch in self._ahead or self._iterator:
            self._ahead = []
            self._given += 1
            if batch is None:
                raise TypeError("X: expected batches (X, y) or (X, y, sample_weight), got None")
            return batch
        if self.steps_per_epoch is not None:
            expected = f"expected {self.steps_per_epoch} batches in each epoch"
            raise ValueError(f"steps_per_epoch: {expected}, got an end after {self._given}")
        return None

    def close(self) -> None:
        """Ends an epoch."""
        if callable(end := getattr(self._source, "on_epoch_end", None)):
            end()


def check_batches(state: Any, seen: int, has_metrics: bool) -> None:
    """Raises ValueError unless the state is what BatchFitLoop saves of an epoch that has seen this many examples."""
    if not isinstance(state, dict) or set(state) != {"count", "digest", "targets", "weights"}:
        raise ValueError("fit: expected the state of its batches, got something else")
    check_int("batches", state["count"], minimum=0)
    targets, weights = state["targets"], state["weights"]
    if not isinstance(state["digest"], str) or not isinstance(weights, np.ndarray) or weights.shape != (seen,):
        raise ValueError(f"fit: expected a hash and {seen} weights of its batches, got something else")
    if weights.dtype != np.float64 or not np.isfinite(weights).all() or (weights <= 0).any():
        raise ValueError("fit: expected weights above 0, got others")
    if seen and has_metrics and not (isinstance(targets, np.ndarray) and targets.ndim and len(targets) == seen):
        raise ValueError(f"fit: expected {seen} targets of its batches, got something else")
