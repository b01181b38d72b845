"""The memory of values: places in one arena, which values share that are not needed at the same time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from minidl_c.runtime.memory_planner import plan_offsets

ALIGNMENT = 16  # numbers: a vector, or a cache line of float32
OVERREAD = 16  # numbers after the last value that vectors may read
ATTEMPTS = 50  # orders of buffers that are tried


@dataclass(frozen=True)
class Access:
    """The storages that one statement reads and writes. in_place: `writes` may be where `reads[0]` is."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    in_place: bool = False


def place(
    sizes: Sequence[int], accesses: Sequence[Access], live_out: Collection[int], overread: int = OVERREAD
) -> tuple[list[int], int]:
    """Returns the offset of each storage in the arena, and the size of the arena, in numbers.

    Storage 0 is the input, which is there before the first statement; those in `live_out` are there after the last one.
    A buffer has one storage, or several that replace each other in place. overread: numbers after all of them.
    """
    last_use = {0: 0, **dict.fromkeys(live_out, len(accesses) + 1)}
    for number, access in enumerate(accesses, 1):
        for storage in access.reads:
            last_use[storage] = max(last_use.get(storage, 0), number)
    buffer_of, spans = {0: 0}, [[sizes[0], 0, last_use[0]]]
    for number, access in enumerate(accesses, 1):
        for storage in access.writes:
            if storage in buffer_of:  # written in parts
                continue
            end, source = last_use.get(storage, number), access.reads[0] if access.in_place else None
            if source is not None and last_use[source] == number and sizes[source] == sizes[storage]:
                buffer_of[storage] = buffer_of[source]
                spans[buffer_of[source]][2] = end
            else:
                buffer_of[storage] = len(spans)
                spans.append([sizes[storage], number, end])
    offsets, size = plan_offsets(spans, ATTEMPTS, ALIGNMENT)
    return [offsets[buffer_of[storage]] for storage in range(len(sizes))], size + overread
