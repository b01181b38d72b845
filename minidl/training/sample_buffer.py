"""What a trainer keeps of its data for `report`: copies of a few examples of each of its last batches."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from minidl.training.labeled_data import LabeledData
from minidl.utils.arrays import Array
from minidl.utils.data import Index

MOST = 256  # examples
MOST_BYTES = 2**24  # of them together
BATCHES = 32  # that they come from, at least, where there are so many
SOME = MOST // BATCHES  # of each of them
OFTEN = 2**32 // 32  # behind the first BATCHES calls of train_batch, each 32nd leaves something, on average


@dataclass(frozen=True)
class Sample:
    """Some examples with targets and weights, as `LabeledData` accepts them. batches: of equal numbers, one batch's."""

    X: Array
    y: Array
    weights: Array | None
    batches: Index | None  # None: nobody knows which were trained together
    size: int  # the examples of a step


class SampleBuffer:
    """The newest examples, at most MOST and MOST_BYTES: always copies, so that nobody's data stays alive for them."""

    def __init__(self) -> None:
        self._blocks: deque[tuple[Sample, int]] = deque()
        self._task: tuple[object, ...] = ()  # what the examples were checked for
        self._calls = 0

    def keep_epoch(self, task: tuple[object, ...], data: LabeledData, order: Index, size: int) -> None:
        """Keeps examples of an epoch that trains on the rows `order`, `size` of them a step, and forgets all others."""
        size = min(size, len(order))
        count = min(max(BATCHES, MOST // size), len(order) // size, _fitting(data))
        self._blocks.clear()
        self._keep(task, data, order, size, count, min(MOST, _fitting(data)) // count)

    def keep_batch(self, task: tuple[object, ...], data: LabeledData) -> None:
        """Keeps some examples of a batch: of the first BATCHES, and then of few enough to cost no time."""
        self._calls += 1
        if self._calls <= BATCHES or self._calls * 2654435761 % 2**32 < OFTEN:  # Knuth's hash: in step with nothing
            self._keep(task, data, data.active_rows, len(data.active_rows), 1, min(SOME, _fitting(data)))

    def sample(self, task: tuple[object, ...]) -> Sample | None:
        """The newest examples; None: there are none that were checked for the same."""
        if not self._blocks or not _same(task, self._task):
            return None
        newest = self._blocks[-1][0]
        blocks: list[Sample] = []
        batches: list[Index] = []
        for block, count in reversed(self._blocks):
            if sum(len(other.X) for other in blocks) + len(block.X) > MOST or not _alike(block, newest):
                break
            batches.append(np.arange(count).repeat(len(block.X) // count) + MOST * len(blocks))
            blocks.append(block)
        weights = [np.ones(len(block.X)) if block.weights is None else block.weights for block in blocks]
        return Sample(
            np.concatenate([block.X for block in blocks]),
            np.concatenate([block.y for block in blocks]),
            np.concatenate(weights) if any(block.weights is not None for block in blocks) else None,
            np.concatenate(batches),
            newest.size,
        )

    def _keep(
        self, task: tuple[object, ...], data: LabeledData, order: Index, size: int, count: int, each: int
    ) -> None:
        """Keeps so many examples each of some batches, which are `size` of the rows `order`."""
        if not _same(task, self._task):
            self._blocks.clear()
            self._task = task
        rows = order[_places(len(order), size, count, min(each, size))]
        X, at = data.examples.gather(rows)
        weights = None if data.weights is None else data.weights[rows]
        self._blocks.append((Sample(X[at], data.targets[rows], weights, None, size), count))
        while len(self._blocks) > 1 and len(self._blocks) * len(rows) > min(MOST, _fitting(data)):
            self._blocks.popleft()


@lru_cache(16)
def _places(n: int, size: int, count: int, each: int) -> Index:
    """Where, in n rows that make batches of `size`, `each` examples of `count` batches are, from all parts of both.

    Where exactly is left to chance, always the same one: data may come in some rhythm.
    """
    starts = np.arange(count) * (n // size) // count * size
    edges = np.arange(each + 1) * size // each
    inside = edges[:-1] + np.random.default_rng(0).random((count, each)) * np.diff(edges)
    places: Index = (starts[:, np.newaxis] + inside.astype(np.int64)).ravel()
    return places


def _fitting(data: LabeledData) -> int:
    """How many examples with their targets MOST_BYTES hold; at least one."""
    example = 8 * data.examples.size + data.targets.itemsize * math.prod(data.targets.shape[1:])
    return max(1, MOST_BYTES // example)


def _same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


def _alike(one: Sample, other: Sample) -> bool:
    """Whether examples can be put one behind the other without becoming something else."""
    return (one.X.dtype, one.y.dtype, one.y.shape[1:]) == (other.X.dtype, other.y.dtype, other.y.shape[1:])
