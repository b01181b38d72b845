"""Kills fits on batches whose order changes, from the third epoch on, and resumes them: equal bits, or named.

    python tests/conformance/batch_kills.py --kills 50

Batches that take the number of the epoch by `set_epoch` have to end as an uninterrupted run, whenever the run is killed
(SIGKILL). Those that count their epochs themselves, and those that draw at random, end otherwise, so that each resume
has to name them: by a warning between two epochs, by a refusal within one. Checkpoints are written after each epoch in
half of the runs, after a few steps in the others.
"""

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
from kills import digest

from minidl import Sequential, Trainer
from minidl.callbacks import Checkpoint
from minidl.layers import Conv2D, Dense, Dropout, Flatten, MaxPool2D, ReLU, Rescale
from minidl.optimizers import SGD

RNG = np.random.default_rng(0)
X, Y = RNG.integers(0, 256, (960, 1, 28, 28)).astype(np.uint8), RNG.integers(0, 10, 960)
SIZE, EPOCHS, FIRST_KILLED = 24, 8, 2
EQUAL, NAMED, REFUSED, SILENT = "equal", "named by a warning", "refused, named", "other bits, SILENTLY"


class Numbered:
    """Draws the order of an epoch from its number."""

    epoch = 0

    def __len__(self):
        return len(X) // SIZE

    def __getitem__(self, index):
        rows = np.random.default_rng(self.epoch).permutation(len(X))[index * SIZE : (index + 1) * SIZE]
        return X[rows], Y[rows]

    def set_epoch(self, epoch):
        self.epoch = epoch


class Counting(Numbered):
    """Counts its epochs, from 0 in each process."""

    set_epoch = None

    def on_epoch_end(self):
        self.epoch += 1


class Random(Counting):
    """Draws an order for each epoch, another one in each process."""

    def __init__(self):
        self.epoch = random.SystemRandom().randrange(2**60)


KINDS = {"set_epoch": Numbered, "counting": Counting, "random": Random}


class Ready:
    """Tells the parent which epoch begins."""

    def on_epoch_begin(self, trainer, epoch):
        print(f"epoch {epoch}", flush=True)


def run(kind, folder, every):
    """Runs one process: resumes from the newest checkpoint; prints the digest, or that the resume was refused."""
    path = str(Path(folder, "run-{step}"))
    newest = Checkpoint.latest(path)
    layers = [Rescale(1 / 255), Conv2D(6, 5, stride=2), ReLU(), MaxPool2D(2), Flatten(), Dropout(0.2), Dense(10)]
    if newest is None:
        trainer = Trainer(Sequential(layers, (1, 28, 28)), "softmax_cross_entropy", SGD(0.05, 0.9), ["accuracy"], 3)
    else:
        trainer = Trainer.resume(newest)
        if trainer.interrupted is None:
            print("complete", flush=True)
            return
    callbacks = [Ready(), Checkpoint(path, every_n_steps=every or None, max_to_keep=2)]
    try:
        trainer.fit(KINDS[kind](), epochs=EPOCHS, callbacks=callbacks, verbose=0)
    except ValueError as error:
        print(f"refused {error}", flush=True)
        return
    print(f"digest {digest(trainer)}", flush=True)


def start(kind, folder, every):
    arguments = [sys.executable, __file__, "--run", kind, folder, str(every)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process):
    """Returns the last line that a process printed, and what it warned of."""
    out, err = process.communicate(timeout=300)
    if process.returncode:
        sys.exit(f"batch_kills: a run ended with status {process.returncode}: {err}")
    return out.splitlines()[-1], err


def kill_and_resume(kind, every, expected, seconds, rng):
    """Kills a run at a random instant from the third epoch on, and resumes it; returns what became of it."""
    with tempfile.TemporaryDirectory() as folder:
        process = start(kind, folder, every)
        while process.stdout.readline() not in (f"epoch {FIRST_KILLED}\n", ""):
            pass
        time.sleep(rng.uniform(0, seconds))
        process.kill()
        process.communicate()
        if process.returncode != -signal.SIGKILL:
            return None  # it had ended
        last, warned = ended(start(kind, folder, every))
    if last == "complete":
        return None  # the kill came after the last step
    if last.startswith("refused "):
        return REFUSED if "got others; give X a method set_epoch" in last else SILENT
    if "first batch differed between epochs" in warned:
        return NAMED
    return EQUAL if last == expected else SILENT


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=12, help="of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        return run(args.run[0], args.run[1], int(args.run[2]))
    rng, began, good = random.Random(args.seed), time.perf_counter(), True
    for kind in KINDS:
        found = Counter()
        with tempfile.TemporaryDirectory() as folder:
            process = start(kind, folder, 0)
            while process.stdout.readline() != f"epoch {FIRST_KILLED}\n":
                pass
            since = time.perf_counter()
            expected, _ = ended(process)
            seconds = time.perf_counter() - since
        while found.total() < args.kills:
            outcome = kill_and_resume(kind, 7 * (found.total() % 2), expected, seconds, rng)
            found.update([outcome] if outcome else [])
        good &= not found[SILENT] and (kind != "set_epoch" or found[EQUAL] == args.kills)
        print(f"batch_kills: {kind}: {args.kills} kills: " + ", ".join(f"{n} {what}" for what, n in found.items()))
    print(f"batch_kills: {time.perf_counter() - began:.0f} s")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
