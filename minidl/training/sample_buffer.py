"""SampleBuffer: copies of a few examples of a trainer's last batches, for `report`."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from minidl.training.labeled_data import LabeledData
from minidl.utils.arrays import Array
from minidl.utils.data import Index

MAX_EXAMPLES = 256
MAX_BYTES = 2**24  # for all examples
MIN_BATCHES = 32  # batches that the examples come from, if there are as many
PER_BATCH = MAX_EXAMPLES // MIN_BATCHES  # examples of each batch
SAMPLED = 2**32 // 32  # after MIN_BATCHES calls of train_batch, one of 32 is sampled, on average


@dataclass(frozen=True)
class Sample:
    """Some examples with targets and weights, for LabeledData.

    batches: the index of each example's batch. largest_weight: the largest weight of all examples of a fit, if the fit
    divided its weights by their mean.
    """

    X: Array
    y: Array
    weights: Array | None
    batches: Index | None  # None: unknown
    size: int  # the number of examples of a step
    largest_weight: float = 0.0


class SampleBuffer:
    """The latest examples, at most MAX_EXAMPLES and MAX_BYTES: copies, which keep no data of the caller alive."""

    def __init__(self) -> None:
        self._blocks: deque[tuple[Sample, int]] = deque()
        self._key: tuple[object, ...] = ()  # what the examples were checked against
        self._calls = 0

    def keep_epoch(self, key: tuple[object, ...], data: LabeledData, order: Index, size: int) -> None:
        """Replaces all samples by examples of an epoch that trains on the rows `order`, `size` of them a step."""
        size = min(size, len(order))
        count = min(max(MIN_BATCHES, MAX_EXAMPLES // size), len(order) // size, _capacity(data))
        self._blocks.clear()
        largest = 0.0 if data.step_weights is None else float(data.step_weights[order].max())
        self._keep(key, data, order, size, count, min(MAX_EXAMPLES, _capacity(data)) // count, largest)

    def takes_next(self) -> bool:
        """Counts a batch; returns True for each of the first MIN_BATCHES, then for one of 32, which costs no time."""
        self._calls += 1
        # Knuth's hash: no period of the data matches it
        return self._calls <= MIN_BATCHES or self._calls * 2654435761 % 2**32 < SAMPLED

    def untake(self, taken: bool) -> None:
        """Forgets the batch that was counted last; taken: whether it was kept."""
        self._calls -= 1
        if taken:
            self._blocks.pop()

    def keep_batch(self, key: tuple[object, ...], data: LabeledData) -> None:
        """Adds some examples of a batch that `takes_next` has chosen."""
        self._keep(key, data, data.active_rows, len(data.active_rows), 1, min(PER_BATCH, _capacity(data)))

    def sample(self, key: tuple[object, ...]) -> Sample | None:
        """Returns the latest examples; None if there are none that were checked against the same."""
        if not self._blocks or not _same(key, self._key):
            return None
        latest = self._blocks[-1][0]
        blocks: list[Sample] = []
        batches: list[Index] = []
        for block, count in reversed(self._blocks):
            if sum(len(other.X) for other in blocks) + len(block.X) > MAX_EXAMPLES or not _can_concatenate(
                block, latest
            ):
                break
            batches.append(np.arange(count).repeat(len(block.X) // count) + MAX_EXAMPLES * len(blocks))
            blocks.append(block)
        weights = [np.ones(len(block.X)) if block.weights is None else block.weights for block in blocks]
        return Sample(
            np.concatenate([block.X for block in blocks]),
            np.concatenate([block.y for block in blocks]),
            np.concatenate(weights) if any(block.weights is not None for block in blocks) else None,
            np.concatenate(batches),
            latest.size,
            latest.largest_weight,
        )

    def _keep(
        self,
        key: tuple[object, ...],
        data: LabeledData,
        order: Index,
        size: int,
        count: int,
        each: int,
        largest_weight: float = 0.0,
    ) -> None:
        """Adds `each` examples of each of `count` batches, which are `size` of the rows `order`."""
        if not _same(key, self._key):
            self._blocks.clear()
            self._key = key
        rows = order[_positions(len(order), size, count, min(each, size))]
        gathered = data.examples.gather(rows)
        weights = None if data.step_weights is None else data.step_weights[rows]
        x = gathered.x[gathered.rows].reshape(-1, *data.examples.shape)
        self._blocks.append((Sample(x, data.targets[rows], weights, None, size, largest_weight), count))
        while len(self._blocks) > 1 and len(self._blocks) * len(rows) > min(MAX_EXAMPLES, _capacity(data)):
            self._blocks.popleft()


@lru_cache(16)
def _positions(n: int, size: int, count: int, each: int) -> Index:
    """Returns positions in n rows that make batches of `size`: `each` examples of `count` batches, spread over both.

    They are random, with a fixed seed: data may have a period.
    """
    starts = np.arange(count) * (n // size) // count * size
    edges = np.arange(each + 1) * size // each
    inside = edges[:-1] + np.random.default_rng(0).random((count, each)) * np.diff(edges)
    positions: Index = (starts[:, np.newaxis] + inside.astype(np.int64)).ravel()
    return positions


def _capacity(data: LabeledData) -> int:
    """Returns the number of examples, with their targets, in MAX_BYTES; at least one."""
    example = 8 * data.examples.size + data.targets.itemsize * math.prod(data.targets.shape[1:])
    return max(1, MAX_BYTES // example)


def _same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


def _can_concatenate(one: Sample, other: Sample) -> bool:
    """Whether examples can be concatenated without conversion."""
    kinds = [(sample.X.dtype, sample.X.shape[1:], sample.y.dtype, sample.y.shape[1:]) for sample in (one, other)]
    return kinds[0] == kinds[1]
