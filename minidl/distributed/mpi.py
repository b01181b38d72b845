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
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import numpy as np

from minidl.distributed.communicator import Communicator
from minidl.utils.arrays import Array
from minidl_c.runtime.threads import limit_default

NO_MPI4PY = 'minidl.distributed needs mpi4py: pip install "minidl[mpi]"'
NO_MPI = "minidl.distributed: mpi4py finds no MPI: take the machine's Open MPI or MPICH, or pip install mpich"
TAG_EXIT = 1  # of the last message of a process
MAX_SHOWN = 200  # characters of a fact in an error; longer ones are compared by their hash
POLL_SECONDS = 0.002  # poll without a pause for this long
EXIT_GRACE_SECONDS = 2.0  # then look for ranks that have ended: before, they may have answered
STALL_WARNING_SECONDS = 60.0  # then print a warning
KINDS: dict[str, type[BaseException]] = {
    kind.__name__: kind
    for kind in (KeyboardInterrupt, SystemExit, TypeError, ValueError, OSError, FloatingPointError, MemoryError)
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
        If `comm` is no communicator of mpi4py; and for a copy or a pickle.

    Notes
    -----
    Only `rank` and `size` are for programs. The methods are those that a Trainer calls, in all processes at the same
    time.

    Examples
    --------
    Without mpiexec, there is one process:

    >>> from minidl.distributed import MPI
    >>> processes = MPI()
    >>> processes.rank, processes.size
    (0, 1)
    """

    max_size = 1  # of all jobs that this process takes part in

    def __init__(self, comm: Any = None) -> None:
        try:
            import mpi4py  # noqa: F401
        except ImportError as error:
            raise ImportError(NO_MPI4PY) from error
        try:
            from mpi4py import MPI as mpi
        except (ImportError, RuntimeError) as error:
            raise ImportError(f"{NO_MPI} ({error})") from error
        if comm is not None and not isinstance(comm, mpi.Intracomm):
            raise TypeError(f"comm: expected a communicator of mpi4py, got {comm!r}")
        self._mpi = mpi
        self._comm = (
            mpi.COMM_WORLD if comm is None else comm
        ).Dup()  # a communicator of its own: no messages of other code
        self.rank, self.size = self._comm.Get_rank(), self._comm.Get_size()
        self._common_error: BaseException | None = None  # raised in all processes
        self._reporter = 0  # the rank that prints it
        self._process = os.getpid()  # a forked child is no rank
        MPI.max_size = max(MPI.max_size, self.size)
        if self.size > 1:
            limit_default(self._share_of_processors())
            sys.excepthook = self._abort_hook(sys.excepthook)
            _JOBS.append(self)

    def __repr__(self) -> str:
        return f"MPI(rank {self.rank} of {self.size})"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("MPI: cannot be copied or pickled: make one in each process")

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
        byte = self._mpi.BYTE
        self._comm.Alltoallv(
            [send, send_counts, _starts(send_counts), byte], [recv, recv_counts, _starts(recv_counts), byte]
        )

    def allgatherv(self, joined: Array, counts: list[int]) -> None:
        """Gathers in all processes the bytes of each.

        Parameters
        ----------
        joined : array of uint8
            Bytes of all processes one after the other, in place.
        counts : list of int
            Number of bytes of each process, in rank order.
        """
        self._comm.Allgatherv(self._mpi.IN_PLACE, [joined, counts, _starts(counts), self._mpi.BYTE])

    def allgather_rows(self, rows: Array) -> None:
        """Gathers in all processes an array whose `local_slice` each process has filled.

        Parameters
        ----------
        rows : array of shape (n, ...)
            Array that is filled, in place.
        """
        n, size = len(rows), rows.nbytes // max(len(rows), 1)
        counts = [(n * (rank + 1) // self.size - n * rank // self.size) * size for rank in range(self.size)]
        self.allgatherv(rows.reshape(-1).view(np.uint8), counts)

    def allreduce_or(self, array: Array) -> None:
        """Combines the arrays of all processes by a bitwise or.

        Parameters
        ----------
        array : array
            Array that is combined, in place.
        """
        self._comm.Allreduce(self._mpi.IN_PLACE, [array.reshape(-1).view(np.uint8), self._mpi.BYTE], self._mpi.BOR)

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
        self._comm.Bcast(values, 0)
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
        values = np.array(numbers, np.int64)
        self._wait(self._comm.Iallreduce(self._mpi.IN_PLACE, values, self._mpi.MAX))
        return [int(value) for value in values]

    def _wait(self, request: Any) -> None:
        """Waits for a request; warns of a long wait, and aborts all processes if one of them has ended."""
        began, warned = time.perf_counter(), False
        while not request.Test():
            waited = time.perf_counter() - began
            if waited > STALL_WARNING_SECONDS and not warned:
                warned, seconds = True, f"{STALL_WARNING_SECONDS:.0f} s"
                self._print(f"has waited {seconds} for others: is fit, or train_batch, called in all ranks?")
            if waited > POLL_SECONDS:  # others are slow, or there are more ranks than processors
                time.sleep(POLL_SECONDS / 10)
            status = self._mpi.Status()
            if waited > EXIT_GRACE_SECONDS and self._comm.Iprobe(self._mpi.ANY_SOURCE, TAG_EXIT, status):
                self._abort(f"rank {status.source} has ended, and this one wants to train with it")

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
        all_facts = [json.loads(text) for text in self._allgather_text(json.dumps(short))]
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

    def _allgather_text(self, text: str) -> list[str]:
        """Returns the texts of all processes."""
        local = np.frombuffer(text.encode(errors="replace"), np.uint8)
        (length,) = self.allreduce_max([len(local)])
        padded, gathered = np.zeros(length, np.uint8), np.empty((self.size, length), np.uint8)
        padded[: len(local)] = local
        if length:
            self._comm.Allgather(padded, gathered)
        return [row.tobytes().rstrip(b"\0").decode() for row in gathered]

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
        texts = self._allgather_text("" if error is None else f"{_kind(error)} {type(error).__name__}: {error}")
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
                self._abort("".join(traceback.format_exception(error)))
            raise

    def _print(self, text: str) -> None:
        sys.stdout.flush()
        sys.stderr.write(f"minidl: rank {self.rank} of {self.size} {text.rstrip()}\n")
        sys.stderr.flush()

    def _abort(self, why: str) -> None:
        self._print(f"ends all processes: {why}")
        self._comm.Abort(1)

    def _abort_hook(self, before: Any) -> Any:
        """Returns an excepthook that aborts all processes: others would wait for this one forever."""

        def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            if os.getpid() != self._process:
                before(kind, error, trace)
                return
            if error is self._common_error and self.rank != self._reporter:
                time.sleep(EXIT_GRACE_SECONDS)  # all have it; one prints it and aborts
            if before is sys.__excepthook__:
                self._abort("".join(traceback.format_exception(kind, error, trace)))
            before(kind, error, trace)
            self._abort(f"{kind.__name__}: {error}")

        return hook

    def _share_of_processors(self) -> float:
        """Returns the share of its processors that this process has if the processes of this machine divide them."""
        neighbours = self._comm.Split_type(self._mpi.COMM_TYPE_SHARED)
        allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
        own = list(allowed)
        last = np.array([own[-1]], np.int64)
        neighbours.Allreduce(self._mpi.IN_PLACE, last, self._mpi.MAX)
        users = np.zeros(last[0] + 1, np.int64)
        users[own] = 1
        neighbours.Allreduce(self._mpi.IN_PLACE, users, self._mpi.SUM)
        neighbours.Free()
        return float((1 / users[own]).sum() / len(own))


_JOBS: list[MPI] = []  # with several ranks


@atexit.register
def _leave() -> None:
    """Sends an exit message to the other ranks of all jobs, and waits for theirs."""
    jobs = [job for job in _JOBS if job._process == os.getpid() and not job._mpi.Is_finalized()]
    pairs = [(job, rank) for job in jobs for rank in range(job.size) if rank != job.rank]
    requests = [job._comm.Isend(np.zeros(1, np.uint8), rank, TAG_EXIT) for job, rank in pairs]
    for job, rank in pairs:
        job._comm.Recv(np.empty(1, np.uint8), rank, TAG_EXIT)
    for request in requests:
        request.Wait()


def _kind(error: BaseException) -> str:
    """Returns the name of the nearest type of error that all ranks can raise."""
    return next((kind.__name__ for kind in type(error).__mro__ if kind.__name__ in KINDS), "RuntimeError")


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _starts(counts: list[int]) -> list[int]:
    return [sum(counts[:rank]) for rank in range(len(counts))]
