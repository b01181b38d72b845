"""What the MPI of this machine does: messages between two ranks, and exchanges while something is computed."""

import statistics
import time

import numpy as np
from threadpoolctl import threadpool_limits

PIECES = 8  # of a computation between which MPI is called
EXCHANGE, COMPUTATION, BEHIND = "exchange", "computation", "one behind the other"
AT_ONCE, CALLING = "at once", "at once, MPI called in between"


def link(comm, size, rounds=50):
    """Latency in seconds, and bytes a second: messages of this size, both ways, between the first and the last rank.

    The fastest of some; each is written just before, as gradients are: what lies in the other's cache already comes ten
    times as fast.
    """
    found, other = {}, {0: comm.size - 1, comm.size - 1: 0}.get(comm.rank)
    for n in (1, size):
        out, into, seconds = np.empty(n, np.uint8), np.empty(n, np.uint8), []
        for number in range(rounds):
            out[:] = number
            comm.Barrier()
            began = time.perf_counter()
            if other is not None:
                comm.Sendrecv(out, other, recvbuf=into, source=other)
            seconds.append(time.perf_counter() - began)
        found[n] = min(seconds)
    return found[1], size / max(found[size] - found[1], 1e-9) if size > 1 else 0.0


class Exchange:
    """As many bytes as a step of minidl exchanges, each rank having left one node of the tree."""

    def __init__(self, comm, row_bytes):
        self.comm, self.width = comm, row_bytes // comm.size
        self.mine, self.everyones, self.joined = (np.ones(self.width * comm.size, np.uint8) for _ in range(3))

    def write(self):
        """New numbers in what is sent."""
        self.mine += 1
        self.joined += 1

    def arguments(self):
        from mpi4py import MPI

        counts = [self.width] * self.comm.size
        return ([self.mine, counts], [self.everyones, counts]), (MPI.IN_PLACE, [self.joined, counts])

    def run(self):
        scatter, gather = self.arguments()
        self.comm.Alltoallv(*scatter)
        self.comm.Allgatherv(*gather)

    def begin(self):
        """Starts both at once, which a step cannot: the best case. Returns what is to be waited for."""
        scatter, gather = self.arguments()
        return [self.comm.Ialltoallv(*scatter), self.comm.Iallgatherv(*gather)]


class Computation:
    """Products of matrices that fit a core's cache, for so many seconds, in some pieces."""

    def __init__(self, seconds):
        self.a, self.b, self.c = (np.ones((96, 96), np.float32) for _ in range(3))
        self.products = 1
        once = min(self._seconds() for _ in range(200))
        self.products = max(PIECES, round(seconds / once))

    def _seconds(self):
        began = time.perf_counter()
        self.run()
        return time.perf_counter() - began

    def run(self, between=lambda: None):
        for piece in range(PIECES):
            for _ in range(self.products * piece // PIECES, self.products * (piece + 1) // PIECES):
                np.matmul(self.a, self.b, out=self.c)
            between()


def wait(requests):
    for request in requests:
        request.Wait()


def overlap(comm, row_bytes, seconds, rounds):
    """Milliseconds, medians, of an exchange of all ranks, of a computation, of the two together in three ways."""
    exchange = Exchange(comm, row_bytes)

    def behind():
        computation.run()
        exchange.run()

    def at_once():
        requests = exchange.begin()
        computation.run()
        wait(requests)

    def calling():
        requests = exchange.begin()
        computation.run(lambda: [request.Test() for request in requests])
        wait(requests)

    with threadpool_limits(1, user_api="blas"):
        computation = Computation(seconds)
        products = np.array([computation.products])
        comm.Bcast(products)
        computation.products = int(products[0])
        ways = {
            EXCHANGE: exchange.run,
            COMPUTATION: computation.run,
            BEHIND: behind,
            AT_ONCE: at_once,
            CALLING: calling,
        }
        found = {name: [] for name in ways}
        for number in range(rounds + 1):
            for name in ways if number % 2 == 0 else reversed(ways):
                exchange.write()
                comm.Barrier()
                began = time.perf_counter()
                ways[name]()
                slowest = np.array([time.perf_counter() - began])
                everyones = np.empty(comm.size)
                comm.Allgather(slowest, everyones)
                found[name].append(1000 * everyones.max())
    return {name: statistics.median(values[1:]) for name, values in found.items()}  # the first one warmed up
