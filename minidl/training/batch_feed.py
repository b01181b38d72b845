"""BatchFeed: the batches of a fit, from an iterator, another iterable, or a sequence such as Keras's."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from minidl.utils.arrays import ARRAY_ATTRIBUTES
from minidl.utils.sparse import is_sparse
from minidl.utils.validation import check_int


def is_batches(X: Any) -> bool:
    """True for what can be read as batches: an iterable, or a sequence with `__getitem__` alone, that is no array."""
    if isinstance(X, (str, bytes, dict, type)) or is_sparse(X) or any(hasattr(X, name) for name in ARRAY_ATTRIBUTES):
        return False
    return hasattr(X, "__iter__") or hasattr(X, "__getitem__")


def gives_pairs(X: Any) -> bool:
    """True for what can only be batches: an iterable without indices, or pairs of arrays of different shapes."""
    if not isinstance(X, (list, tuple)):
        return is_batches(X) and not hasattr(X, "__getitem__")
    first = X[0] if X else None
    if not isinstance(first, (list, tuple)) or len(first) not in (2, 3):
        return False
    shapes = [getattr(one, "shape", None) for one in first[:2]]
    return None not in shapes and shapes[0] != shapes[1]


# In the state of a fit: the hash of the first batch since the source began; whether an earlier pass over the source
# began with another one. Files of earlier versions lack both.
UNKNOWN = {"opening": "", "varies": False}


class BatchFeed:
    """Batches as they come: (X, y) or (X, y, sample_weight) each.

    source: an iterator, read once; or an iterable, or a sequence with `__getitem__` alone, which is read from its
        beginning, and again after its end. Its `on_epoch_end` method is called when it has been read to its end; that
        of an iterator after each epoch. Its `set_epoch` method, or else that of its sampler, is called with the number
        of the epoch before the first read of each.
    steps_per_epoch: the number of batches of an epoch; None: up to the end of the source.
    refused: the feed of a fit that was refused; if it has read a batch of the same iterator, this one begins with it.

    Raises TypeError or ValueError for an invalid number, and for several epochs of an iterator without it.
    """

    def __init__(self, source: Any, steps_per_epoch: int | None, epochs: int, refused: BatchFeed | None = None) -> None:
        self.steps_per_epoch = None if steps_per_epoch is None else check_int("steps_per_epoch", steps_per_epoch)
        self.is_iterator = hasattr(source, "__next__")
        if self.is_iterator and steps_per_epoch is None and epochs > 1:
            raise ValueError(f"steps_per_epoch: expected a number for {epochs} epochs, as an iterator is read once")
        self.source = source
        self._set_epoch, self._epoch = epoch_setter(source), -1  # the epoch that the source was told
        self._iterator: Iterator[Any] | None = None
        ahead = refused._ahead if self.is_iterator and refused is not None and refused.source is source else []
        self._ahead: list[Any] = ahead  # a batch that was read too early
        self._given = 0  # the number of batches given in this epoch
        self.position = 0  # the number of batches given since the source began

    @property
    def kind(self) -> str:
        """What the batches come from, for the arguments of a fit."""
        return "an iterator" if self.is_iterator else "an iterable"

    @property
    def steps(self) -> int | None:
        """The number of batches of an epoch, if it is known before it ends."""
        return _length(self.source) if self.steps_per_epoch is None else self.steps_per_epoch

    @property
    def takes_epoch(self) -> bool:
        """Whether the source is told the number of each epoch."""
        return self._set_epoch is not None

    def peek(self, epoch: int) -> Any:
        """Returns the first batch of this epoch, which stays; raises ValueError if there is none."""
        self._tell(epoch)
        for batch in self._read():
            self._ahead = [batch]
            return batch
        raise ValueError("X: expected at least one batch, got none")

    def open(self, epoch: int, given: int = 0) -> None:
        """Begins this epoch, or the rest of it after some batches that were given."""
        self._given = given
        self._tell(epoch)

    def _tell(self, epoch: int) -> None:
        """Tells the source the number of the epoch that is read next. A batch that was read too early is read again."""
        if self._set_epoch is not None and epoch != self._epoch:
            if not self.position and not self.is_iterator:
                self.restart()
            self._set_epoch(epoch)
            self._epoch = epoch

    def restart(self) -> None:
        """Makes the next batch the first one of an iterable, whatever has been read of it."""
        self._iterator, self._ahead, self.position, self._epoch = None, [], 0, -1

    def replay(self, position: int, count: int, epoch: int) -> Iterator[Any]:
        """Yields at most `position` batches of an iterable from its beginning: those that a fit has read before.

        The last `count` of them are of this epoch, those before it of epochs of `steps_per_epoch` batches each.
        """
        while self.position < position:
            before = max(position - count - self.position, 0)
            self._tell(epoch - -(-before // (self.steps_per_epoch or before or 1)))
            if not (batches := self._read()):
                return
            self.position += 1
            yield batches[0]

    def next(self) -> Any:
        """Returns the next batch; None at the end of the epoch. Raises ValueError if there are too few batches."""
        if self._given == self.steps_per_epoch:
            return None
        for batch in self._read():
            self._given, self.position = self._given + 1, self.position + 1
            if batch is None:
                raise TypeError("X: expected batches (X, y) or (X, y, sample_weight), got None")
            return batch
        if self.steps_per_epoch is None:
            self._end()
            return None
        if self.is_iterator or not self.position:
            expected = f"expected {self.steps_per_epoch} batches in each epoch"
            raise ValueError(f"steps_per_epoch: {expected}, got an end after {self._given}")
        self._end()
        return self.next()

    def close(self) -> None:
        """Ends an epoch."""
        if self.is_iterator:
            self._call_on_epoch_end()
        elif self.position and self.position == _length(self.source):
            self._ahead = self._read()  # empty, unless the length is wrong
            if not self._ahead:
                self._end()

    def _read(self) -> list[Any]:
        """Returns the next batch of the source in a list, which is empty at its end."""
        if self._ahead:
            batches, self._ahead = self._ahead, []
            return batches
        if self._iterator is None:
            self._iterator = iter(self.source) if hasattr(self.source, "__iter__") else _items(self.source)
        return list(itertools.islice(self._iterator, 1))

    def _end(self) -> None:
        """Ends a pass over the source."""
        if not self.is_iterator:
            self.restart()
            self._call_on_epoch_end()

    def _call_on_epoch_end(self) -> None:
        if callable(end := getattr(self.source, "on_epoch_end", None)):
            end()


def epoch_setter(source: Any) -> Callable[[int], object] | None:
    """Returns `set_epoch` of a source, or of the sampler of a loader of PyTorch; None if neither has it."""
    batch_sampler = getattr(source, "batch_sampler", None)
    for owner in (source, getattr(source, "sampler", None), batch_sampler, getattr(batch_sampler, "sampler", None)):
        if callable(setter := getattr(owner, "set_epoch", None)):
            found: Callable[[int], object] = setter
            return found
    return None


def _length(source: Any) -> int | None:
    """Returns the length of a source; None if it has none, or does not know it."""
    try:
        return len(source)
    except TypeError:  # such as a DataLoader of PyTorch around an IterableDataset
        return None


def _items(source: Any) -> Iterator[Any]:
    """Yields the items of a sequence without `__iter__`; raises ValueError if there are fewer than its length says.

    Without a length, they end with an IndexError, as in Python's own protocol.
    """
    length = _length(source)
    for i in itertools.count() if length is None else range(length):
        try:
            item = source[i]
        except IndexError as error:
            if length is None:
                return
            expected = f"expected {length} batches, as its len() says"
            raise ValueError(f"X: {expected}, got IndexError at {i}: {error}") from error
        yield item


def check_batches(state: Any, seen: int, has_metrics: bool) -> None:
    """Raises ValueError unless the state is what BatchFitLoop saves of an epoch that has seen this many examples."""
    if not isinstance(state, dict) or set(state) != {"count", "position", "digest", "targets", "weights", *UNKNOWN}:
        raise ValueError("fit: expected the state of its batches, got something else")
    for name in ("count", "position"):
        check_int(f"batches: {name}", state[name], minimum=0)
    targets, weights = state["targets"], state["weights"]
    if not isinstance(state["opening"], str) or type(state["varies"]) is not bool:
        raise ValueError("fit: expected the hash of a first batch, and whether it varies, got something else")
    if not isinstance(state["digest"], str) or not isinstance(weights, np.ndarray) or weights.shape != (seen,):
        raise ValueError(f"fit: expected a hash and {seen} weights of its batches, got something else")
    if weights.dtype != np.float64 or not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError("fit: expected weights of at least 0, got others")
    if seen and has_metrics and not (isinstance(targets, np.ndarray) and targets.ndim and len(targets) == seen):
        raise ValueError(f"fit: expected {seen} targets of its batches, got something else")
