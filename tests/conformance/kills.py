"""Kills training runs at random instants and resumes them: the result equals that of an uninterrupted run, bit for bit.

    python tests/conformance/kills.py --kills 200

Each run saves a checkpoint every few steps. The parent kills it (SIGKILL) at a random time and restarts it with another
number of threads, until it finishes. There are two kinds of run: a plan with dropout, which ends with the weights of
its best epoch, and a net with a layer, an optimizer and a callback in Python, which ends with averaged weights. Canary:
a run that loses its optimizer's velocity when it resumes must be noticed.
"""

import argparse
import hashlib
import math
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from minidl import Layer, Sequential, Trainer
from minidl.callbacks import Checkpoint, EarlyStopping, ExponentialMovingAverage
from minidl.layers import Conv2D, Dense, Dropout, Flatten, MaxPool2D, ReLU, Rescale
from minidl.optimizers import SGD

RNG = np.random.default_rng(0)
N = 1000
X, Y = RNG.integers(0, 256, (N, 1, 28, 28)).astype(np.uint8), RNG.integers(0, 10, N)
WEIGHTS = RNG.uniform(0.5, 2, N)
THREADS = (1, 2, 3, 5)
KINDS = ("native", "python")


class Noise(Layer):
    """A layer in NumPy that draws random numbers."""

    def forward(self, x, training):
        return x + self.rng.standard_normal(x.shape).astype(x.dtype) if training else x

    def backward(self, dy):
        return dy


class Momentum:
    """An optimizer in Python that keeps its state in attributes."""

    def __init__(self, lr):
        self.lr, self.steps, self.velocity = lr, 0, {}

    def step(self, params, lr):
        self.steps += 1
        for name, param in params.items():
            self.velocity[name] = np.float32(0.9) * self.velocity.get(name, 0) + param.grad
            param.value -= np.float32(lr / (1 + 0.001 * self.steps)) * self.velocity[name]


class Ready:
    """Tells the parent that imports are done and training begins."""

    def on_fit_begin(self, trainer):
        print("ready", flush=True)


class Slower:
    """A callback that lowers the learning rate with its own step count."""

    def __init__(self):
        self.steps = 0

    def on_step_end(self, trainer, step, loss):
        self.steps += 1
        trainer.optimizer.lr = 0.01 / (1 + 0.01 * self.steps)

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state):
        self.steps = state["steps"]


def falling(step):
    return 0.05 / (1 + 0.01 * step)


def new_trainer(kind):
    front = [Rescale(1 / 255), Conv2D(6, 5, padding=2), ReLU(), MaxPool2D(2), Conv2D(16, 5, stride=2), ReLU()]
    if kind == "native":
        layers = [*front, Flatten(), Dropout(0.2), Dense(84), ReLU(), Dropout(0.5), Dense(10)]
        return Trainer(Sequential(layers, (1, 28, 28)), "softmax_cross_entropy", SGD(falling, 0.9), ["accuracy"], 3)
    layers = [*front, MaxPool2D(2), Flatten(), Noise(), Dense(10)]
    return Trainer(Sequential(layers, (1, 28, 28)), "softmax_cross_entropy", Momentum(0.01), ["accuracy"], 3)


def digest(trainer):
    """Returns a hash of weights, history without timings, and predictions."""
    found = hashlib.sha256(repr(trainer.step).encode())
    for name, value in trainer.model.state_dict().items():
        found.update(name.encode() + value.tobytes())
    for name, values in trainer.history.items():
        if name != "images_per_second":
            found.update(name.encode() + np.array(values, np.float64).tobytes())
    found.update(trainer.model.predict(X[:100]).tobytes())
    return found.hexdigest()


def checkpoints_in(folder):
    return str(Path(folder, "run-{step}.safetensors"))


def run(kind, folder, threads, epochs, forget):
    """Runs one process of a run: resumes from the newest checkpoint and prints the digest at the end."""
    path = checkpoints_in(folder)
    newest = Checkpoint.latest(path)
    if newest is None:
        trainer = new_trainer(kind)
    else:
        trainer = Trainer.resume(newest, custom_objects={c.__name__: c for c in (Noise, Momentum, falling)})
        if forget:
            trainer.steps().update.state["velocity"][:] = 0
    trainer.num_threads = threads
    callbacks = [Ready(), Checkpoint(path, every_n_steps=5, max_to_keep=2)]
    callbacks += [Slower(), ExponentialMovingAverage(0.99)] if kind == "python" else [EarlyStopping(patience=epochs)]
    options = {"sample_weight": WEIGHTS, "validation_split": 0.1, "callbacks": callbacks, "verbose": 0}
    trainer.fit(X, Y, epochs, batch_size=24, **options)
    print(digest(trainer), flush=True)


def start(kind, folder, threads, epochs, forget=False):
    """Starts a process of a run; returns it when its training has begun."""
    arguments = [sys.executable, __file__, "--run", kind, folder, str(threads), str(epochs), str(int(forget))]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    if process.stdout.readline() != "ready\n":
        process.wait()
        sys.exit(f"kills: a {kind} run could not start in {folder}")
    return process


def ended(process):
    """Waits for a process; returns the digest that it prints."""
    out, _ = process.communicate(timeout=120)
    if process.returncode:
        sys.exit(f"kills: a run ended with status {process.returncode}")
    return out.strip()


def still_running(process, folder, window, rng):
    """Waits for the instant of the kill; True if the process has not ended by then."""
    end = time.monotonic() + (math.inf if window is None else rng.uniform(*window))
    while process.poll() is None and time.monotonic() < end:
        if window is None and Checkpoint.latest(checkpoints_in(folder)):
            break
        time.sleep(0.001)
    return process.poll() is None


def killed_run(kind, epochs, window, kills, rng, forget=False):
    """Kills a run up to `kills` times, each time in a window of seconds after its start; returns (digest, kills done).

    window: None kills as soon as there is a checkpoint.
    """
    done = 0
    with tempfile.TemporaryDirectory() as folder:
        while True:
            process = start(kind, folder, THREADS[done % len(THREADS)], epochs, forget)
            if done < kills and still_running(process, folder, window, rng):
                process.kill()
                process.wait()
                done += process.returncode == -signal.SIGKILL
                process.stdout.close()
            else:
                return ended(process), done


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run", nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        kind, folder, threads, epochs, forget = args.run
        return run(kind, folder, int(threads), int(epochs), forget == "1")

    rng, began, expected, seconds = random.Random(args.seed), time.perf_counter(), {}, {}
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            process, start_time = start(kind, folder, 2, args.epochs), time.perf_counter()
            expected[kind], seconds[kind] = ended(process), time.perf_counter() - start_time
    kills = runs = wrong = 0
    while kills < args.kills:
        kind = KINDS[runs % len(KINDS)]
        found, done = killed_run(kind, args.epochs, (0, 0.15 * seconds[kind]), min(10, args.kills - kills), rng)
        kills, runs, wrong = kills + done, runs + 1, wrong + (found != expected[kind])
    noticed = killed_run("native", args.epochs, None, 1, rng, forget=True)[0] != expected["native"]
    print(
        f"kills: {kills} kills in {runs} runs, {runs - wrong} of {runs} equal to the uninterrupted run; "
        f"canary (velocity lost): {'noticed' if noticed else 'NOT noticed'} ({time.perf_counter() - began:.0f} s)"
    )
    return 1 if wrong or not noticed else 0


if __name__ == "__main__":
    sys.exit(main())
