"""The sides that scaling.py compares inside an MPI job, and a communicator that times exchanges and counts bytes."""

import statistics
import time

import numpy as np
from nets import make_trainer

from minidl.distributed import MPI

PARTS = ("waiting", "scatter", "joining", "gather")  # of a step, in InstrumentedMPI


class InstrumentedMPI(MPI):
    """A communicator that times the exchanges of a step and counts their bytes."""

    def __init__(self, comm):
        super().__init__(comm)
        self.comm = comm
        self.begin()

    def begin(self, barriers=False):
        """Resets clocks and counts. barriers: adds one before each exchange, so that waiting is timed separately."""
        self.barriers = barriers
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self.sent = self.exchanges = self.row_bytes = 0

    def alltoallv(self, mine, sent, everyones, received):
        self._barrier()
        began = time.perf_counter()
        super().alltoallv(mine, sent, everyones, received)
        self._scattered = time.perf_counter()
        self.seconds["scatter"] += self._scattered - began
        self.sent += sum(sent) - sent[self.rank]

    def allgatherv(self, joined, counts):
        self.seconds["joining"] += time.perf_counter() - self._scattered
        self._barrier()
        began = time.perf_counter()
        super().allgatherv(joined, counts)
        self.seconds["gather"] += time.perf_counter() - began
        self.sent += counts[self.rank] * (self.size - 1)
        self.row_bytes += sum(counts)
        self.exchanges += 1

    def _barrier(self):
        if self.barriers:
            began = time.perf_counter()
            self.comm.Barrier()
            self.seconds["waiting"] += time.perf_counter() - began

    def milliseconds(self, steps):
        """Returns the milliseconds of each part of a step, averaged over the ranks."""
        found = np.array([self.seconds[part] for part in PARTS])
        return dict(zip(PARTS, (1000 * self.allgather_array(found).mean(axis=0) / steps).tolist(), strict=True))

    def counts(self, steps):
        """Returns, per step, the bytes that each rank sends, the number of exchanges and the bytes of all rows."""
        numbers = self.allgather_array(np.array([self.sent, self.exchanges, self.row_bytes])) // steps
        return {"sent": numbers[:, 0].tolist(), "exchanges": int(numbers[0, 1]), "row_bytes": int(numbers[0, 2])}

    def allgather_array(self, array):
        """Returns the arrays of all ranks, stacked."""
        found = np.empty((self.size, *array.shape), array.dtype)
        self.comm.Allgather(array, found)
        return found

    def broadcast_number(self, number):
        """Returns rank 0's number on all ranks."""
        found = np.array([number], np.float64)
        self.comm.Bcast(found)
        return float(found[0])

    def run_on_first(self, work):
        """Calls `work` on rank 0 while the others sleep, since waiting inside MPI keeps a core busy."""
        if self.rank == 0:
            work()
        request = self.comm.Ibarrier()
        while not request.Test():
            time.sleep(0.002)


class Side:
    """Epochs of `fit`. rounds: milliseconds per step; parts: those of its parts; counted: bytes and exchanges."""

    def __init__(self, name, comm, task, trainer):
        self.name, self.comm, self.task, self.trainer = name, comm, task, trainer
        self.rounds, self.parts, self.counted = [], [], None

    @property
    def median(self):
        return statistics.median(self.rounds)

    def settle(self, seconds):
        """Returns the number of steps that take about `seconds` on rank 0, at most the number of batches."""
        steps = 1
        for _ in range(2):  # the first estimate, from a single step, is poor for quick steps
            steps = max(1, min(self.task.batches, int(1000 * seconds / self.run(min(steps, 5))[0])))
            if steps < 4:
                break
        return steps

    def measure(self, steps):
        found, parts = self.run(steps)
        self.rounds.append(found)
        self.parts.append(parts)


class JointRanks(Side):
    """All ranks compute each step together. barriers: adds one before each exchange."""

    def __init__(self, comm, task, threads, barriers=False):
        name = name_side(comm.size, threads) + (", barriers" if barriers else "")
        super().__init__(name, comm, task, make_trainer(task.model(), threads, comm))
        self.barriers = barriers

    def run(self, steps):
        self.comm.comm.Barrier()
        self.comm.begin(self.barriers)
        found = time_step(self.trainer, self.task, steps)
        self.counted = self.comm.counts(steps)
        return self.comm.broadcast_number(found), self.comm.milliseconds(steps)


class SeparateRanks(Side):
    """Steps without exchanges: on rank 0 alone, or with `each` on every rank independently at the same time."""

    def __init__(self, comm, task, threads, each=False):
        name = f"{comm.size} times " if each else ""
        super().__init__(name + name_side(1, threads), comm, task, make_trainer(task.model(), threads))
        self.each = each

    def run(self, steps):
        found = [0.0]

        def work():
            found[0] = time_step(self.trainer, self.task, steps)

        if not self.each:
            self.comm.run_on_first(work)
            return self.comm.broadcast_number(found[0]), {}
        self.comm.comm.Barrier()
        work()
        return float(self.comm.allgather_array(np.array(found)).mean()), {}


def name_side(ranks, threads):
    """Returns the name of a side, such as "1 rank x 2 threads"."""
    return " x ".join(f"{count} {word}{'s' * (count > 1)}" for count, word in ((ranks, "rank"), (threads, "thread")))


def time_step(trainer, task, steps):
    """Returns milliseconds per step by fit's own clock, which excludes the checks before the first step."""
    n = steps * task.batch_size
    history = trainer.fit(task.X[:n], task.y[:n], epochs=1, batch_size=task.batch_size, verbose=0)
    return 1000 * task.batch_size / history["images_per_second"][-1]


def alternate(sides, rounds, seconds):
    """Times all sides, alternating; a round of one side lasts about `seconds` seconds."""
    steps = {side: side.settle(seconds) for side in sides}
    for number in range(rounds):
        for side in sides if number % 2 == 0 else reversed(sides):
            if steps[side] >= 4:
                side.run(min(5, steps[side] // 4))  # warms caches, wakes threads
            side.measure(steps[side])


def check_same_weights(sides):
    """Raises AssertionError unless all sides have the same weights after one step, bit for bit."""
    states = []
    for side in sides:
        side.run(1)
        states.append(side.trainer.model.state_dict())
    for name, expected in states[0].items():
        for state in states if sides[0].comm.rank == 0 else []:
            np.testing.assert_array_equal(state[name], expected, err_msg=name)


def count_local_ranks(comm):
    """Returns the number of ranks on the machine of rank 0."""
    from mpi4py import MPI as mpi

    local = comm.comm.Split_type(mpi.COMM_TYPE_SHARED)
    (count,) = comm.broadcast([local.size])
    local.Free()
    return count
