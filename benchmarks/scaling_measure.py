"""What scaling.py measures inside an MPI job, rank by rank the same calls."""

import math
import statistics

from measure import spread, usable_cores
from nets import NETS, leaves, step_macs
from scaling_model import Step, nodes, ranges, sent, slots_of
from scaling_overlap import link, overlap
from scaling_ranks import Apart, Counted, Together, alternate, check_same_weights, neighbours
from sides import Task

from minidl.layers import Dense

MOST_PIXELS = 2**26  # of images in memory, for each rank
UNSTEADY = 1.5  # times its fastest round: a side whose median is slower was disturbed
NODES = (1, 2, 4, 8, 16, 32, 64)


class Job:
    """The ranks of this job, and what they have found."""

    def __init__(self, args):
        from mpi4py import MPI

        self.args, self.comm = args, Counted(MPI.COMM_WORLD)
        self.near, ranks, threads = neighbours(self.comm), self.comm.size, args.threads
        if ranks == 1:
            raise SystemExit("scaling.py: expected a job of at least 2 ranks, got 1")
        self.timed = self.comm.agreed(self.near * threads <= usable_cores()) == 1
        self.facts = {"MPI": " ".join(MPI.Get_library_version().splitlines()[0].split(",")[0].split())}
        self.facts |= {"ranks": ranks, "ranks on the first machine": self.near, "threads of a rank": threads}
        self.measured = {}  # by net and batch size

    def task(self, net, batch_size, batches=None):
        most = max(1, MOST_PIXELS // (batch_size * math.prod(NETS[net].image)))
        return Task(NETS[net], batch_size, batches or min(self.args.steps, most), self.args.threads)

    def count(self, net, batch_size):
        """The bytes of a step, counted in one, beside those of the parameters and of the formula."""
        side = Together(self.comm, self.task(net, batch_size, 1), self.args.threads)
        side.run(1)
        return self.bytes_of(net, batch_size, side)

    def bytes_of(self, net, batch_size, side):
        slots, counted = slots_of(batch_size), side.counted
        return {
            "net": net,
            "batch_size": batch_size,
            "ranks": self.comm.size,
            "parameters": 4 * sum(param.value.size for param in side.trainer.model.params.values()),  # float32
            "nodes": nodes(slots, self.comm.size),
            **counted,
            "formula": sent(counted["row_bytes"], slots, self.comm.size),
        }

    def measure(self, net, batch_size):
        """All sides of one net and batch size, in turn; returns what goes into the file."""
        args, task = self.args, self.task(net, batch_size)
        together, barriers = (Together(self.comm, task, args.threads, waits) for waits in (False, True))
        whole, one = (Apart(self.comm, task, threads) for threads in (self.near * args.threads, args.threads))
        each = Apart(self.comm, task, args.threads, each=True)
        sides = [together, whole, one, each, barriers]
        check_same_weights(sides)
        alternate(sides, args.rounds, args.seconds)
        machines = self.comm.size / self.near
        result = {
            "net": net,
            "batch_size": batch_size,
            "slots": slots_of(batch_size),
            "sides": {side.name: facts_of(side) for side in sides},
            "ratio_to": whole.name,
            "ratio": statistics.median(b / a / machines for a, b in zip(together.rounds, whole.rounds, strict=True)),
            "step": step_of(together, barriers),
            "bytes": self.bytes_of(net, batch_size, together),
            "steady": all(side.median <= UNSTEADY * min(side.rounds) for side in sides),
            "one_rank": one.median,
            "each_rank": each.median,
        }
        self.measured[net, batch_size] = result
        return result

    def overlap(self, net):
        """An exchange behind a computation as long as a backward pass, at the batch size next to 256."""
        sizes = [size for name, size in self.measured if name == net]
        result = self.measured[net, min(sizes, key=lambda size: abs(size - 256))]
        model = NETS[net].model()
        macs, dense = step_macs(model), [leaf for leaf in leaves(model) if isinstance(leaf, Dense)]
        backward = 1 - sum(leaf.macs for leaf in leaves(model)) / macs
        row_bytes = result["bytes"]["row_bytes"]
        seconds = self.comm.agreed(backward * result["step"]["compute"] / 1000)
        rounds = max(self.args.rounds, min(5 * self.args.rounds, int(10 * self.args.seconds / seconds)))
        behind = sum(leaf.weight.value.nbytes for leaf in dense) / result["bytes"]["parameters"]
        return {
            "net": net,
            "batch_size": result["batch_size"],
            "row_bytes": row_bytes,
            "step": result["step"]["step"],
            "compute": result["step"]["compute"],
            "moving": result["step"]["scatter"] + result["step"]["gather"],
            "milliseconds": overlap(self.comm.comm, row_bytes, seconds, rounds),
            "dense_share_of_bytes": behind,
            "dense_gradient_share_of_work": sum(leaf.macs for leaf in dense) / macs,
        }

    def model(self, net):
        """Images a second of 1 to 64 nodes, not measured; and the model of this job beside what was measured.

        A rank that has its machine to itself is taken as one that works alone; here, all work at the same time.
        """
        args, fixed = self.args, self.fixed(net)
        found = {"net": net, "fixed": 1000 * fixed, "latency": args.latency, "bandwidth": args.bandwidth}
        found |= {"slots": {size: slots_of(size) for size in args.batch_sizes}, "images_per_second": {}, "check": {}}
        for batch_size in args.batch_sizes:
            step, here = (self.step(net, batch_size, fixed, name) for name in ("one_rank", "each_rank"))
            speeds = {n: batch_size / step.seconds(n, args.latency, args.bandwidth) for n in NODES}
            latency, bandwidth = link(self.comm.comm, step.row_bytes // self.comm.size)
            latency, bandwidth = self.comm.agreed(latency), self.comm.agreed(bandwidth)
            found["images_per_second"][batch_size] = speeds
            found["check"][batch_size] = {
                "latency": latency,
                "bandwidth": bandwidth,
                "predicted": 1000 * here.seconds(self.comm.size, latency, bandwidth),
                "measured": self.measured[net, batch_size]["step"]["step"],
            }
        return found

    def fixed(self, net):
        """Seconds of a step of one rank beyond its slots: from batches of a slot for each thread, and of 16 slots."""
        threads = self.args.threads
        small, large = (Apart(self.comm, self.task(net, size), threads) for size in (16 * min(threads, 16), 256))
        alternate([small, large], self.args.rounds, self.args.seconds)
        more = math.ceil(16 / threads) - 1
        slot = (large.median - small.median) / more if more else 0.0
        return max(0.0, small.median - slot) / 1000

    def step(self, net, batch_size, fixed, name):
        """What the model takes from the measurements, the slots from those of that name."""
        result, threads = self.measured[net, batch_size], self.args.threads
        counted, slots, ranks = result["bytes"], result["slots"], self.comm.size
        joined = sum(nodes(slots, ranks)) * max(ranges(counted["row_bytes"], ranks))
        slot = max(0.0, result[name] / 1000 - fixed) / math.ceil(slots / threads)
        joining = result["step"]["joining"] / 1000 / joined
        return Step(fixed, slot, slots, counted["row_bytes"], joining, counted["exchanges"], threads)


def facts_of(side):
    """The figures of one side, for the file and the table."""
    speed = 1000 * side.task.batch_size / side.median
    return {"milliseconds": spread(side.rounds), "rounds": side.rounds, "images_per_second": speed}


def step_of(together, barriers):
    """Milliseconds of a step of all ranks, and of its parts: medians."""

    def middle(side, *parts):
        return statistics.median(sum(found[part] for part in parts) for found in side.parts)

    exchange = middle(together, "scatter", "gather")
    return {
        "step": together.median,
        "compute": together.median - exchange,
        "exchange": exchange,
        "joining": middle(together, "joining"),
        "waiting": middle(barriers, "waiting"),
        "scatter": middle(barriers, "scatter"),
        "gather": middle(barriers, "gather"),
    }
