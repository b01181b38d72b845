"""One training, shared out over processes on one machine or on many, with the bits of a single process.

Every process runs the same script, reads the same data and makes the same model. Of each batch a process does a run of
slots (simd/reduction.h) and leaves whole nodes of the tree in which sums are added up; what then is exchanged, and why
the number of processes changes no bit, is in minidl_c/runtime/partition.pyx.
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
TAG_EXIT = 1  # the tag of the last message of a process
MAX_SHOWN = 200  # letters of a fact that are told; longer ones are compared by their hash
POLL_SECONDS = 0.002  # seconds that others are waited for without a pause
EXIT_GRACE_SECONDS = 2.0  # and until it matters whether one has ended: perhaps it has answered before
STALL_WARNING_SECONDS = 60.0  # and until somebody should be told
KINDS: dict[str, type[BaseException]] = {
    kind.__name__: kind
    for kind in (KeyboardInterrupt, SystemExit, TypeError, ValueError, OSError, FloatingPointError, MemoryError)
}


class MPI(Communicator):
    """The processes of an MPI job, as `Trainer(..., distributed=MPI())` takes them; made in each of them.

    comm: an mpi4py communicator; None: MPI.COMM_WORLD. Started without mpiexec, a script is the only process.
    rank, size: which of how many processes this one is.

    It makes of all processes one job: an exception that nobody catches ends them all, with a traceback that names the
    rank, and so does a process that ends while others want to train with it. The default of num_threads becomes the
    processors that this process has, divided by the processes that share them.

    Raises ImportError without mpi4py or an MPI.
    """

    most_ranks = 1  # of all jobs that this process takes part in

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
        self._comm = (mpi.COMM_WORLD if comm is None else comm).Dup()  # its messages meet nobody else's
        self.rank, self.size = self._comm.Get_rank(), self._comm.Get_size()
        self._known: BaseException | None = None  # what came out of all processes
        self._speaker = 0  # who tells it
        self._process = os.getpid()  # a forked child is no rank
        MPI.most_ranks = max(MPI.most_ranks, self.size)
        if self.size > 1:
            limit_default(self._share_of_processors())
            sys.excepthook = self._end_all_on(sys.excepthook)
            _JOBS.append(self)

    def __repr__(self) -> str:
        return f"MPI(rank {self.rank} of {self.size})"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("MPI: cannot be copied or pickled: make one in each process")

    # ---- buffers: nothing is pickled

    def alltoallv(self, mine: Array, sent: list[int], everyones: Array, received: list[int]) -> None:
        """Sends each process so many bytes, and puts those that come from each one behind the other."""
        byte = self._mpi.BYTE
        self._comm.Alltoallv([mine, sent, _starts(sent), byte], [everyones, received, _starts(received), byte])

    def allgatherv(self, joined: Array, counts: list[int]) -> None:
        """See Communicator."""
        self._comm.Allgatherv(self._mpi.IN_PLACE, [joined, counts, _starts(counts), self._mpi.BYTE])

    def allgather_rows(self, rows: Array) -> None:
        """See Communicator."""
        n, size = len(rows), rows.nbytes // max(len(rows), 1)
        counts = [(n * (rank + 1) // self.size - n * rank // self.size) * size for rank in range(self.size)]
        self.allgatherv(rows.reshape(-1).view(np.uint8), counts)

    def allreduce_or(self, array: Array) -> None:
        """See Communicator."""
        self._comm.Allreduce(self._mpi.IN_PLACE, [array.reshape(-1).view(np.uint8), self._mpi.BYTE], self._mpi.BOR)

    def broadcast(self, numbers: list[int]) -> list[int]:
        """See Communicator."""
        found = np.array(numbers, np.int64)
        self._comm.Bcast(found, 0)
        return [int(number) for number in found]

    def allreduce_max(self, numbers: list[int]) -> list[int]:
        """See Communicator. Ends all processes if one of them has ended."""
        found = np.array(numbers, np.int64)
        request, began = self._comm.Iallreduce(self._mpi.IN_PLACE, found, self._mpi.MAX), time.perf_counter()
        told = False
        while not request.Test():
            waited = time.perf_counter() - began
            if waited > STALL_WARNING_SECONDS and not told:
                told = True
                self._say(
                    f"has waited {STALL_WARNING_SECONDS:.0f} s for others: is fit, or train_batch, called in all ranks?"
                )
            if waited > POLL_SECONDS:  # others are late, or more than there are processors
                time.sleep(POLL_SECONDS / 10)
            status = self._mpi.Status()
            if waited > EXIT_GRACE_SECONDS and self._comm.Iprobe(self._mpi.ANY_SOURCE, TAG_EXIT, status):
                self._end_all(f"rank {status.source} has ended, and this one wants to train with it")
        return [int(number) for number in found]

    # ---- what all have to agree on

    def check_consistent(self, facts: dict[str, str]) -> None:
        """See Communicator."""
        short = {name: text if len(text) <= MAX_SHOWN else f"#{_hash(text)}" for name, text in facts.items()}
        everyones = [json.loads(text) for text in self._everyones(json.dumps(short))]
        first = everyones[0]
        for rank, found in enumerate(everyones):
            for name in sorted(first.keys() | found.keys(), key=list(first | found).index):
                ours, theirs = first.get(name, "nothing"), found.get(name, "nothing")
                if ours != theirs:
                    told = f"rank 0 has {ours}, rank {rank} has {theirs}"
                    if "#" in (ours[:1], theirs[:1]):
                        told = f"rank {rank} has another one than rank 0"
                    self._known, self._speaker = ValueError(f"{name}: expected the same on all ranks, {told}"), 0
                    raise self._known

    def _everyones(self, text: str) -> list[str]:
        """The text of each process."""
        mine = np.frombuffer(text.encode(errors="replace"), np.uint8)
        (length,) = self.allreduce_max([len(mine)])
        padded, everyones = np.zeros(length, np.uint8), np.empty((self.size, length), np.uint8)
        padded[: len(mine)] = mine
        if length:
            self._comm.Allgather(padded, everyones)
        return [one.tobytes().rstrip(b"\0").decode() for one in everyones]

    @contextmanager
    def raise_together(self) -> Iterator[None]:
        """See Communicator."""
        error: BaseException | None = None
        try:
            yield
        except BaseException as raised:
            error = raised
        told = self._everyones("" if error is None else f"{_kind(error)} {type(error).__name__}: {error}")
        self._speaker = next((rank for rank, text in enumerate(told) if text), 0)
        if error is None and told[self._speaker]:
            kind, text = told[self._speaker].split(" ", 1)
            error = KINDS.get(kind, RuntimeError)(f"rank {self._speaker} of {self.size}: {text}")
        if error is not None:
            self._known = error
            raise error

    # ---- ends

    @contextmanager
    def abort_on_error(self) -> Iterator[None]:
        """See Communicator."""
        try:
            yield
        except BaseException as error:
            if self.size > 1 and error is not self._known:
                self._end_all("".join(traceback.format_exception(error)))
            raise

    def _say(self, text: str) -> None:
        sys.stdout.flush()
        sys.stderr.write(f"minidl: rank {self.rank} of {self.size} {text.rstrip()}\n")
        sys.stderr.flush()

    def _end_all(self, why: str) -> None:
        self._say(f"ends all processes: {why}")
        self._comm.Abort(1)

    def _end_all_on(self, before: Any) -> Any:
        """An excepthook: others would wait for this process for ever."""

        def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            if os.getpid() != self._process:
                before(kind, error, trace)
                return
            if error is self._known and self.rank != self._speaker:
                time.sleep(EXIT_GRACE_SECONDS)  # all have it, and one says so and ends all
            if before is sys.__excepthook__:
                self._end_all("".join(traceback.format_exception(kind, error, trace)))
            before(kind, error, trace)
            self._end_all(f"{kind.__name__}: {error}")

        return hook

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


_JOBS: list[MPI] = []  # of several ranks


@atexit.register
def _leave() -> None:
    """At exit: tells the others of all jobs, and waits until they leave as well."""
    jobs = [job for job in _JOBS if job._process == os.getpid() and not job._mpi.Is_finalized()]
    pairs = [(job, rank) for job in jobs for rank in range(job.size) if rank != job.rank]
    requests = [job._comm.Isend(np.zeros(1, np.uint8), rank, TAG_EXIT) for job, rank in pairs]
    for job, rank in pairs:
        job._comm.Recv(np.empty(1, np.uint8), rank, TAG_EXIT)
    for request in requests:
        request.Wait()


def _kind(error: BaseException) -> str:
    """The name of the nearest kind of errors that the others can raise as well."""
    return next((kind.__name__ for kind in type(error).__mro__ if kind.__name__ in KINDS), "RuntimeError")


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _starts(counts: list[int]) -> list[int]:
    return [sum(counts[:rank]) for rank in range(len(counts))]
