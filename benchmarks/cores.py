"""Training steps and predictions on 1, 2, 4, ... threads, beside PyTorch and onnxruntime with as many.

README.md in this folder describes the method.
"""

import argparse
import hashlib
import math
from functools import partial

import numpy as np
from inference import export_and_open
from measure import Side, alternate, machine, positive, print_machine, spread, usable_cores, write_json
from nets import NETS, step_macs
from peak import Peak, probe_or_notice
from sides import MinidlFit, MinidlPredict, Task, ready_sides

SIDES = ("minidl", "PyTorch", "onnxruntime")
QUICK = {"nets": ["lenet", "mlp", "cnn"], "batch_sizes": [1, 64, 256], "rounds": 3, "seconds": 0.1}
FULL = {"nets": list(NETS), "batch_sizes": [1, 32, 64, 256, 1024], "rounds": 7, "seconds": 0.3}
SLOWER = 1.05  # times as long as on fewer threads: more is a finding
MAX_STEPS = 200
MAX_PIXELS = 2**26  # of the images of all steps


def thread_counts(cores):
    """Returns 1, 2, 4, ... and the number of cores."""
    return sorted({2**k for k in range(cores.bit_length()) if 2**k <= cores} | {cores})


def with_torch_threads(make, threads):
    """Returns a side of PyTorch, whose number of threads is one setting of the process, which each run makes again."""
    import torch

    side = make()
    run = side.run

    def run_with_threads(steps):
        torch.set_num_threads(threads)
        run(steps)

    side.run = run_with_threads
    return side


def make_step(name, task):
    """Returns the side of a training step; raises ImportError if its library is missing."""
    if name == "minidl":
        return MinidlFit(task, task.threads)
    from torch_steps import TorchSteps

    return with_torch_threads(partial(TorchSteps, task, "eager"), task.threads)


def make_prediction(name, model, images, threads):
    """Returns the side of a prediction; raises ImportError if its library is missing."""
    if name == "minidl":
        return MinidlPredict(model, images, threads)
    if name == "onnxruntime":
        return export_and_open(model, images, threads)
    from torch_steps import TorchPredict

    return with_torch_threads(partial(TorchPredict, model, images / np.float32(255), threads), threads)


def time_sides(makers, result, expected, args, peaks):
    """Times all sides, each on each number of threads, in turn; returns the rounds by "side, threads"."""
    ready = ready_sides(makers, result, expected, rtol=1e-3, atol=1e-4 * float(np.abs(expected).max()))
    sides = [Side(name, side.run) for name, side in ready.items()]
    for side in sides:
        side.time(1)
        for seconds in (0.2 * args.seconds, args.seconds):  # the second time less of it is the beginning of an epoch
            side.steps = max(1, min(args.max_steps, int(1000 * seconds / side.time(side.steps))))
    alternate(sides, args.rounds, lambda: [peak.measure() for peak in peaks.values()])
    return {side.name: side.rounds for side in sides}


def digest(net, batch_size, threads):
    """Returns a hash of the weights after two steps on a number of threads, and of predictions with them."""
    task = Task(net, batch_size, 2, threads)
    side = MinidlFit(task, threads)
    side.run(2)
    model = side.trainer.model
    arrays = [*model.state_dict().values(), model.predict(task.X[:batch_size], num_threads=threads)]
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()[:16]


def measure(net, batch_size, args, probe):
    """Measures steps and predictions of one net and batch size; returns the entry for the file."""
    print(f"\n{net.title}, batch {batch_size}", flush=True)
    args.max_steps = max(1, min(MAX_STEPS, MAX_PIXELS // (batch_size * math.prod(net.image))))
    tasks = {threads: Task(net, batch_size, args.max_steps, threads) for threads in args.threads}
    model, peaks = net.model(), {threads: Peak(probe, threads) for threads in args.threads}
    images = tasks[args.threads[0]].X[:batch_size].astype(np.float32)
    macs = {"step": step_macs(model) * batch_size, "predict": sum(layer.macs for layer in model.layers) * batch_size}
    sides = [(name, n) for name in args.sides for n in args.threads]
    steps = {f"{name}, {n}": partial(make_step, name, tasks[n]) for name, n in sides if name != "onnxruntime"}
    predictions = {f"{name}, {n}": partial(make_prediction, name, model, images, n) for name, n in sides}
    loss = MinidlFit(tasks[args.threads[0]], 1).step_loss()
    rounds = {"step": time_sides(steps, lambda side: side.step_loss(), np.float64(loss), args, peaks)}
    rounds["predict"] = time_sides(predictions, lambda side: side.predict(), model.predict(images), args, peaks)
    hashes = {threads: digest(net, batch_size, threads) for threads in args.threads}
    entry = {"net": net.title, "batch_size": batch_size, "hashes": hashes}
    for kind, found in rounds.items():
        entry[kind] = {}
        for name, times in found.items():
            cell = entry[kind][name] = spread(times)
            flops = peaks[int(name.partition(", ")[2])].flops
            cell["share_of_peak"] = 2e3 * macs[kind] / cell["median"] / flops if flops else None
    print_entry(entry, args)
    return entry


def print_entry(entry, args):
    """Prints the table of a net and batch size: milliseconds by number of threads, and minidl's share of the peak."""
    print(f"{'':24}" + "".join(f"{threads:>10}" for threads in args.threads) + "  threads")
    for kind in ("step", "predict"):
        for name in args.sides:
            cells = [entry[kind].get(f"{name}, {threads}") for threads in args.threads]
            if all(cells):
                print(f"{kind + ', ' + name:24}" + "".join(f"{cell['median']:10.3f}" for cell in cells) + "  ms")
        shares = [entry[kind][f"minidl, {threads}"]["share_of_peak"] for threads in args.threads]
        if all(shares):
            print(f"{'':24}" + "".join(f"{share:10.0%}" for share in shares) + "  of the peak")
    print(f"bits: {', '.join(sorted(set(entry['hashes'].values())))}", flush=True)


def findings(entries, threads):
    """Returns the cells of minidl that take longer than on fewer threads, and batches with more than one hash."""
    found = []
    for entry in entries:
        about = f"{entry['net']}, batch {entry['batch_size']}"
        if len(set(entry["hashes"].values())) > 1:
            found.append(f"{about}: the bits depend on the number of threads")
        for kind in ("step", "predict"):
            for k, more in enumerate(threads[1:], 1):
                fewer = min(threads[:k], key=lambda n: entry[kind][f"minidl, {n}"]["median"])
                ratio = entry[kind][f"minidl, {more}"]["median"] / entry[kind][f"minidl, {fewer}"]["median"]
                if ratio > SLOWER:
                    found.append(f"{about}: {kind} takes {ratio:.2f} times as long on {more} threads as on {fewer}")
    return found


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few nets and rounds: two minutes on two cores")
    parser.add_argument("--nets", nargs="+", choices=NETS)
    parser.add_argument("--batch-sizes", nargs="+", type=positive)
    threads, words = thread_counts(usable_cores()), "ascending (default: 1, 2, 4, ... up to the cores)"
    parser.add_argument("--threads", nargs="+", type=positive, default=threads, help=words)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--rounds", type=positive)
    parser.add_argument("--seconds", type=float, help="seconds per round of one side")
    parser.add_argument("--json", metavar="FILE", help="write all rounds to this file")
    args = parser.parse_args()
    for name, value in (QUICK if args.quick else FULL).items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    return args


def main():
    """Measures, prints a table for each net and batch size, and a verdict; writes the JSON file."""
    args, probe = arguments(), probe_or_notice()
    results = {"machine": machine() | {"threads": args.threads}, "measurements": []}
    print_machine(results["machine"])
    for net in args.nets:
        for batch_size in args.batch_sizes:
            results["measurements"].append(measure(NETS[net], batch_size, args, probe))
            write_json(args.json, results)  # after each one: an interrupted run keeps its results
    found = findings(results["measurements"], args.threads)
    verdict = "no cell in which more threads are slower by over 5 %, one hash for each batch"
    print("\n" + ("\n".join(found) or verdict))


if __name__ == "__main__":
    main()
