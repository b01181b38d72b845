"""Predictions of one example from several Python threads at a time, and after pauses, beside onnxruntime.

README.md in this folder describes the method.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from threading import Barrier, Thread

from measure import machine, positive, print_machine, write_json

ROOT = Path(__file__).parents[1]
NETS = ["lenet", "mlp", "resnet20"]
PAUSES = [0.001, 0.01, 0.1, 1.0]  # seconds


def make_call(side, net, threads):
    """Returns a function that predicts one example."""
    import numpy as np
    from nets import ALL_NETS

    model = ALL_NETS[net].model()
    images = np.random.default_rng(0).integers(0, 256, (1, *ALL_NETS[net].image), dtype=np.uint8)
    if side == "onnxruntime":
        from inference import export_and_open

        session = export_and_open(model, images.astype(np.float32), threads)
        return session.predict
    return lambda: model.predict(images, num_threads=threads)


def percentiles(times):
    """Returns the median and the 99th percentile of some times, in microseconds."""
    ordered = sorted(times)
    return 1e6 * statistics.median(ordered), 1e6 * ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]


def call_from(callers, call, seconds):
    """Calls from several threads at a time; returns the calls a second in all, and the percentiles of one call."""
    barrier, times = Barrier(callers + 1), [[] for _ in range(callers)]

    def work(found):
        call()
        barrier.wait()
        end = time.perf_counter() + seconds
        while (begin := time.perf_counter()) < end:
            call()
            found.append(time.perf_counter() - begin)

    threads = [Thread(target=work, args=(found,)) for found in times]
    for thread in threads:
        thread.start()
    barrier.wait()
    begin = time.perf_counter()
    for thread in threads:
        thread.join()
    passed = time.perf_counter() - begin
    return {"rate": sum(map(len, times)) / passed, "us": percentiles([t for found in times for t in found])}


def call_after(pause, call, seconds):
    """Calls after each of many pauses; returns the percentiles and the processor time of a call, in microseconds."""
    times, used = [], []
    for _ in range(max(10, min(1000, int(seconds / pause)))):
        time.sleep(pause)
        begin, cpu = time.perf_counter(), time.process_time()
        call()
        times.append(time.perf_counter() - begin)
        used.append(time.process_time() - cpu)
    return {"us": percentiles(times), "cpu": 1e6 * statistics.mean(used)}


def child(side, net, threads, callers, pause, seconds):
    """Measures one cell in this process; returns the figures."""
    call = make_call(side, net, threads)
    for _ in range(20):
        call()
    return call_after(pause, call, seconds) if pause else call_from(callers, call, seconds)


def run_child(side, cell, args):
    """Measures one cell in a new process."""
    folder = {"onnxruntime": ROOT, "now": ROOT, "pool": args.pool, "before": args.before}[side]
    path = os.pathsep.join(map(str, [folder, Path(__file__).parent]))
    done = subprocess.run(
        [sys.executable, "-P", __file__, "--child", json.dumps([side, *cell, args.seconds])],
        env=os.environ | {"PYTHONPATH": path},
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def middle(rounds):
    """Returns the medians of the figures of some rounds."""
    found = {"us": [statistics.median(column) for column in zip(*(one["us"] for one in rounds), strict=True)]}
    return found | {key: statistics.median(one[key] for one in rounds) for key in ("rate", "cpu") if key in rounds[0]}


def main():
    """Measures all cells, prints them and writes the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", nargs="+", default=NETS)
    parser.add_argument("--callers", nargs="*", type=positive, default=[1, 2, 4, 16])
    parser.add_argument("--pauses", nargs="*", type=float, default=PAUSES, help="seconds")
    parser.add_argument("--threads", nargs="+", type=positive, default=[1, 2], help="of a call")
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a cell in a round, about")
    parser.add_argument("--pool", type=Path, help="a folder with a build without OpenMP")
    parser.add_argument("--before", type=Path, help="a folder with another build, to compare")
    parser.add_argument("--without-onnxruntime", action="store_true")
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(child(*json.loads(args.child))))
        return
    others = [name for name in ("pool", "before") if getattr(args, name)]
    sides = ["now", *others, *([] if args.without_onnxruntime else ["onnxruntime"])]
    results = {"machine": machine()}
    print_machine(results["machine"])
    ways = [(callers, 0) for callers in args.callers] + [(1, pause) for pause in args.pauses]
    for net in args.nets:
        for threads in args.threads:
            for callers, pause in ways:
                rounds = {side: [] for side in sides}
                for number in range(args.rounds):
                    for side in sides[:: 1 if number % 2 else -1]:
                        rounds[side].append(run_child(side, (net, threads, callers, pause), args))
                for side, found in rounds.items():
                    title = f"{net}, {threads} threads, " + (f"pause {pause} s" if pause else f"{callers} callers")
                    results[f"{title}, {side}"] = cell = middle(found)
                    rate = f"{cell['rate']:9,.0f} calls/s" if "rate" in cell else f"{cell['cpu']:9.0f} us of a core"
                    us = "{:8.0f} us, 99 %: {:8.0f}".format(*cell["us"])
                    print(f"{title + ', ' + side:50}{rate}  {us}", flush=True)
            write_json(args.json, results)


if __name__ == "__main__":
    main()
