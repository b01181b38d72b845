"""A model of a training step on many ranks: what scaling.py prints for machines that it does not have.

The bytes follow runtime/partition.pyx: each rank leaves the nodes of the tree that its slots make up, and joins its
range of all rows; the ranges are made of 16 items.
"""

import math
from dataclasses import dataclass

from critical_path import LANES, RANGES, SLOTS

FORMULA = """\
    step = fixed + ceil(S / threads) * slot + N * range * joining
           + 2 * E * (R - 1) * latency + (scattered + gathered) / bandwidth

    R  ranks, one a node                           range      bytes of the rows that a rank joins, at most
    S  slots of a rank, at most: a batch has 16,   N          nodes of the tree that all ranks leave
       or one for each 16 examples                 scattered  nodes * (rows - range), sent or received, at most
    E  exchanges a step                            gathered   rows * (R - 1) / R"""


@dataclass(frozen=True)
class Step:
    """A step of one net at one batch size, as measured here; seconds and bytes."""

    fixed: float  # what a step takes beyond its slots: the update, calls
    slot: float  # one thread computes a slot
    slots: int
    row_bytes: int  # of a node: all gradients, and what comes with them
    joining: float  # for each byte that is joined
    exchanges: int
    threads: int  # of a rank

    def compute(self, ranks):
        """Seconds of the rank that computes most."""
        most = max(end - first for first, end in runs(self.slots, ranks))
        seconds = self.fixed + math.ceil(most / self.threads) * self.slot
        if ranks > 1:
            seconds += sum(nodes(self.slots, ranks)) * max(ranges(self.row_bytes, ranks)) * self.joining
        return seconds

    def exchange(self, ranks, latency, bandwidth):
        """Seconds of the exchanges, messages going out one behind the other while others come in."""
        if ranks == 1:
            return 0.0
        moved = busiest(self.row_bytes, self.slots, ranks)
        return 2 * self.exchanges * (ranks - 1) * latency + moved / bandwidth

    def seconds(self, ranks, latency, bandwidth):
        return self.compute(ranks) + self.exchange(ranks, latency, bandwidth)


def slots_of(batch_size):
    """How many slots a batch has."""
    return min(math.ceil(batch_size / LANES), SLOTS)


def runs(things, ranks):
    """The run of things that each rank does."""
    return [(things * rank // ranks, things * (rank + 1) // ranks) for rank in range(ranks)]


def nodes(slots, ranks):
    """How many nodes each rank's slots make up."""
    return [nodes_between(*run) for run in runs(slots, ranks)]


def nodes_between(first, end):
    """How many nodes of the tree, as large as they can be, are all slots from one to another."""
    count = 0
    while first < end:
        size = 1
        while first % (2 * size) == 0 and first + 2 * size <= end:
            size *= 2
        first, count = first + size, count + 1
    return count


def ranges(row_bytes, ranks):
    """The bytes of the rows that each rank joins, items being of one size."""
    return [row_bytes * (end - first) / RANGES for first, end in runs(RANGES, ranks)]


def sent(row_bytes, slots, ranks):
    """The bytes that each rank sends to others in a step: its nodes without its own range, and its joined range."""
    own = zip(nodes(slots, ranks), ranges(row_bytes, ranks), strict=True)
    return [count * (row_bytes - joined) + joined * (ranks - 1) for count, joined in own]


def busiest(row_bytes, slots, ranks):
    """The bytes that pass the busier direction of the busiest rank's link, in scatter and in gather."""
    counts, joined = nodes(slots, ranks), ranges(row_bytes, ranks)
    out = max(count * (row_bytes - own) for count, own in zip(counts, joined, strict=True))
    into = max((sum(counts) - count) * own for count, own in zip(counts, joined, strict=True))
    return max(out, into) + row_bytes * (ranks - 1) / ranks
