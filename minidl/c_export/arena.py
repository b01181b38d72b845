"""The memory of values: places in one arena, which values share that are not needed at the same time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

ALIGNMENT = 16  # numbers: a vector, or a cache line of float32
OVERREAD = 16  # numbers after the last value that vectors may read
ATTEMPTS = 50  # orders of buffers that are tried


@dataclass
class Buffer:
    """Memory of `size` numbers that is in use from step `first` to step `last`."""

    size: int
    first: int
    last: int
    members: list[int] = field(default_factory=list)  # the values that are in it, one after the other


@dataclass(frozen=True)
class Access:
    """What one statement reads and writes, by the numbers of values. in_place: `writes` may be where `reads[0]` is."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    in_place: bool = False


def place(sizes: Sequence[int], accesses: Sequence[Access], live_out: Collection[int]) -> tuple[list[int], int]:
    """Returns the offset of each value in the arena, and the size of the arena, in numbers.

    Value 0 is there before the first step; those in `live_out` are after the last one. Buffers are placed one after the
    other, each at the lowest offset that is free while it is used. The order is by size, the largest first (Pisarchyk
    and Lee, "Efficient Memory Management for Deep Neural Net Inference", arXiv:2001.03288, "greedy by size"); while
    that leaves a gap, the buffer that ends last is placed first.
    """
    buffers = _buffers(sizes, accesses, live_out)
    order = sorted(buffers, key=lambda b: -b.size)
    times = range(-1, len(accesses) + 1)
    least = max(sum(_rounded(b.size) for b in buffers if b.first <= time <= b.last) for time in times)
    best = placed = _placed(order)
    for _ in range(ATTEMPTS):
        if _end(best) == least:
            break
        highest = max(placed, key=lambda pair: pair[0] + _rounded(pair[1].size))[1]
        order = [highest, *(buffer for buffer in order if buffer is not highest)]
        placed = _placed(order)
        best = min(best, placed, key=_end)
    offsets = [0] * len(sizes)
    for offset, buffer in best:
        for value in buffer.members:
            offsets[value] = offset
    return offsets, _end(best) + OVERREAD


def _placed(order: Sequence[Buffer]) -> list[tuple[int, Buffer]]:
    """Returns the buffers with their offsets, if they are placed in this order."""
    placed: list[tuple[int, Buffer]] = []
    for buffer in order:
        placed.append((_lowest_free(buffer, ((at, other) for at, other in placed if _overlap(buffer, other))), buffer))
    return placed


def _end(placed: Sequence[tuple[int, Buffer]]) -> int:
    return max((at + _rounded(buffer.size) for at, buffer in placed), default=0)


def _buffers(sizes: Sequence[int], accesses: Sequence[Access], live_out: Collection[int]) -> list[Buffer]:
    """Returns the memory that is needed: a buffer for each value, or for several that replace each other in place."""
    last_use = {0: -1, **dict.fromkeys(live_out, len(accesses))}
    for number, access in enumerate(accesses):
        for value in access.reads:
            last_use[value] = max(last_use.get(value, -1), number)
    buffers = {0: Buffer(sizes[0], -1, last_use[0], [0])}
    for number, access in enumerate(accesses):
        for value in access.writes:
            if value in buffers:  # written in parts
                continue
            end = last_use.get(value, number)
            source = access.reads[0] if access.in_place else None
            if source is not None and last_use[source] == number and sizes[source] == sizes[value]:
                buffers[value] = buffers[source]
                buffers[value].last = end
            else:
                buffers[value] = Buffer(sizes[value], number, end)
            buffers[value].members.append(value)
    return list({id(buffer): buffer for buffer in buffers.values()}.values())


def _overlap(a: Buffer, b: Buffer) -> bool:
    return a.first <= b.last and b.first <= a.last


def _lowest_free(buffer: Buffer, others: Iterable[tuple[int, Buffer]]) -> int:
    """Returns the lowest offset at which a buffer overlaps none of the others."""
    offset = 0
    for at, other in sorted(others, key=lambda pair: pair[0]):
        if offset + _rounded(buffer.size) <= at:
            break
        offset = max(offset, at + _rounded(other.size))
    return offset


def _rounded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
