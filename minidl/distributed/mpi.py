"""MPI: data-parallel training over the processes of an MPI job, with the bits of a single process.

Every process runs the same script, reads the same data and makes the same model. Of each batch a process computes a run
of slots (simd/reduction.h) and so whole nodes of the tree in which sums are added. minidl_c/runtime/partition.pyx
describes what is exchanged then, and why the number of processes changes no bit.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import numpy as np

from minidl.distributed.communicator import Communicator
from minidl.distributed.peers import Peers
from minidl.distributed.processors import processors, share, warning_of_binding
from minidl.utils.arrays import Array
from minidl.utils.errors import InputError, InputTypeError
from minidl.utils.optional import needs
from minidl.utils.validation import check_limit
from minidl_c.runtime.threads import limit_default

NO_MPI = "minidl.distributed: mpi4py finds no MPI: take the machine's Open MPI or MPICH, or pip install mpich"
MAX_SHOWN = 200  # characters of a fact in an error; longer ones are compared by their hash
REPORT_SECONDS = 2.0  # for the rank that prints an error which all have
KINDS: dict[str, type[BaseException]] = {
    kind.__name__: kind
    for kind in (
        *(KeyboardInterrupt, SystemExit, InputError, InputTypeError),
        *(TypeError, ValueError, OSError, FloatingPointError, MemoryError),
    )
}


class MPI(Communicator):
    """The processes of an MPI job, as `Trainer(..., distributed=MPI())` takes them; made in each of them.

    Started without mpiexec, a script is the only process. All processes become one job: an uncaught exception aborts
    them all, with a traceback that names the rank, and so does a process that ends while others wait to train with it.
    The default of `num_threads` becomes the number of processors of this process, divided by the number of processes
    that share them.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm or None, default None
        A communicator of mpi4py; None: MPI.COMM_WORLD.
    timeout : float or None, default 1800
        Seconds after which a wait for other processes ends the job, the same in all; None: it waits forever. The time
        in which this process is suspended does not count. Raise it above the time of what one process does alone, such
        as a callback on rank 0 or its work after the last fit.

    Attributes
    ----------
    rank : int
        Number of this process, from 0.
    size : int
        Number of processes.

    Raises
    ------
    ImportError
        Without mpi4py or an MPI.
    TypeError
        If `comm` is no communicator of mpi4py, or `timeout` no number; and for a copy or a pickle.
    ValueError
        If `timeout` is not above 0, or not the same in all processes.

    Notes
    -----
    Only `rank` and `size` are for programs. The methods are those that a Trainer calls, in all processes at the same
    time.

    A process that has waited for a minute prints which others it waits for. It cannot tell a slow one from a lost one.

    Examples
    --------
    Without mpiexec, there is one process:

    >>> from minidl.distributed import MPI
    >>> processes = MPI()
    >>> processes.rank, processes.size
    (0, 1)
    """

    max_size = 1  # of all jobs that this process takes part in

    def __init__(self, comm: Any = None, timeout: float | None = 1800) -> None:
        limit = check_limit("timeout", timeout)
        with needs("mpi4py", "minidl.distributed"):
            import mpi4py  # noqa: F401
        try:
            from mpi4py import MPI as mpi
        except (ImportError, RuntimeError) as error:
            raise ImportError(f"{NO_MPI} ({error})") from error
        if comm is not None and not isinstance(comm, mpi.Intracomm):
            raise TypeError(f"comm: expected a communicator of mpi4py, got {comm!r}")
        self._peers = Peers(mpi, mpi.COMM_WORLD if comm is None else comm, limit)
        self.rank, self.size = self._peers.rank, self._peers.size
        self._common_error: BaseException | None = None  # raised in all processes
        self._reporter = 0  # the rank that prints it
        MPI.max_size = max(MPI.max_size, self.size)
        if self.size > 1:
            sys.excepthook = self._abort_hook(sys.excepthook)
            _JOBS.append(self._peers)
            self.check_consistent({"timeout": repr(limit)})
            ranks = [json.loads(text) for text in self._peers.gather_texts("processors", json.dumps(processors()))]
            limit_default(share(self.rank, ranks))
            if self.rank == 0 and (warning := warning_of_binding(ranks)):
                self._peers.print(f"warns: {warning}")

    def __repr__(self) -> str:
        return f"MPI(rank {self.rank} of {self.size})"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("MPI: cannot be copied or pickled: make one in each process")

    def mark(self, step: int, checkpoints: Sequence[str] | None = None) -> None:
        """Notes where the training stands, for messages.

        Parameters
        ----------
        step : int
            Number of steps done.
        checkpoints : sequence of str or None, default None
            Paths of the checkpoints of the fit; None: as before.
        """
        self._peers.step = step
        if checkpoints is not None:
            self._peers.checkpoints = checkpoints

    # ---- buffers: nothing is pickled

    def alltoallv(self, send: Array, send_counts: list[int], recv: Array, recv_counts: list[int]) -> None:
        """Sends bytes to each process and receives bytes from each.

        Parameters
        ----------
        send : array of uint8
            Bytes for all processes, in rank order.
        send_counts : list of int
            Number of bytes for each process.
        recv : array of uint8
            Bytes of all processes, which are overwritten.
        recv_counts : list of int
            Number of bytes from each process.
        """
        self._peers.scatter("partial sums", send, send_counts, recv, recv_counts)

    def allgatherv(self, joined: Array, counts: list[int]) -> None:
        """Gathers in all processes the bytes of each.

        Parameters
        ----------
        joined : array of uint8
            Bytes of all processes one after the other, in place.
        counts : list of int
            Number of bytes of each process, in rank order.
        """
        self._peers.gather("sums", joined, counts)

    def allgather_rows(self, rows: Array) -> None:
        """Gathers in all processes an array whose `local_slice` each process has filled.

        Parameters
        ----------
        rows : array of shape (n, ...)
            Array that is filled, in place.
        """
        size = rows.nbytes // max(len(rows), 1)
        self._peers.gather("scores", rows.reshape(-1).view(np.uint8), [n * size for n in self._counts(len(rows))])

    def allreduce_or(self, array: Array) -> None:
        """Combines the arrays of all processes by a bitwise or.

        Parameters
        ----------
        array : array
            Array that is combined, in place.
        """
        joined = array.reshape(-1).view(np.uint8)
        counts = self._counts(len(joined))
        parts = np.empty((self.size, counts[self.rank]), np.uint8)
        self._peers.scatter("losses", joined, counts, parts.reshape(-1), [counts[self.rank]] * self.size)
        joined[self.local_slice(len(joined))] = np.bitwise_or.reduce(parts)
        self._peers.gather("losses", joined, counts)

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
        values = np.array(numbers, np.int64)
        self._peers.gather("the number of steps", values.view(np.uint8), [values.nbytes] + [0] * (self.size - 1))
        return [int(value) for value in values]

    def allreduce_max(self, numbers: list[int]) -> list[int]:
        """Returns the maxima of the numbers of all processes.

        Aborts all processes if one of them has ended.

        Parameters
        ----------
        numbers : list of int
            Numbers of this process.

        Returns
        -------
        list of int
            Maxima.
        """
        return [int(value) for value in self._peers.gather_numbers("stops and signals", numbers).max(axis=0)]

    def _counts(self, n: int) -> list[int]:
        """Returns the number of items of each process when n are divided among all."""
        return [n * (rank + 1) // self.size - n * rank // self.size for rank in range(self.size)]

    # ---- what all have to agree on

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
        short = {name: text if len(text) <= MAX_SHOWN else f"#{_hash(text)}" for name, text in facts.items()}
        all_facts = [
            json.loads(text) for text in self._peers.gather_texts("what all ranks must agree on", json.dumps(short))
        ]
        first = all_facts[0]
        for rank, other in enumerate(all_facts):
            for name in sorted(first.keys() | other.keys(), key=list(first | other).index):
                ours, theirs = first.get(name, "nothing"), other.get(name, "nothing")
                if ours != theirs:
                    difference = f"rank 0 has {ours}, rank {rank} has {theirs}"
                    if "#" in (ours[:1], theirs[:1]):
                        difference = f"rank {rank} has another one than rank 0"
                    error = ValueError(f"{name}: expected the same on all ranks, {difference}")
                    self._common_error, self._reporter = error, 0
                    raise error

    @contextmanager
    def raise_together(self) -> Iterator[None]:
        """Returns a context that raises an exception of any process in all of them: same type, same text.

        Returns
        -------
        context manager
            For a `with` statement.
        """
        error: BaseException | None = None
        try:
            yield
        except BaseException as raised:
            error = raised
        texts = self._peers.gather_texts(
            "errors", "" if error is None else f"{_kind(error)} {type(error).__name__}: {error}"
        )
        self._reporter = next((rank for rank, text in enumerate(texts) if text), 0)
        if error is None and texts[self._reporter]:
            kind, text = texts[self._reporter].split(" ", 1)
            error = KINDS.get(kind, RuntimeError)(f"rank {self._reporter} of {self.size}: {text}")
        if error is not None:
            self._common_error = error
            raise error

    # ---- ends

    @contextmanager
    def abort_on_error(self) -> Iterator[None]:
        """Returns a context that aborts all processes on an exception in this one alone: the others wait for it.

        Returns
        -------
        context manager
            For a `with` statement.
        """
        try:
            yield
        except BaseException as error:
            if self.size > 1 and error is not self._common_error:
                lines = traceback.format_exception(error)
                self._peers.abort(lambda: "".join(lines))
            raise

    def _abort_hook(self, before: Any) -> Any:
        """Returns an excepthook that aborts all processes: others would wait for this one forever."""

        def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            if os.getpid() != self._peers.process:
                before(kind, error, trace)
                return
            if error is self._common_error and self.rank != self._reporter:
                time.sleep(REPORT_SECONDS)  # all have it; one prints it and aborts
            if before is sys.__excepthook__:
                self._peers.abort(lambda: "".join(traceback.format_exception(kind, error, trace)))
            before(kind, error, trace)
            self._peers.abort(lambda: f"{kind.__name__}: {error}")

        return hook


_JOBS: list[Peers] = []  # with several ranks


@atexit.register
def _leave() -> None:
    """Tells the other ranks of all jobs that this one ends, and waits until they do."""
    jobs = [peers for peers in _JOBS if peers.process == os.getpid() and not peers.mpi.Is_finalized()]
    if jobs:
        jobs[0].leave(jobs[1:])


def _kind(error: BaseException) -> str:
    """Returns the name of the nearest type of error that all ranks can raise."""
    return next((kind.__name__ for kind in type(error).__mro__ if kind.__name__ in KINDS), "RuntimeError")


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
