"""Training step benchmark: minidl, PyTorch, scikit-learn and JAX, alternating within one run.

A step is forward, loss, backward and SGD with momentum, on images in memory. README.md in this folder describes the
method.
"""

import argparse
import math

from chart import draw
from measure import (
    Side,
    alternate,
    limit_threads,
    machine,
    positive,
    print_machine,
    settle,
    spread,
    usable_cores,
    write_json,
)
from nets import ALL_NETS, NETS, step_macs
from peak import Peak, probe_or_notice
from sides import MODES, Task, prepare

HEAD = f"{'':30}{'ms/step':>9}{'fastest':>9}{'slowest':>9}{'images/s':>11}{'GFLOP/s':>9}{'of peak':>9}{'speed':>9}"

MAX_PIXELS = 2**26  # images in memory: a quarter of a gigabyte as float32, in each layout
UNSTEADY = 1.5  # ratio of median and fastest round above which a side counts as disturbed


def measure(net, batch_size, args, probe):
    """Measures all sides of one net and batch size, alternating; returns the entry for the file."""
    print(f"\n{ALL_NETS[net].title}, batch {batch_size}", flush=True)
    steps = min(args.steps, MAX_PIXELS // (batch_size * math.prod(ALL_NETS[net].image)))
    task, peak = Task(ALL_NETS[net], batch_size, steps, args.threads), Peak(probe, args.threads)
    sides = [Side(mode, side.run) for mode, side in prepare(args.modes, task).items()]
    if not sides:
        raise SystemExit(f"--modes {' '.join(args.modes)}: none of {', '.join(MODES)}")
    settle(sides, steps, args.seconds)
    alternate(sides, args.rounds, peak.measure)
    result = {"net": net, "batch_size": batch_size, "multiply_adds_per_image": step_macs(task.model())}
    result["peak_gflops"] = peak.flops / 1e9 if peak.flops else None
    result["sides"] = {side.name: summarize_side(side, result) for side in sides}
    result["steady"] = all(side.median <= UNSTEADY * min(side.rounds) for side in sides)
    add_speeds(result)
    return result


def summarize_side(side, result):
    """Returns the figures of one side, for the file and the table."""
    batch_size, seconds = result["batch_size"], side.median / 1000
    gflops = 2e-9 * result["multiply_adds_per_image"] * batch_size / seconds
    return {
        "milliseconds": spread(side.rounds),
        "rounds": side.rounds,
        "steps_a_round": side.steps,
        "images_per_second": batch_size / seconds,
        "gflops": gflops,
        "share_of_peak": gflops / result["peak_gflops"] if result["peak_gflops"] else None,
    }


def add_speeds(result):
    """Adds the speed of each side, the time of PyTorch's best mode divided by its own; None without PyTorch."""
    medians = {name: side["milliseconds"]["median"] for name, side in result["sides"].items()}
    torch_modes = [name for name in medians if name.startswith("PyTorch")]
    best = min(torch_modes, key=medians.get, default=None)
    result["pytorch_best"] = best
    for name, side in result["sides"].items():
        side["speed"] = medians[best] / medians[name] if best else None


def format_table(result):
    """Returns the printed table."""
    lines = [HEAD]
    for name, side in result["sides"].items():
        ms = side["milliseconds"]
        share = "-" if side["share_of_peak"] is None else f"{side['share_of_peak']:.0%}"
        speed = "-" if side["speed"] is None else f"{side['speed']:.2f}x"
        lines.append(
            f"{name:30}{ms['median']:9.3f}{ms['smallest']:9.3f}{ms['largest']:9.3f}{side['images_per_second']:11,.0f}"
            f"{side['gflops']:9.1f}{share:>9}{speed:>9}"
        )
    if not result["steady"]:
        lines.append(f"unsteady: a median above {UNSTEADY} times the fastest round; do not trust these speeds")
    return "\n".join(lines)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", nargs="+", choices=ALL_NETS, default=list(NETS))
    parser.add_argument("--batch-sizes", nargs="+", type=positive, default=[1, 16, 64, 256])
    words = "minidl eager compile scikit-learn jax"
    parser.add_argument("--modes", nargs="+", default=words.split(), help=f"words of mode names (default: {words})")
    parser.add_argument("--threads", type=positive, default=usable_cores())
    parser.add_argument("--rounds", type=positive, default=15)
    parser.add_argument("--steps", type=positive, default=200, help="maximum number of steps per round (default 200)")
    parser.add_argument("--seconds", type=float, default=0.3, help="seconds per round of one side (default 0.3)")
    parser.add_argument("--json", metavar="FILE", help="write all rounds to this file")
    parser.add_argument("--chart", metavar="FILE", help="draw the speeds into this PNG file (needs matplotlib)")
    return parser.parse_args()


def main():
    """Measures, prints a table for each net and batch size, and writes JSON file and chart."""
    args = arguments()
    limit_threads(args.threads)
    probe = probe_or_notice()
    results = {"machine": machine() | {"threads": args.threads}, "measurements": []}
    print_machine(results["machine"])
    for net in args.nets:
        for batch_size in args.batch_sizes:
            results["measurements"].append(measure(net, batch_size, args, probe))
            print(format_table(results["measurements"][-1]), flush=True)
            write_json(args.json, results)  # after each one: an interrupted run keeps its results
    if args.chart:
        draw(results, args.chart)


if __name__ == "__main__":
    main()
