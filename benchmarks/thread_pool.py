"""Compares minidl's own thread pool with OpenMP, on a quiet machine and beside busy processes.

The pool is what a build without OpenMP uses; it is built into build/thread-pool. OpenMP is the ordinary build. Each
round starts one process per build, condition and task, in alternating order. README.md describes the method.
"""

import argparse
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from conditions import busy_neighbours
from measure import machine, positive, print_machine, usable_cores, write_json

ROOT = Path(__file__).parents[1]
COPY = ROOT / "build" / "thread-pool"
SOURCES = ("minidl", "minidl_c", "build_tools", "setup.py", "pyproject.toml", "README.md", "LICENSE")
COMPILED = shutil.ignore_patterns("*.so", "__pycache__", "v[234]", "base")
TASKS = ("train_batch", "predict", "fit")


def build_copy():
    """Builds minidl without OpenMP, in a copy; later calls compile only what has changed. Returns its folder."""
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, COPY / name, dirs_exist_ok=True, ignore=COMPILED)
        else:
            shutil.copy2(ROOT / name, COPY / name)
    for path in (ROOT / "build").glob("cython-*"):  # what Cython has translated
        shutil.copytree(path, COPY / "build" / path.name, dirs_exist_ok=True, ignore=COMPILED)
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    variables = os.environ | {"MINIDL_NO_OPENMP": "1"}
    subprocess.run(command, cwd=COPY, env=variables, stdout=subprocess.DEVNULL, check=True)
    return COPY


def peer_call(net, task, batch, threads):
    """Returns a call of the library that minidl is compared with: a step of PyTorch, or a prediction of onnxruntime."""
    import numpy as np
    from inference import export_and_open
    from nets import NETS
    from sides import Task

    work = Task(NETS[net], batch, 1, threads)
    if task == "predict":
        return export_and_open(work.model(), work.X.astype(np.float32), threads).predict
    from torch_steps import TorchSteps

    side = TorchSteps(work, "eager")
    return lambda: side.run(1)


def minidl_call(net, task, batch, threads, steps):
    from nets import NETS
    from sides import Task

    from minidl import Trainer
    from minidl.optimizers import SGD

    work = Task(NETS[net], batch, steps, threads)
    model = work.model()
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.01), num_threads=threads)
    return {
        "train_batch": lambda: trainer.train_batch(work.X, work.y),
        "predict": lambda: model.predict(work.X, num_threads=threads),
        "fit": lambda: trainer.fit(work.X, work.y, batch_size=batch, verbose=0),
    }[task]


def time_task(side, net, task, batch, threads, seconds):
    """Returns the milliseconds of single calls (of steps, in `fit`) for `seconds` seconds, after a warm-up."""
    steps = 20 if task == "fit" and side != "peer" else 1
    call = peer_call(net, task, batch, threads) if side == "peer" else minidl_call(net, task, batch, threads, steps)
    for _ in range(5):
        call()
    times, end = [], time.perf_counter() + seconds
    while len(times) < 2 or time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - begin) / steps)
    return times


def run_child(build, net, task, batch, args):
    """Times a task in a new process that uses one of the builds."""
    path = os.pathsep.join(map(str, [args.pool if build == "pool" else ROOT, Path(__file__).parent]))
    settings = json.dumps([build, net, task, batch, args.threads, args.seconds])
    done = subprocess.run(
        [sys.executable, "-P", __file__, "--child", settings],
        env=os.environ | {"PYTHONPATH": path},
        cwd=args.pool,
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def compare(net, task, batch, busy, args):
    """Returns mean, median and the 95th percentile of all sides, beside `busy` other processes."""
    times = {"OpenMP": [], "pool": []} | ({"peer": []} if args.peers else {})
    for number in range(args.rounds):
        for build in times if number % 2 == 0 else reversed(times):
            with busy_neighbours(busy):
                times[build] += run_child(build, net, task, batch, args)
    return {
        build: {
            "mean": statistics.fmean(found),
            "median": statistics.median(found),
            "95 %": statistics.quantiles(found, n=20)[-1],
        }
        for build, found in times.items()
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", nargs="+", default=["mlp", "lenet", "vgg"])
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--busy", nargs="+", type=int, default=[0, 1, 2], help="numbers of busy processes")
    parser.add_argument("--threads", type=positive, default=usable_cores())
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each process")
    parser.add_argument("--json", help="file for the results")
    parser.add_argument("--pool", type=Path, help="folder of a build without OpenMP (default: makes one)")
    parser.add_argument("--batch-sizes", nargs="+", type=positive, default=[64])
    parser.add_argument("--peers", action="store_true", help="also a step of PyTorch, and a prediction of onnxruntime")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(time_task(*json.loads(args.child))))
        return
    args.pool = args.pool or build_copy()
    results = {"machine": machine() | {"threads": args.threads}}
    print_machine(results["machine"])
    sides = "OpenMP / pool" + (" / PyTorch or onnxruntime" if args.peers else "")
    print(f"\nmilliseconds per step, {sides}\n\n{'':34}{'mean':>28}{'median':>28}{'95 %':>28}")
    for busy, net, task, batch in itertools.product(args.busy, args.nets, args.tasks, args.batch_sizes):
        name = f"{busy} busy, {net}, {task}, {batch}"
        results[name] = found = compare(net, task, batch, busy, args)
        cells = (" / ".join(f"{side[k]:.3f}" for side in found.values()) for k in ("mean", "median", "95 %"))
        print(f"{name:34}{''.join(f'{cell:>28}' for cell in cells)}", flush=True)
        write_json(args.json, results)


if __name__ == "__main__":
    main()
