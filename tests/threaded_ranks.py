"""Ranks simulated by threads: implements minidl.distributed.communicator without MPI."""

import threading

import numpy as np

from minidl.distributed.communicator import Communicator


class Rank(Communicator):
    """The communicator of one simulated rank. `sent` holds the number of bytes sent to other ranks, by exchange."""

    def __init__(self, rank, slots, barrier):
        self.rank, self.size, self.slots, self.barrier, self.sent = rank, len(slots), slots, barrier, []
        self.marks = []  # steps

    def swap(self, data, sent=0):
        """Returns what every rank contributed. A barrier delays the next exchange until all have read it."""
        self.slots[self.rank] = data
        self.barrier.wait(300)
        slots = list(self.slots)
        self.barrier.wait(300)
        self.sent.append(sent)
        return slots

    def mark(self, step, checkpoints=None):
        self.marks.append(step)

    def alltoallv(self, data, sent, buffer, received):
        assert sum(sent) <= len(data) and sum(received) <= len(buffer)
        ends = np.cumsum(sent)
        parts = [data[end - n : end].copy() for n, end in zip(sent, ends, strict=True)]
        slots = [parts[self.rank] for parts in self.swap(parts, sum(sent) - sent[self.rank])]
        assert [len(part) for part in slots] == received
        buffer[: sum(received)] = np.concatenate(slots)

    def allgatherv(self, joined, counts):
        end = np.cumsum(counts)[self.rank]
        slots = self.swap(joined[end - counts[self.rank] : end].copy(), (self.size - 1) * counts[self.rank])
        assert [len(part) for part in slots] == counts
        joined[: sum(counts)] = np.concatenate(slots)

    def allgather_rows(self, rows):
        rows[:] = np.concatenate(self.swap(rows[self.local_slice(len(rows))].copy()))

    def allreduce_or(self, array):
        parts = [part.reshape(-1).view(np.uint8) for part in self.swap(array.copy())]
        array.reshape(-1).view(np.uint8)[:] = np.bitwise_or.reduce(parts)

    def allreduce_max(self, numbers):
        return np.max(self.swap(list(numbers)), axis=0).tolist()

    def broadcast(self, numbers):
        return self.swap(numbers)[0]


def run_ranks(ranks, process):
    """Runs process(comm) on each rank; returns the results and the total number of bytes sent. Re-raises an error."""
    slots, barrier, results, errors = [None] * ranks, threading.Barrier(ranks), [None] * ranks, []
    communicators = [Rank(rank, slots, barrier) for rank in range(ranks)]

    def run(rank):
        try:
            results[rank] = process(communicators[rank])
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
    return results, sum(sum(comm.sent) for comm in communicators)
