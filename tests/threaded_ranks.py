"""Processes that train together, played by threads: what MPI does for minidl/distributed/mpi.py, without MPI."""

import threading

import numpy as np

from minidl.distributed.communicator import Communicator


class Rank(Communicator):
    """One of them. `sent` holds the bytes that it sent to others, exchange by exchange."""

    def __init__(self, rank, given, barrier):
        self.rank, self.size, self.given, self.barrier, self.sent = rank, len(given), given, barrier, []

    def swap(self, mine, sent=0):
        """What all of them gave, when they have; nobody gives again before all have taken it."""
        self.given[self.rank] = mine
        self.barrier.wait(300)
        given = list(self.given)
        self.barrier.wait(300)
        self.sent.append(sent)
        return given

    def alltoallv(self, mine, sent, everyones, received):
        assert sum(sent) <= len(mine) and sum(received) <= len(everyones)
        ends = np.cumsum(sent)
        parts = [mine[end - n : end].copy() for n, end in zip(sent, ends, strict=True)]
        given = [parts[self.rank] for parts in self.swap(parts, sum(sent) - sent[self.rank])]
        assert [len(part) for part in given] == received
        everyones[: sum(received)] = np.concatenate(given)

    def allgatherv(self, joined, counts):
        end = np.cumsum(counts)[self.rank]
        given = self.swap(joined[end - counts[self.rank] : end].copy(), (self.size - 1) * counts[self.rank])
        assert [len(part) for part in given] == counts
        joined[: sum(counts)] = np.concatenate(given)

    def allgather_rows(self, rows):
        rows[:] = np.concatenate(self.swap(rows[self.local_slice(len(rows))].copy()))

    def allreduce_or(self, array):
        parts = [part.reshape(-1).view(np.uint8) for part in self.swap(array.copy())]
        array.reshape(-1).view(np.uint8)[:] = np.bitwise_or.reduce(parts)

    def allreduce_max(self, numbers):
        return np.max(self.swap(list(numbers)), axis=0).tolist()

    def broadcast(self, numbers):
        return self.swap(numbers)[0]


def played(ranks, process):
    """What process(comm) returns in each of so many ranks, and the bytes that they sent; raises what one raised."""
    given, barrier, found, errors = [None] * ranks, threading.Barrier(ranks), [None] * ranks, []
    teams = [Rank(rank, given, barrier) for rank in range(ranks)]

    def run(rank):
        try:
            found[rank] = process(teams[rank])
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in sorted(errors, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
        raise error
    return found, sum(sum(comm.sent) for comm in teams)
