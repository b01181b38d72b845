"""What a trainer keeps of its data for `report`: copies of a few examples of each of its last batches."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np

from minidl.arrays import Array
from minidl.data import Index
from minidl.training.supervised import Supervised

MOST = 256  # examples
MOST_BYTES = 2**24  # of them together
BATCHES = 32  # that they come from
OFTEN = 2**32 // 8  # behind the first BATCHES calls of train_batch, every eighth leaves something, on average
SPREAD = np.random.default_rng(0).random(MOST)  # where in its part of a batch an example is taken from


@dataclass(frozen=True)
class Sample:
    """Some examples with targets and weights, as `Supervised` accepts them. batches: of equal numbers, one batch's."""

    X: Array
    y: Array
    weights: Array | None
    batches: Index | None  # None: nobody knows which were trained together
    size: int  # the examples of a step


class Kept:
    """The newest examples, at most MOST and MOST_BYTES: always copies, so that nobody's data stays alive for them."""

    def __init__(self) -> None:
        self._blocks: deque[tuple[Sample, int]] = deque(maxlen=BATCHES)
        self._task: tuple[object, ...] = ()  # what the examples were checked for
        self._calls = 0

    def keep_epoch(self, task: tuple[object, ...], data: Supervised, order: Index, size: int) -> None:
        """Keeps examples of an epoch that trains on the rows `order`, `size` of them a step, and forgets all others."""
        size = min(size, len(order))
        count = min(BATCHES, len(order) // size)
        starts = np.arange(count) * (len(order) // size) // count * size
        self._blocks.clear()
        self._keep(task, data, order, starts, size)

    def keep_batch(self, task: tuple[object, ...], data: Supervised) -> None:
        """Keeps some examples of a batch: of the first BATCHES, and then of few enough to cost no time."""
        self._calls += 1
        if self._calls <= BATCHES or self._calls * 2654435761 % 2**32 < OFTEN:  # Knuth's hash: in step with nothing
            self._keep(task, data, data.used, np.zeros(1, np.int64), len(data.used))

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
            batches.append(np.arange(count).repeat(len(block.X) // count) + BATCHES * len(blocks))
            blocks.append(block)
        weights = [np.ones(len(block.X)) if block.weights is None else block.weights for block in blocks]
        return Sample(
            np.concatenate([block.X for block in blocks]),
            np.concatenate([block.y for block in blocks]),
            np.concatenate(weights) if any(block.weights is not None for block in blocks) else None,
            np.concatenate(batches),
            newest.size,
        )

    def _keep(self, task: tuple[object, ...], data: Supervised, order: Index, starts: Index, size: int) -> None:
        """Keeps examples of the batches that begin at `starts`, from all parts of each."""
        if not _same(task, self._task):
            self._blocks.clear()
            self._task = task
        y = data.targets
        row_bytes = 8 * data.examples.size + y.itemsize * math.prod(y.shape[1:])
        each = min(MOST // (len(starts) if len(starts) > 1 else BATCHES), MOST_BYTES // row_bytes // BATCHES, size)
        each = max(each, 1)
        inside = (np.arange(each) + SPREAD[: len(starts) * each].reshape(-1, each)) * (size / each)
        rows = order[(starts[:, np.newaxis] + inside.astype(np.int64)).ravel()]
        X, at = data.examples.read(rows)
        weights = None if data.weights is None else data.weights[rows]
        self._blocks.append((Sample(X[at], y[rows], weights, None, size), len(starts)))


def _same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


def _alike(one: Sample, other: Sample) -> bool:
    """Whether examples can be put one behind the other without becoming something else."""
    return (one.X.dtype, one.y.dtype, one.y.shape[1:]) == (other.X.dtype, other.y.dtype, other.y.shape[1:])
