"""A train step of minidl beside PyTorch's, scikit-learn's and JAX's: one run, in turn, medians.

Forward, loss, backward and SGD with momentum, on images in memory. README.md in this folder says what is measured and
how.
"""

import argparse
import math

from chart import draw
from measure import Side, alternate, limit_threads, machine, positive, settle, spread, tell, usable_cores, write_json
from nets import NETS, step_macs
from peak import Peak, probe_or_notice
from sides import MODES, Task, prepare

HEAD = f"{'':30}{'ms/step':>9}{'fastest':>9}{'slowest':>9}{'images/s':>11}{'GFLOP/s':>9}{'of peak':>9}{'speed':>9}"

MOST_PIXELS = 2**26  # in memory: as float32, in each layout, a quarter of a gigabyte
UNSTEADY = 1.5  # times its fastest round: a side whose median is slower was disturbed


def measure(net, batch_size, args, probe):
    """All sides of one net and batch size, in turn; returns what goes into the file."""
    print(f"\n{NETS[net].title}, batch {batch_size}", flush=True)
    steps = min(args.steps, MOST_PIXELS // (batch_size * math.prod(NETS[net].image)))
    task, peak = Task(NETS[net], batch_size, steps, args.threads), Peak(probe, args.threads)
    sides = [Side(mode, side.run) for mode, side in prepare(args.modes, task).items()]
    if not sides:
        raise SystemExit(f"--modes {' '.join(args.modes)}: none of {', '.join(MODES)}")
    settle(sides, steps, args.seconds)
    alternate(sides, args.rounds, peak.measure)
    result = {"net": net, "batch_size": batch_size, "multiply_adds_per_image": step_macs(task.model())}
    result["peak_gflops"] = peak.flops / 1e9 if peak.flops else None
    result["sides"] = {side.name: facts_of(side, result) for side in sides}
    result["steady"] = all(side.median <= UNSTEADY * min(side.rounds) for side in sides)
    add_speeds(result)
    return result


def facts_of(side, result):
    """The figures of one side, for the file and the table."""
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
    """`speed` of each side: the time of PyTorch's best mode over its own. None without PyTorch."""
    medians = {name: side["milliseconds"]["median"] for name, side in result["sides"].items()}
    theirs = [name for name in medians if name.startswith("PyTorch")]
    best = min(theirs, key=medians.get, default=None)
    result["pytorch_best"] = best
    for name, side in result["sides"].items():
        side["speed"] = medians[best] / medians[name] if best else None


def table(result):
    """Lines for people."""
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
    parser.add_argument("--nets", nargs="+", choices=NETS, default=list(NETS))
    parser.add_argument("--batch-sizes", nargs="+", type=positive, default=[1, 16, 64, 256])
    words = "minidl eager compile scikit-learn jax"
    parser.add_argument("--modes", nargs="+", default=words.split(), help=f"words of their names (default: {words})")
    parser.add_argument("--threads", type=positive, default=usable_cores())
    parser.add_argument("--rounds", type=positive, default=15)
    parser.add_argument("--steps", type=positive, default=200, help="steps in a round, at most (default 200)")
    parser.add_argument("--seconds", type=float, default=0.3, help="of a round of one side, about (default 0.3)")
    parser.add_argument("--json", metavar="FILE", help="write all rounds to this file")
    parser.add_argument("--chart", metavar="FILE", help="draw the speeds into this PNG file (needs matplotlib)")
    return parser.parse_args()


def main():
    """Measure, print a table for each net and batch size, write the files that are named."""
    args = arguments()
    limit_threads(args.threads)
    probe = probe_or_notice()
    results = {"machine": machine() | {"threads": args.threads}, "measurements": []}
    tell(results["machine"])
    for net in args.nets:
        for batch_size in args.batch_sizes:
            results["measurements"].append(measure(net, batch_size, args, probe))
            print(table(results["measurements"][-1]), flush=True)
            write_json(args.json, results)  # each time, so that a run that is stopped leaves what it has
    if args.chart:
        draw(results, args.chart)


if __name__ == "__main__":
    main()
