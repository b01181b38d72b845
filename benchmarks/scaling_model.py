"""Performance model of a training step on many ranks, for clusters that were not measured.

The bytes follow minidl_c/runtime/partition.pyx: each rank leaves the nodes of the tree that its slots make up, and
joins its range of all rows; the ranges are made of 16 items.
"""

import math
from dataclasses import dataclass

from critical_path import LANES, RANGES, SLOTS

FORMULA = """\
    step = fixed + ceil(S / threads) * slot + N * range * joining
           + 2 * E * (R - 1) * latency + (scattered + gathered) / bandwidth

    R  ranks, one per node                         range      largest number of bytes that a rank joins
    S  largest number of slots of a rank; a batch  N          nodes of the tree that all ranks leave
       has one per 16 examples, at most 16         scattered  nodes * (rows - range), the larger of sent and received
    E  exchanges per step                          gathered   rows * (R - 1) / R"""


@dataclass(frozen=True)
class Step:
    """A step of one net at one batch size, as measured here; seconds and bytes."""

    fixed: float  # seconds beyond the slots: update, calls
    slot: float  # seconds in which one thread computes a slot
    slots: int
    row_bytes: int  # bytes of a node: all gradients and what is reduced with them
    joining: float  # seconds per joined byte
    exchanges: int
    threads: int  # per rank

    def compute(self, ranks):
        """Returns the seconds of computation on the rank with the most work."""
        slots = max(end - first for first, end in runs(self.slots, ranks))
        seconds = self.fixed + math.ceil(slots / self.threads) * self.slot
        if ranks > 1:
            seconds += sum(nodes(self.slots, ranks)) * max(ranges(self.row_bytes, ranks)) * self.joining
        return seconds

    def exchange(self, ranks, latency, bandwidth):
        """Returns the seconds of the exchanges. A rank sends its messages one after the other while it receives."""
        if ranks == 1:
            return 0.0
        moved = busiest(self.row_bytes, self.slots, ranks)
        return 2 * self.exchanges * (ranks - 1) * latency + moved / bandwidth

    def seconds(self, ranks, latency, bandwidth):
        return self.compute(ranks) + self.exchange(ranks, latency, bandwidth)


def slots_of(batch_size):
    """Returns the number of slots of a batch."""
    return min(math.ceil(batch_size / LANES), SLOTS)


def runs(things, ranks):
    """Returns the contiguous range (first, end) of each rank."""
    return [(things * rank // ranks, things * (rank + 1) // ranks) for rank in range(ranks)]


def nodes(slots, ranks):
    """Returns the number of tree nodes that each rank's slots make up."""
    return [nodes_between(*run) for run in runs(slots, ranks)]


def nodes_between(first, end):
    """Returns the number of maximal tree nodes that cover the slots from `first` to `end`."""
    count = 0
    while first < end:
        size = 1
        while first % (2 * size) == 0 and first + 2 * size <= end:
            size *= 2
        first, count = first + size, count + 1
    return count


def ranges(row_bytes, ranks):
    """Returns the bytes that each rank joins, if all items have one size."""
    return [row_bytes * (end - first) / RANGES for first, end in runs(RANGES, ranks)]


def sent(row_bytes, slots, ranks):
    """Returns the bytes that each rank sends per step: its nodes without its own range, and its joined range."""
    own = zip(nodes(slots, ranks), ranges(row_bytes, ranks), strict=True)
    return [count * (row_bytes - joined) + joined * (ranks - 1) for count, joined in own]


def busiest(row_bytes, slots, ranks):
    """Returns the bytes in the busier direction of the busiest rank's link, over scatter and gather."""
    counts, joined = nodes(slots, ranks), ranges(row_bytes, ranks)
    out = max(count * (row_bytes - own) for count, own in zip(counts, joined, strict=True))
    into = max((sum(counts) - count) * own for count, own in zip(counts, joined, strict=True))
    return max(out, into) + row_bytes * (ranks - 1) / ranks
