"""What training asks of the processes that do it together, and what one process that trains alone answers.

The processes of an MPI job: mpi.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from minidl.utils.arrays import Array


class Alone:
    """A process that trains alone. rank, size: which of how many processes it is."""

    rank, size = 0, 1

    def part(self, n: int) -> slice:
        """Which of n things this process does, where each does some."""
        return slice(n * self.rank // self.size, n * (self.rank + 1) // self.size)

    def gather(self, joined: Array, counts: list[int]) -> None:
        """Puts together bytes of which each process has filled so many, one behind the other; in place."""

    def gather_rows(self, rows: Array) -> None:
        """Puts together an array of which each process has filled its `part`; in place."""

    def merge(self, array: Array) -> None:
        """Puts together an array of which each process has filled some places, and left others zero; in place."""

    def most(self, numbers: list[int]) -> list[int]:
        """The largest of the numbers that the processes have, place by place."""
        return numbers

    def from_first(self, numbers: list[int]) -> list[int]:
        """The numbers that the first process has."""
        return numbers

    def check_same(self, facts: dict[str, str]) -> None:
        """Raises ValueError in all processes, with the name of a fact, unless it is the same in all of them."""

    @contextmanager
    def together(self) -> Iterator[None]:
        """A context whose exceptions come out of it in all processes: elsewhere of the same kind, with their text."""
        yield

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """A context in which others wait for this process: an exception that they do not know of ends them all."""
        yield


ALONE = Alone()
