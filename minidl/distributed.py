"""One training, shared out over processes on one machine or on many, with the bits of a single process.

Every process runs the same script, reads the same data and makes the same model. Of each batch a process does a run of
slots (minidl_c/slots.h) and leaves whole nodes of the tree in which sums are added up; what then is exchanged, and why
the number of processes changes no bit, is in minidl_c/sharing.pyx.

`Alone` is what a trainer without `distributed` has: the same questions, asked of one process.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import numpy as np

from minidl.arrays import Array
from minidl_c.threads import limit_default

LACKING = 'minidl.distributed needs mpi4py, and an MPI such as Open MPI or MPICH: pip install "minidl[mpi]"'
LEFT = 1  # the tag of the last message of a process
DIGEST = 16  # bytes of a hash
PATIENCE = 0.002  # seconds that others are waited for without a pause
GRACE = 2.0  # and until it matters whether one has ended: perhaps it has answered before
KINDS: dict[str, type[BaseException]] = {
    kind.__name__: kind
    for kind in (KeyboardInterrupt, SystemExit, TypeError, ValueError, OSError, FloatingPointError, MemoryError)
}


class Alone:
    """A process that trains alone. rank, ranks: which of how many processes it is."""

    rank, ranks = 0, 1

    def part(self, n: int) -> slice:
        """Which of n things this process does, where each does some."""
        return slice(n * self.rank // self.ranks, n * (self.rank + 1) // self.ranks)

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
        """A context whose exceptions come out of it in all processes: not their own, but of the same kind."""
        yield

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """A context in which others wait for this process: an exception that they do not know of ends them all."""
        yield


ALONE = Alone()


class MPI(Alone):
    """The processes of an MPI job, as `Trainer(..., distributed=MPI())` takes them; made in each of them.

    comm: an mpi4py communicator; None: MPI.COMM_WORLD. Started without mpiexec, a script is the only process.
    rank, ranks: which of how many processes this one is.

    It makes of all processes one job: an exception that nobody catches ends them all, with a traceback that names the
    rank, and so does a process that ends while others want to train with it. The default of num_threads becomes the
    processors that this process has, divided by the processes that share them.

    Raises ImportError without mpi4py or an MPI.
    """

    def __init__(self, comm: Any = None) -> None:
        try:
            from mpi4py import MPI as mpi
        except (ImportError, RuntimeError) as error:
            raise ImportError(f"{LACKING} ({error})") from error
        if comm is not None and not isinstance(comm, mpi.Intracomm):
            raise TypeError(f"comm: expected a communicator of mpi4py, got {comm!r}")
        self._mpi = mpi
        self._comm = (mpi.COMM_WORLD if comm is None else comm).Dup()  # its messages meet nobody else's
        self.rank, self.ranks = self._comm.Get_rank(), self._comm.Get_size()
        self._known: BaseException | None = None  # what came out of `together`
        if self.ranks > 1:
            limit_default(self._share_of_processors())
            sys.excepthook = self._end_all_on(sys.excepthook)
            atexit.register(self._leave)

    def __repr__(self) -> str:
        return f"MPI(rank {self.rank} of {self.ranks})"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("MPI: cannot be copied or pickled: make one in each process")

    # ---- buffers: nothing is pickled

    def scatter(self, mine: Array, sent: list[int], everyones: Array, received: list[int]) -> None:
        """Sends each process so many bytes, and puts those that come from each one behind the other."""
        byte = self._mpi.BYTE
        self._comm.Alltoallv([mine, sent, _starts(sent), byte], [everyones, received, _starts(received), byte])

    def gather(self, joined: Array, counts: list[int]) -> None:
        """See Alone."""
        self._comm.Allgatherv(self._mpi.IN_PLACE, [joined, counts, _starts(counts), self._mpi.BYTE])

    def gather_rows(self, rows: Array) -> None:
        """See Alone."""
        n, size = len(rows), rows.nbytes // max(len(rows), 1)
        counts = [(n * (rank + 1) // self.ranks - n * rank // self.ranks) * size for rank in range(self.ranks)]
        self.gather(rows.reshape(-1).view(np.uint8), counts)

    def merge(self, array: Array) -> None:
        """See Alone."""
        self._comm.Allreduce(self._mpi.IN_PLACE, [array.reshape(-1).view(np.uint8), self._mpi.BYTE], self._mpi.BOR)

    def from_first(self, numbers: list[int]) -> list[int]:
        """See Alone."""
        found = np.array(numbers, np.int64)
        self._comm.Bcast(found, 0)
        return [int(number) for number in found]

    def most(self, numbers: list[int]) -> list[int]:
        """See Alone. Ends all processes if one of them has ended."""
        found = np.array(numbers, np.int64)
        request, began = self._comm.Iallreduce(self._mpi.IN_PLACE, found, self._mpi.MAX), time.perf_counter()
        while not request.Test():
            waited = time.perf_counter() - began
            if waited > PATIENCE:  # others are late, or more than there are processors
                time.sleep(PATIENCE / 10)
            status = self._mpi.Status()
            if waited > GRACE and self._comm.Iprobe(self._mpi.ANY_SOURCE, LEFT, status):
                self._end_all(f"rank {status.source} has ended, and this one wants to train with it")
        return [int(number) for number in found]

    # ---- what all have to agree on

    def check_same(self, facts: dict[str, str]) -> None:
        """See Alone."""
        names = "\n".join(facts)
        hashes = [hashlib.blake2b(text.encode(), digest_size=DIGEST).digest() for text in (names, *facts.values())]
        if (count := self.most([len(hashes), -len(hashes)]))[0] != -count[1]:
            told = f"expected the same call on all ranks, rank {self.rank} has {', '.join(facts)}"
            self._known = ValueError(f"distributed: {told}")
            raise self._known
        mine = np.frombuffer(b"".join(hashes), np.uint8).reshape(len(hashes), DIGEST)
        everyones = np.empty((self.ranks, *mine.shape), np.uint8)
        self._comm.Allgather(mine, everyones)
        for name, hash_of in zip(("arguments", *facts), everyones.transpose(1, 0, 2), strict=True):
            others = [rank for rank in range(self.ranks) if (hash_of[rank] != hash_of[0]).any()]
            if others:
                who = f"rank {others[0]} has" if len(others) == 1 else f"ranks {', '.join(map(str, others))} have"
                self._known = ValueError(f"{name}: expected the same on all ranks, {who} other ones than rank 0")
                raise self._known

    @contextmanager
    def together(self) -> Iterator[None]:
        """See Alone."""
        error: BaseException | None = None
        try:
            yield
        except BaseException as raised:
            error = raised
        told = "" if error is None else f"{_kind(error)} {type(error).__name__}: {error}"
        first = self._first_of(told)
        if error is None and first is not None:
            kind, text = first[1].split(" ", 1)
            error = KINDS.get(kind, RuntimeError)(f"rank {first[0]} of {self.ranks}: {text}")
        if error is not None:
            self._known = error
            raise error

    def _first_of(self, text: str) -> tuple[int, str] | None:
        """The first process that has a text, and the text; None: none has."""
        mine = np.frombuffer(text.encode(), np.uint8)
        (length,) = self.most([len(mine)])
        if not length:
            return None
        padded, everyones = np.zeros(length, np.uint8), np.empty((self.ranks, length), np.uint8)
        padded[: len(mine)] = mine
        self._comm.Allgather(padded, everyones)
        rank = int(np.flatnonzero(everyones.any(axis=1))[0])
        return rank, everyones[rank].tobytes().rstrip(b"\0").decode()

    # ---- ends

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """See Alone."""
        try:
            yield
        except BaseException as error:
            if self.ranks > 1 and error is not self._known:
                self._end_all("".join(traceback.format_exception(error)))
            raise

    def _end_all(self, why: str) -> None:
        sys.stdout.flush()
        sys.stderr.write(f"minidl: rank {self.rank} of {self.ranks} ends all processes: {why.rstrip()}\n")
        sys.stderr.flush()
        self._comm.Abort(1)

    def _end_all_on(self, before: Any) -> Any:
        """An excepthook: others would wait for this process for ever."""

        def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            if before is sys.__excepthook__:
                self._end_all("".join(traceback.format_exception(kind, error, trace)))
            before(kind, error, trace)
            self._end_all(f"{kind.__name__}: {error}")

        return hook

    def _leave(self) -> None:
        """At exit: tells all others, and waits until they leave as well."""
        if self._mpi.Is_finalized():
            return
        others = [rank for rank in range(self.ranks) if rank != self.rank]
        requests = [self._comm.Isend(np.zeros(1, np.uint8), rank, LEFT) for rank in others]
        for rank in others:
            self._comm.Recv(np.empty(1, np.uint8), rank, LEFT)
        self._mpi.Request.Waitall(requests)

    def _share_of_processors(self) -> float:
        """Of the processors it may run on, the share of this process if those of this machine divide theirs."""
        neighbours = self._comm.Split_type(self._mpi.COMM_TYPE_SHARED)
        mine = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
        last = np.array([mine[-1]], np.int64)
        neighbours.Allreduce(self._mpi.IN_PLACE, last, self._mpi.MAX)
        users = np.zeros(last[0] + 1, np.int64)
        users[mine] = 1
        neighbours.Allreduce(self._mpi.IN_PLACE, users, self._mpi.SUM)
        neighbours.Free()
        return float((1 / users[mine]).sum() / len(mine))


def _kind(error: BaseException) -> str:
    """The name of the nearest kind of errors that the others can raise as well."""
    return next((kind.__name__ for kind in type(error).__mro__ if kind.__name__ in KINDS), "RuntimeError")


def _starts(counts: list[int]) -> list[int]:
    return [sum(counts[:rank]) for rank in range(len(counts))]
