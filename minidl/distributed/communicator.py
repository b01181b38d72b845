"""Communicator: the collective operations that distributed training needs, named after MPI's.

The processes of an MPI job: mpi.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from minidl.utils.arrays import Array

NO_OTHERS = nullcontext()  # an exception concerns this process alone


class Communicator:
    """The processes that train together, and the base class of all communicators. This one has a single process.

    rank: of this process, from 0. size: the number of processes.
    """

    rank, size = 0, 1

    def local_slice(self, n: int) -> slice:
        """Returns the range of this process when n items are divided among all.

        Parameters
        ----------
        n : int
            Number of items.

        Returns
        -------
        slice
            The range.
        """
        return slice(n * self.rank // self.size, n * (self.rank + 1) // self.size)

    def mark(self, step: int, checkpoints: Sequence[str] | None = None) -> None:
        """Notes where the training stands, for messages.

        Parameters
        ----------
        step : int
            Number of steps done.
        checkpoints : sequence of str or None, default None
            Paths of the checkpoints of the fit; None: as before.
        """

    def allgatherv(self, joined: Array, counts: list[int]) -> None:
        """Gathers in all processes the bytes of each.

        Parameters
        ----------
        joined : array of uint8
            Bytes of all processes one after the other, in place.
        counts : list of int
            Number of bytes of each process, in rank order.
        """

    def allgather_rows(self, rows: Array) -> None:
        """Gathers in all processes an array whose `local_slice` each process has filled.

        Parameters
        ----------
        rows : array of shape (n, ...)
            Array that is filled, in place.
        """

    def allreduce_or(self, array: Array) -> None:
        """Combines the arrays of all processes by a bitwise or.

        Parameters
        ----------
        array : array
            Array that is combined, in place.
        """

    def allreduce_max(self, numbers: list[int]) -> list[int]:
        """Returns the maxima of the numbers of all processes.

        Parameters
        ----------
        numbers : list of int
            Numbers of this process.

        Returns
        -------
        list of int
            Maxima.
        """
        return numbers

    def broadcast(self, numbers: list[int]) -> list[int]:
        """Returns the numbers of rank 0.

        Parameters
        ----------
        numbers : list of int
            Numbers of this process.

        Returns
        -------
        list of int
            Numbers of rank 0.
        """
        return numbers

    def check_consistent(self, facts: dict[str, str]) -> None:
        """Raises ValueError in all processes, naming the first fact that is not the same in all.

        Parameters
        ----------
        facts : dict of str to str
            Texts by name.

        Raises
        ------
        ValueError
            If a fact differs.
        """

    def raise_together(self) -> AbstractContextManager[None]:
        """Returns a context that raises an exception of any process in all of them: same type, same text.

        Returns
        -------
        context manager
            For a `with` statement.
        """
        return NO_OTHERS

    def abort_on_error(self) -> AbstractContextManager[None]:
        """Returns a context that aborts all processes on an exception in this one alone: the others wait for it.

        Returns
        -------
        context manager
            For a `with` statement.
        """
        return NO_OTHERS


SINGLE_PROCESS = Communicator()
