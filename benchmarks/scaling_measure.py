"""The measurements of scaling.py inside an MPI job; every rank makes the same calls."""

import math
import statistics

from measure import spread, usable_cores
from nets import NETS, leaves, step_macs
from scaling_model import Step, nodes, ranges, sent, slots_of
from scaling_overlap import link, overlap
from scaling_ranks import InstrumentedMPI, JointRanks, SeparateRanks, alternate, check_same_weights, count_local_ranks
from sides import Task

from minidl.layers import Dense

MAX_PIXELS = 2**26  # images in memory, per rank
UNSTEADY = 1.5  # ratio of median and fastest round above which a side counts as disturbed
NODES = (1, 2, 4, 8, 16, 32, 64)


class Job:
    """The ranks of this job, and their results."""

    def __init__(self, args):
        from mpi4py import MPI

        self.args, self.comm = args, InstrumentedMPI(MPI.COMM_WORLD)
        self.local_ranks, ranks, threads = count_local_ranks(self.comm), self.comm.size, args.threads
        if ranks == 1:
            raise SystemExit("scaling.py: expected a job of at least 2 ranks, got 1")
        self.timed = self.comm.broadcast_number(self.local_ranks * threads <= usable_cores()) == 1
        self.facts = {"MPI": " ".join(MPI.Get_library_version().splitlines()[0].split(",")[0].split())}
        self.facts |= {"ranks": ranks, "ranks on the first machine": self.local_ranks, "threads of a rank": threads}
        self.measured = {}  # by net and batch size

    def task(self, net, batch_size, batches=None):
        max_batches = max(1, MAX_PIXELS // (batch_size * math.prod(NETS[net].image)))
        return Task(NETS[net], batch_size, batches or min(self.args.steps, max_batches), self.args.threads)

    def count(self, net, batch_size):
        """Counts the bytes of one step; returns them with those of the parameters and of the formula."""
        side = JointRanks(self.comm, self.task(net, batch_size, 1), self.args.threads)
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
        """Measures all sides of one net and batch size, alternating; returns the entry for the file."""
        args, task = self.args, self.task(net, batch_size)
        together, barriers = (JointRanks(self.comm, task, args.threads, waits) for waits in (False, True))
        thread_counts = (self.local_ranks * args.threads, args.threads)
        whole, one = (SeparateRanks(self.comm, task, threads) for threads in thread_counts)
        each = SeparateRanks(self.comm, task, args.threads, each=True)
        sides = [together, whole, one, each, barriers]
        check_same_weights(sides)
        alternate(sides, args.rounds, args.seconds)
        machines = self.comm.size / self.local_ranks
        result = {
            "net": net,
            "batch_size": batch_size,
            "slots": slots_of(batch_size),
            "sides": {side.name: summarize_side(side) for side in sides},
            "ratio_to": whole.name,
            "ratio": statistics.median(b / a / machines for a, b in zip(together.rounds, whole.rounds, strict=True)),
            "step": summarize_step(together, barriers),
            "bytes": self.bytes_of(net, batch_size, together),
            "steady": all(side.median <= UNSTEADY * min(side.rounds) for side in sides),
            "one_rank": one.median,
            "each_rank": each.median,
        }
        self.measured[net, batch_size] = result
        return result

    def overlap(self, net):
        """Measures how much of an exchange a computation as long as a backward pass hides, near batch size 256."""
        sizes = [size for name, size in self.measured if name == net]
        result = self.measured[net, min(sizes, key=lambda size: abs(size - 256))]
        model = NETS[net].model()
        macs, dense = step_macs(model), [leaf for leaf in leaves(model) if isinstance(leaf, Dense)]
        backward = 1 - sum(leaf.macs for leaf in leaves(model)) / macs
        row_bytes = result["bytes"]["row_bytes"]
        seconds = self.comm.broadcast_number(backward * result["step"]["compute"] / 1000)
        rounds = max(self.args.rounds, min(5 * self.args.rounds, int(10 * self.args.seconds / seconds)))
        dense_share = sum(leaf.weight.value.nbytes for leaf in dense) / result["bytes"]["parameters"]
        return {
            "net": net,
            "batch_size": result["batch_size"],
            "row_bytes": row_bytes,
            "step": result["step"]["step"],
            "compute": result["step"]["compute"],
            "moving": result["step"]["scatter"] + result["step"]["gather"],
            "milliseconds": overlap(self.comm.comm, row_bytes, seconds, rounds),
            "dense_share_of_bytes": dense_share,
            "dense_gradient_share_of_work": sum(leaf.macs for leaf in dense) / macs,
        }

    def model(self, net):
        """Predicts images per second on 1 to 64 nodes, and compares the model of this job with its measurement.

        On more nodes, a rank is modelled as the only one on its machine; in this job, all ranks share one.
        """
        args, fixed = self.args, self.fixed(net)
        found = {"net": net, "fixed": 1000 * fixed, "latency": args.latency, "bandwidth": args.bandwidth}
        found |= {"slots": {size: slots_of(size) for size in args.batch_sizes}, "images_per_second": {}, "check": {}}
        for batch_size in args.batch_sizes:
            step, here = (self.step(net, batch_size, fixed, name) for name in ("one_rank", "each_rank"))
            speeds = {n: batch_size / step.seconds(n, args.latency, args.bandwidth) for n in NODES}
            latency, bandwidth = link(self.comm.comm, step.row_bytes // self.comm.size)
            latency, bandwidth = self.comm.broadcast_number(latency), self.comm.broadcast_number(bandwidth)
            found["images_per_second"][batch_size] = speeds
            found["check"][batch_size] = {
                "latency": latency,
                "bandwidth": bandwidth,
                "predicted": 1000 * here.seconds(self.comm.size, latency, bandwidth),
                "measured": self.measured[net, batch_size]["step"]["step"],
            }
        return found

    def fixed(self, net):
        """Estimates the seconds per step beyond the slots, from batches of one slot per thread and of 16 slots."""
        threads = self.args.threads
        tasks = [self.task(net, size) for size in (16 * min(threads, 16), 256)]
        small, large = (SeparateRanks(self.comm, task, threads) for task in tasks)
        alternate([small, large], self.args.rounds, self.args.seconds)
        more = math.ceil(16 / threads) - 1
        slot = (large.median - small.median) / more if more else 0.0
        return max(0.0, small.median - slot) / 1000

    def step(self, net, batch_size, fixed, name):
        """Returns the model's parameters for a net and batch size; `name` is the side that gives the time of a slot."""
        result, threads = self.measured[net, batch_size], self.args.threads
        counted, slots, ranks = result["bytes"], result["slots"], self.comm.size
        joined = sum(nodes(slots, ranks)) * max(ranges(counted["row_bytes"], ranks))
        slot = max(0.0, result[name] / 1000 - fixed) / math.ceil(slots / threads)
        joining = result["step"]["joining"] / 1000 / joined
        return Step(fixed, slot, slots, counted["row_bytes"], joining, counted["exchanges"], threads)


def summarize_side(side):
    """Returns the figures of one side, for the file and the table."""
    speed = 1000 * side.task.batch_size / side.median
    return {"milliseconds": spread(side.rounds), "rounds": side.rounds, "images_per_second": speed}


def summarize_step(together, barriers):
    """Returns the median milliseconds of a step of all ranks, and of its parts."""

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
