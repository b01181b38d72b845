"""Peers: the messages between the processes of an MPI job, and the one place in which a process waits for others.

Messages go between pairs of processes, so that one that waits knows for which ranks.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from minidl.distributed.processors import name_ranks
from minidl.distributed.waiting import Waiting
from minidl.utils.arrays import Array

TAG, TAG_EXIT = 0, 1  # of all messages; of the last one of a process
ABORT_SECONDS = 2  # after that the process ends itself: MPI may wait for a host that is gone
Pending = list[tuple[int | None, Any]]  # requests, each with the rank that it waits for; None: any other


class Peers:
    """The processes of a communicator of mpi4py, which is duplicated: no messages of other code.

    timeout: the seconds after which a wait ends the job, or None. step, checkpoints: where the training stands, and the
    paths of its checkpoints, for messages.
    """

    def __init__(self, mpi: Any, comm: Any, timeout: float | None) -> None:
        self.mpi, self.comm, self.waiting = mpi, comm, Waiting(timeout)
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self.step: int | None = None
        self.checkpoints: Sequence[str] = ()
        self.process = os.getpid()  # a forked child is no rank
        own, request = comm.Idup()
        self._finish("a communicator", [(None, request)])
        self.comm = own

    # ---- exchanges. what: their name in messages

    def gather(self, what: str, joined: Array, counts: list[int]) -> None:
        """Gathers in all processes the bytes of each, in place."""
        parts = _cut(joined, counts)
        self._exchange(what, [parts[self.rank]] * self.size, parts)

    def scatter(self, what: str, send: Array, send_counts: list[int], recv: Array, recv_counts: list[int]) -> None:
        """Sends bytes to each process and receives bytes from each."""
        sent, received = _cut(send, send_counts), _cut(recv, recv_counts)
        received[self.rank][:] = sent[self.rank]
        self._exchange(what, sent, received)

    def gather_numbers(self, what: str, numbers: list[int]) -> Array:
        """Returns the numbers of all processes, an int64 row of each."""
        rows = np.empty((self.size, len(numbers)), np.int64)
        rows[self.rank] = numbers
        self.gather(what, rows.reshape(-1).view(np.uint8), [8 * len(numbers)] * self.size)
        return rows

    def gather_texts(self, what: str, text: str) -> list[str]:
        """Returns the texts of all processes."""
        local = np.frombuffer(text.encode(errors="replace"), np.uint8)
        counts = [int(count) for count in self.gather_numbers(what, [len(local)])[:, 0]]
        joined = np.empty(sum(counts), np.uint8)
        parts = _cut(joined, counts)
        parts[self.rank][:] = local.data
        self.gather(what, joined, counts)
        return [part.tobytes().decode() for part in parts]

    def _exchange(self, what: str, send: list[memoryview], recv: list[memoryview]) -> None:
        """Sends bytes to each other process and receives bytes from each, except none."""
        comm, others = self.comm, [(self.rank + k) % self.size for k in range(1, self.size)]
        receives = ((rank, comm.Irecv(recv[rank], rank, TAG)) for rank in others if len(recv[rank]))
        sends = ((rank, comm.Isend(send[rank], rank, TAG)) for rank in others if len(send[rank]))
        self._finish(what, itertools.chain(receives, sends), self._check_ended)

    # ---- waiting

    def leave(self, others: Sequence[Peers]) -> None:
        """Sends the last messages, also those of `others`, and waits for the last ones of all processes."""
        word = np.zeros(1, np.uint8)
        every = [(peers, rank) for peers in (self, *others) for rank in range(peers.size) if rank != peers.rank]
        sends = ((rank, peers.comm.Isend(word, rank, TAG_EXIT)) for peers, rank in every)
        receives = ((rank, peers.comm.Irecv(np.empty(1, np.uint8), rank, TAG_EXIT)) for peers, rank in every)
        self._finish("last messages", itertools.chain(sends, receives))

    def _finish(
        self,
        what: str,
        started: Iterable[tuple[int | None, Any]],
        look: Callable[[Pending], None] = lambda pending: None,
    ) -> None:
        """Starts requests and waits for them: the one place in which this process waits.

        All that interrupts it ends the job, because MPI may still write into the buffers, and others wait.
        """
        pending: Pending = []
        self.waiting.seconds = 0.0
        try:
            pending.extend(started)
            requests = [request for _, request in pending]
            if not self.mpi.Request.Testall(requests):
                self.waiting.until(
                    lambda: self.mpi.Request.Testall(requests),
                    lambda: look(pending),
                    lambda is_over: self._say(is_over, what, pending),
                )
        except BaseException as error:
            kind = "MPI" if isinstance(error, self.mpi.Exception) else type(error).__name__
            said = f": {error}" if str(error) else ""
            saved = "".join(f"; Checkpoint saves to {path!r}" for path in self.checkpoints)
            self.abort(lambda: f"{kind}: {self._silence(pending)} {self._where(what)}{said}{saved}")

    def _say(self, is_over: bool, what: str, pending: Pending) -> None:
        """Prints that this process waits, or that the wait is over."""
        if is_over:
            self.print(f"goes on: word from all ranks after {self.waiting.seconds:.0f} s {self._where(what)}")
            return
        timeout = self.waiting.timeout
        ends = "" if timeout is None else f"; after {timeout:g} s this ends the job (timeout of MPI)"
        hint = "slow, lost, or elsewhere in the program"
        self.print(f"waits: {self._silence(pending)} {self._where(what)}: {hint}{ends}")

    def _silence(self, pending: Pending) -> str:
        """Returns which ranks have not answered, and for how long."""
        silent = _silent(pending)
        names = "other ranks" if None in silent else name_ranks(silent)
        return f"no word from {names} for {self.waiting.seconds:.0f} s"

    def _where(self, what: str) -> str:
        return f"in the exchange of {what}" + ("" if self.step is None else f", step {self.step}")

    def _check_ended(self, pending: Pending) -> None:
        """Raises RuntimeError if a process that this one waits for has ended: it sends nothing more."""
        for rank in _silent(pending):
            if self.comm.Iprobe(rank, TAG_EXIT) and rank in _silent(pending):  # its other messages come first
                raise RuntimeError(f"rank {rank} has ended, and this one wants to train with it")

    # ---- ends

    def print(self, text: str) -> None:
        """Prints a line that names the rank."""
        sys.stdout.flush()
        sys.stderr.write(f"minidl: rank {self.rank} of {self.size} {text.rstrip()}\n")
        sys.stderr.flush()

    def abort(self, why: Callable[[], str]) -> None:
        """Prints the reason and ends all processes."""
        try:
            self.print(f"ends all processes: {why()}")
        finally:  # whatever signals come
            if hasattr(signal, "alarm"):
                signal.alarm(ABORT_SECONDS)
            self.comm.Abort(1)


def _cut(joined: Array, counts: list[int]) -> list[memoryview]:
    """Returns the parts of an array of uint8, of these sizes: views that are made faster than NumPy's."""
    view, ends = joined.data, itertools.accumulate(counts)
    return [view[end - count : end] for end, count in zip(ends, counts, strict=True)]


def _silent(pending: Pending) -> list[Any]:
    """Returns the ranks that have not answered; None: any other."""
    return sorted({rank for rank, request in pending if not _is_complete(request)})


def _is_complete(request: Any) -> bool:
    try:
        return bool(request.Test())
    except Exception:  # MPI's: the connection is lost
        return False
