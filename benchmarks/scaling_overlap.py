"""MPI microbenchmarks: latency and bandwidth between two ranks, and overlap of an exchange with a computation."""

import statistics
import time

import numpy as np
from threadpoolctl import threadpool_limits

PIECES = 8  # pieces of a computation; MPI is polled between them
EXCHANGE, COMPUTATION, IN_SEQUENCE = "exchange", "computation", "one after the other"
OVERLAPPED, OVERLAPPED_POLLING = "overlapped", "overlapped, polling MPI"


def link(comm, size, rounds=50):
    """Returns latency in seconds and bandwidth in bytes/s, for messages of `size` bytes between first and last rank.

    Takes the fastest of `rounds` exchanges, both ways. Each message is written just before, as gradients are: one that
    is already in the receiver's cache would arrive ten times as fast.
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
    """An exchange of as many bytes as in a training step, with one tree node per rank."""

    def __init__(self, comm, row_bytes):
        self.comm, self.width = comm, row_bytes // comm.size
        self.mine, self.everyones, self.joined = (np.ones(self.width * comm.size, np.uint8) for _ in range(3))

    def write(self):
        """Writes new numbers into the send buffers."""
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
        """Starts both calls at once: the best case, which a step cannot reach. Returns the requests."""
        scatter, gather = self.arguments()
        return [self.comm.Ialltoallv(*scatter), self.comm.Iallgatherv(*gather)]


class Computation:
    """Matrix products that fit into a core's cache, taking `seconds` seconds in PIECES pieces."""

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
    """Returns the median milliseconds of an exchange, of a computation, and of both in sequence and overlapped."""
    exchange = Exchange(comm, row_bytes)

    def in_sequence():
        computation.run()
        exchange.run()

    def overlapped():
        requests = exchange.begin()
        computation.run()
        wait(requests)

    def overlapped_polling():
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
            IN_SEQUENCE: in_sequence,
            OVERLAPPED: overlapped,
            OVERLAPPED_POLLING: overlapped_polling,
        }
        found = {name: [] for name in ways}
        for number in range(rounds + 1):
            for name in ways if number % 2 == 0 else reversed(ways):
                exchange.write()
                comm.Barrier()
                began = time.perf_counter()
                ways[name]()
                elapsed = np.array([time.perf_counter() - began])
                seconds_by_rank = np.empty(comm.size)
                comm.Allgather(elapsed, seconds_by_rank)
                found[name].append(1000 * seconds_by_rank.max())
    return {name: statistics.median(values[1:]) for name, values in found.items()}  # without the warm-up
