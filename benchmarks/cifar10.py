"""Trains CIFAR-10 by the recipes of examples/cifar10_fast.py, beside PyTorch and ResNet-18: accuracies and minutes.

    python benchmarks/cifar10.py --results build/bench/cifar10.jsonl         # all recipes, sides and seeds: hours
    python benchmarks/cifar10.py --results ... FOLDER --minutes 2 --sides minidl --without flip muon
    python benchmarks/cifar10.py --results ... --steps                       # steps and stages, without training

Each run is a process and a line of the results: a program that was stopped goes on. README.md in this folder describes
the method.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from statistics import fmean, stdev

from cifar10_parts import PARTS, fast, learn_minidl, load, recipe_of
from measure import positive, usable_cores

SIDES = ["minidl", "torch", "resnet18"]
MODES = ["eager", "eager channels_last", "compile", "compile channels_last"]
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
ROW = f"{'':24}{'plain':>16}{'flip':>16}{'flip+shift':>16}{'minutes':>9}{'CPU min':>9}{'MB':>7}{'seeds':>7}"


# ---- one run


def run_one(args, run):
    """Makes one run in this process; prints what its line of the results has as JSON."""
    recipe, threads = recipe_of(args, run["minutes"]), args.threads
    data, seed = load(args), run["seed"]
    if run["side"] == "minidl":
        found = learn_minidl(data, recipe, seed, threads, run["part"])
    else:
        import cifar10_torch as other

        if run["side"] == "torch":
            found = other.learn_torch(data, recipe, seed, threads, run["mode"])
        else:
            found = other.learn_resnet18(data, seed, threads, run["mode"], run["for"])
    print(json.dumps(found))


def choose_mode(args, run):
    """Prints the milliseconds of a step of PyTorch in each mode as JSON."""
    import cifar10_torch as other

    data = load(args)
    if run["side"] == "torch":
        recipe = recipe_of(args, run["minutes"])
        model, trainer, *_ = other.prepared(data, recipe, 0, args.threads)
        found = other.measure_modes(
            lambda mode: other.start_example(model, trainer, mode), args.modes, recipe.batch_size
        )
    else:
        other.torch.set_num_threads(args.threads)
        found = other.measure_modes(lambda mode: other.start_resnet18(data[4], mode), args.modes, other.BATCH)
    if not found:
        raise SystemExit(f"none of {', '.join(args.modes)} works")
    print(json.dumps({"modes": found}))


# ---- all runs


class Runs:
    """The lines of the results file; `variant` is what the runs of this program have in common."""

    def __init__(self, args):
        self.args, self.path = args, args.results
        self.variant = {"threads": args.threads, "images": args.images, "epochs": args.epochs, "set": args.set}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.rows = (
            [json.loads(line) for line in self.path.read_text("utf-8").splitlines()] if self.path.exists() else []
        )

    def find(self, **key):
        """Returns the line of a run, or None."""
        key = key | self.variant
        return next((row for row in self.rows if key.items() <= row.items()), None)

    def make(self, key, details):
        """Returns the line of a run, which a process makes unless it is there; None, with a notice, if it fails."""
        row = self.find(**key)
        if row is not None:
            return row
        print(", ".join(f"{name} {value}" for name, value in key.items() if value is not None), flush=True)
        command = [sys.executable, *sys.argv, "--one", json.dumps(key | details)]
        environment = os.environ | dict.fromkeys(THREADS, str(self.args.threads))
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"  failed: {(done.stderr.strip() or 'killed').splitlines()[-1]}", file=sys.stderr)
            return None
        *notices, found = done.stdout.splitlines()
        print("".join(f"{line}\n" for line in notices), end="", flush=True)
        row = key | self.variant | details | json.loads(found)
        self.rows.append(row)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        return row


def run_all(args):
    """Makes all runs; a seed's sides follow one another, so that partial results can be compared."""
    runs = Runs(args)
    for minutes in args.minutes:
        for seed in range(args.seeds):
            for side in args.sides:
                for part in [None, *args.without] if side == "minidl" else [None]:
                    details = {} if side == "minidl" else details_of(runs, side, minutes, seed)
                    if details is not None:
                        runs.make({"side": side, "minutes": minutes, "seed": seed, "part": part}, details)
    return [row for row in runs.rows if "accuracy" in row]


def details_of(runs, side, minutes, seed):
    """Returns the fastest mode of PyTorch and the seconds that ResNet-18 has; None, with a notice, if unknown."""
    details = {}
    if side == "resnet18":
        other = runs.find(side="minidl", minutes=minutes, seed=seed, part=None)
        if other is None:
            print(
                f"resnet18, {minutes} minutes, seed {seed}: needs the run of minidl, whose time it gets",
                file=sys.stderr,
            )
            return None
        details["for"] = other["seconds"]
    modes, found = runs.args.modes, None
    if len(modes) > 1:
        recipe = minutes if side == "torch" else None
        found = runs.make({"modes_of": side, "minutes": recipe, "modes_tried": modes}, {"side": side})
        if found is None:
            return None
    return details | {"mode": min(found["modes"], key=found["modes"].get) if found else modes[0]}


# ---- tables


def print_tables(rows):
    """Prints the tables of each variant."""
    variants = defaultdict(list)
    for row in rows:
        variants[row["threads"], row["images"], row["epochs"], tuple(row["set"])].append(row)
    for (threads, images, epochs, changes), of in variants.items():
        changed = [*([f"{images} images"] if images else []), *([f"{epochs} epochs"] if epochs else []), *changes]
        print("\n" + ", ".join([f"{threads} threads", *changed, "means and standard deviations over the seeds"]))
        for minutes in sorted({row["minutes"] for row in of}):
            of_minutes = [row for row in of if row["minutes"] == minutes]
            sides = {side: [r for r in of_minutes if (r["side"], r["part"]) == (side, None)] for side in SIDES}
            sides = {side: found for side, found in sides.items() if found}
            print(f"\n{f'recipe {minutes}':24}{ROW[24:]}")
            for side, found in sides.items():
                print(format_row(" ".join([side, found[-1].get("mode", "")]).strip(), found))
            print_seconds(sides)
            print_ablation(sides.get("minidl", []), [row for row in of_minutes if row["part"]])


def format_row(title, rows):
    """Returns a printed row: accuracies in per cent, minutes and memory."""
    cells = [spread([100 * row["accuracy"][name] for row in rows]) for name in ("plain", "flip", "flip+shift")]
    wall, cpu = (fmean(row[name] for row in rows) / 60 for name in ("seconds", "cpu"))
    memory = max(row["memory"] for row in rows) / 1e6
    return f"{title:24}{''.join(f'{cell:>16}' for cell in cells)}{wall:9.2f}{cpu:9.2f}{memory:7.0f}{len(rows):7}"


def spread(values):
    return f"{fmean(values):.2f} +- {stdev(values) if len(values) > 1 else 0:.2f}"


def print_seconds(sides):
    """Prints the seconds after which each run of minidl and torch has the accuracy that all of them reach."""
    compared = {side: sides[side] for side in ("minidl", "torch") if side in sides}
    if len(compared) < 2:
        return
    goal = min(row["by_epoch"][-1][1] for rows in compared.values() for row in rows)
    seconds = {side: fmean(seconds_to(row, goal) for row in rows) for side, rows in compared.items()}
    print(f"seconds to {goal:.2%}, plain: " + ", ".join(f"{side} {took:.1f}" for side, took in seconds.items()))


def seconds_to(row, goal):
    """Returns the seconds after the first epoch that has an accuracy."""
    return next(seconds for seconds, reached in row["by_epoch"] if reached >= goal)


def print_ablation(whole, rows):
    """Prints what each part that was left out costs, in points, on the same seeds."""
    for part in PARTS:
        runs = {row["seed"]: row for row in rows if row["part"] == part}
        pairs = [(runs[row["seed"]], row) for row in whole if row["seed"] in runs]
        if pairs:
            lost = [100 * (less["accuracy"]["flip+shift"] - row["accuracy"]["flip+shift"]) for less, row in pairs]
            longer = fmean(less["seconds"] / row["seconds"] for less, row in pairs)
            title = format_row(f"without {part}", list(runs.values()))
            print(f"{title}   {spread(lost)} points, {longer:.2f} of the time")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, help="has train/CLASS and test/CLASS; default: load_cifar10")
    parser.add_argument("--shapes", action="store_true", help="the 2,000 drawn shapes of the example instead")
    parser.add_argument("--results", type=Path, required=True, help="a file of JSON lines, to which runs are appended")
    parser.add_argument("--minutes", nargs="+", type=int, choices=fast.RECIPES, default=list(fast.RECIPES))
    parser.add_argument("--seeds", type=positive, default=5)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES)
    parser.add_argument("--threads", type=positive, default=usable_cores())
    parser.add_argument("--without", nargs="+", choices=PARTS, default=[], help="also without each of these parts")
    parser.add_argument("--images", type=positive, help="the most training and test images; default: all")
    parser.add_argument("--epochs", type=positive, help="default: those of the recipe")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=JSON", help="other fields of the recipe")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES, help="of PyTorch; the fastest is taken")
    parser.add_argument("--steps", action="store_true", help="measure steps and stages of the net, and train nothing")
    parser.add_argument("--rounds", type=positive, default=7, help="of --steps")
    parser.add_argument("--seconds", type=float, default=3.0, help="of a side in a round of --steps, about")
    parser.add_argument("--one", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--step-of", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    """Makes one run, measures steps, or makes all runs and prints the tables."""
    args = arguments()
    if args.one:
        (choose_mode if "modes_of" in args.one else run_one)(args, args.one)
    elif args.step_of or args.steps:
        import cifar10_steps

        cifar10_steps.serve(args) if args.step_of else cifar10_steps.measure(args)
    else:
        print_tables(run_all(args))


if __name__ == "__main__":
    main()
