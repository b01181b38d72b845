"""Inside an MPI job: the sides that scaling.py compares, what an exchange takes, and the bytes that are sent."""

import statistics
import time

import numpy as np
from nets import make_trainer

from minidl.distributed import MPI

PARTS = ("waiting", "scatter", "joining", "gather")  # of a step, in Counted


class Counted(MPI):
    """The processes of a job, with clocks and counts in what a step exchanges."""

    def __init__(self, comm):
        super().__init__(comm)
        self.comm = comm
        self.begin()

    def begin(self, barriers=False):
        """Counts anew. barriers: one comes before each exchange, whose time then is none of waiting for others."""
        self.barriers = barriers
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self.sent = self.exchanges = self.row_bytes = 0

    def alltoallv(self, mine, sent, everyones, received):
        self._wait()
        began = time.perf_counter()
        super().alltoallv(mine, sent, everyones, received)
        self._scattered = time.perf_counter()
        self.seconds["scatter"] += self._scattered - began
        self.sent += sum(sent) - sent[self.rank]

    def allgatherv(self, joined, counts):
        self.seconds["joining"] += time.perf_counter() - self._scattered
        self._wait()
        began = time.perf_counter()
        super().allgatherv(joined, counts)
        self.seconds["gather"] += time.perf_counter() - began
        self.sent += counts[self.rank] * (self.size - 1)
        self.row_bytes += sum(counts)
        self.exchanges += 1

    def _wait(self):
        if self.barriers:
            began = time.perf_counter()
            self.comm.Barrier()
            self.seconds["waiting"] += time.perf_counter() - began

    def milliseconds(self, steps):
        """Of each part of a step: the mean of all ranks."""
        found = np.array([self.seconds[part] for part in PARTS])
        return dict(zip(PARTS, (1000 * self.everyones(found).mean(axis=0) / steps).tolist(), strict=True))

    def counts(self, steps):
        """Of a step: the bytes that each rank sends to others, the exchanges, the bytes of all rows."""
        numbers = self.everyones(np.array([self.sent, self.exchanges, self.row_bytes])) // steps
        return {"sent": numbers[:, 0].tolist(), "exchanges": int(numbers[0, 1]), "row_bytes": int(numbers[0, 2])}

    def everyones(self, array):
        """The array of each rank."""
        found = np.empty((self.size, *array.shape), array.dtype)
        self.comm.Allgather(array, found)
        return found

    def agreed(self, number):
        """The number that the first rank has."""
        found = np.array([number], np.float64)
        self.comm.Bcast(found)
        return float(found[0])

    def first_alone(self, work):
        """The first rank works while the others sleep. (MPI's own waiting keeps a processor busy.)"""
        if self.rank == 0:
            work()
        request = self.comm.Ibarrier()
        while not request.Test():
            time.sleep(0.002)


class Side:
    """Epochs of `fit`. rounds: milliseconds a step; parts: those of its parts; counted: what a step exchanges."""

    def __init__(self, name, comm, task, trainer):
        self.name, self.comm, self.task, self.trainer = name, comm, task, trainer
        self.rounds, self.parts, self.counted = [], [], None

    @property
    def median(self):
        return statistics.median(self.rounds)

    def settle(self, seconds):
        """How many steps take about so long, as the first rank finds: at most as many as there are batches."""
        steps = 1
        for _ in range(2):  # the first one, of a single step, says little about quick steps
            steps = max(1, min(self.task.batches, int(1000 * seconds / self.run(min(steps, 5))[0])))
            if steps < 4:
                break
        return steps

    def measure(self, steps):
        found, parts = self.run(steps)
        self.rounds.append(found)
        self.parts.append(parts)


class Together(Side):
    """All ranks do each step together; barriers: with one before each exchange."""

    def __init__(self, comm, task, threads, barriers=False):
        name = named(comm.size, threads) + (", barriers" if barriers else "")
        super().__init__(name, comm, task, make_trainer(task.model(), threads, comm))
        self.barriers = barriers

    def run(self, steps):
        self.comm.comm.Barrier()
        self.comm.begin(self.barriers)
        found = milliseconds(self.trainer, self.task, steps)
        self.counted = self.comm.counts(steps)
        return self.comm.agreed(found), self.comm.milliseconds(steps)


class Apart(Side):
    """Without exchanges: the first rank alone, or each of them by itself at the same time."""

    def __init__(self, comm, task, threads, each=False):
        name = f"{comm.size} times " if each else ""
        super().__init__(name + named(1, threads), comm, task, make_trainer(task.model(), threads))
        self.each = each

    def run(self, steps):
        found = [0.0]

        def work():
            found[0] = milliseconds(self.trainer, self.task, steps)

        if not self.each:
            self.comm.first_alone(work)
            return self.comm.agreed(found[0]), {}
        self.comm.comm.Barrier()
        work()
        return float(self.comm.everyones(np.array(found)).mean()), {}


def named(ranks, threads):
    """Such as "1 rank x 2 threads"."""
    return " x ".join(f"{count} {word}{'s' * (count > 1)}" for count, word in ((ranks, "rank"), (threads, "thread")))


def milliseconds(trainer, task, steps):
    """Those of a step of one epoch, by fit's own clock: without what is compared and hashed before the first one."""
    n = steps * task.batch_size
    history = trainer.fit(task.X[:n], task.y[:n], epochs=1, batch_size=task.batch_size, verbose=0)
    return 1000 * task.batch_size / history["images_per_second"][-1]


def alternate(sides, rounds, seconds):
    """Times all sides by turns; a round of one lasts about so many seconds."""
    steps = {side: side.settle(seconds) for side in sides}
    for number in range(rounds):
        for side in sides if number % 2 == 0 else reversed(sides):
            if steps[side] >= 4:
                side.run(min(5, steps[side] // 4))  # warm caches, wake threads
            side.measure(steps[side])


def check_same_weights(sides):
    """Raises AssertionError unless the first steps of all sides lead to the same weights, to the last bit."""
    states = []
    for side in sides:
        side.run(1)
        states.append(side.trainer.model.state_dict())
    for name, expected in states[0].items():
        for state in states if sides[0].comm.rank == 0 else []:
            np.testing.assert_array_equal(state[name], expected, err_msg=name)


def neighbours(comm):
    """How many ranks share the first one's machine."""
    from mpi4py import MPI as mpi

    near = comm.comm.Split_type(mpi.COMM_TYPE_SHARED)
    (count,) = comm.broadcast([near.size])
    near.Free()
    return count
