"""Copies of numbers from place to place, as few nested loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]
LOOPS = 4  # of a copy


@dataclass(frozen=True)
class Copy:
    """Copies `size` numbers from place x to place y, and, in nested loops (n, step of x, step of y), n times."""

    size: int
    x: int
    y: int
    loops: Sequence[tuple[int, int, int]]  # at most LOOPS, the outermost one first


def copies(x: Places, y: Places, channels: int) -> list[Copy]:
    """Returns the copies of number x[i] to place y[i], for all i, which is in increasing order.

    channels: numbers of a pixel of y; a pixel has copies of its own, so that those of all pixels are alike.
    """
    starts = np.flatnonzero(np.diff(x, prepend=-2) != 1)
    breaks = np.union1d(starts, np.flatnonzero((np.diff(y, prepend=-2) != 1) | (y % channels == 0)))
    sizes = np.diff(np.append(breaks, len(x)))
    x, y, loops = x[breaks], y[breaks], list[tuple[int, int, int]]()
    while len(x) > 1 and len(loops) < LOOPS and (period := _period(x, y, sizes)) < len(x):
        loops.append((len(x) // period, int(x[period] - x[0]), int(y[period] - y[0])))
        x, y, sizes = x[:period], y[:period], sizes[:period]
    if len(x) == 1 and loops and loops[-1][1:] == (sizes[0], sizes[0]):  # neighbours
        sizes = sizes * loops.pop()[0]
    return [Copy(int(n), int(a), int(b), tuple(loops)) for n, a, b in zip(sizes, x, y, strict=True)]


def _period(x: Places, y: Places, sizes: Places) -> int:
    """Returns the least period: after as many copies, all come again, each the same step further."""
    for period in range(1, len(x) // 2 + 1):
        if len(x) % period == 0 and (sizes[period:] == sizes[:-period]).all():
            steps = x[period:] - x[:-period], y[period:] - y[:-period]
            if all((step == step[0]).all() for step in steps):
                return period
    return len(x)
