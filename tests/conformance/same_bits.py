"""Bitwise reproducibility: a trained net has one hash for any number of threads, on x86-64-v3 and v4.

Each row of the table is a net in a dtype, each entry a separate process; a row must hold one value. The hash covers
weights, gradients (also per example), losses, metrics and predictions after three ways to train; the velocity affects
the weights of later steps.

    python tests/conformance/same_bits.py                       # the table
    python tests/conformance/same_bits.py --nets mixed blocks --threads 1 3
    python tests/conformance/same_bits.py --whole 20            # and 20 random OpenMP settings for each row
"""

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests")]

import nets  # noqa: E402
from conformance.nets import of_sizes  # noqa: E402

import minidl_c  # noqa: E402
from minidl import Layer, Sequential, Trainer  # noqa: E402
from minidl.initializers import zeros  # noqa: E402
from minidl.layers import (  # noqa: E402
    GELU,
    AvgPool2D,
    BatchNorm1D,
    BatchNorm2D,
    ColorJitter,
    Columns,
    Conv2D,
    ConvTranspose2D,
    Cutout,
    Dense,
    DepthwiseConv2D,
    Dropout,
    Dropout2D,
    Embedding,
    Flatten,
    GaussianNoise,
    GroupNorm,
    LayerNorm,
    MaxPool2D,
    OneHot,
    Parallel,
    PiecewiseLinearEncoding,
    PReLU,
    RandomCrop,
    RandomRotation,
    ReLU,
    Rescale,
    Residual,
    RMSNorm,
    Scale,
    SiLU,
    StochasticDepth,
)
from minidl.optimizers import SGD  # noqa: E402
from minidl_c.runtime.threads import set_thread_choice  # noqa: E402

set_thread_choice(False)  # predictions use all threads that they are asked to

THREADS = (1, 2, 3, 5, 8, 16)
DTYPES = ("float32", "float64")
ROWS = ("lenet", "cnn", "mixed", "blocks", "embeddings", "pixels")
EXAMPLES, SEED = 331, 0
LIMIT = 600  # seconds for one process


def mixed():
    """Returns layers that the first two nets lack: strides, dilation, groups, overlapping windows, dropout."""
    return [
        Rescale(1 / 255, -0.5),
        Conv2D(8, 3, stride=2, padding=1), ReLU(),
        Conv2D(12, 3, dilation=2, groups=4, padding="same"), ReLU(),
        MaxPool2D(3, 2, padding=1),
        Flatten(),
        Dense(40), ReLU(), Dropout(0.3),
        Dense(10),
    ]  # fmt: skip


def blocks():
    """Returns normalization layers, and branches that fork and join."""
    body = [DepthwiseConv2D(3, padding=1), BatchNorm2D(), GELU(), Conv2D(12, 1, use_bias=False), GroupNorm(3)]
    branches = [Conv2D(5, 1), PReLU()], [AvgPool2D(3, 1, padding=1), Conv2D(4, 3, padding=1)]
    return [
        Rescale(1 / 255, -0.5), RandomCrop(28, padding=2), Cutout(8, 0.5), RandomRotation(15), ColorJitter(0.2, 0.2),
        GaussianNoise(0.05),
        Conv2D(12, 3, stride=2, padding=1, use_bias=False), BatchNorm2D(), ReLU(),
        Residual(*body, StochasticDepth(0.2)), SiLU(),
        Residual(LayerNorm(axis="channels"), Conv2D(12, 1), RMSNorm(axis="channels"), Scale(0.1, use_bias=True)),
        Parallel(*branches), Dropout2D(0.1),
        ConvTranspose2D(6, 2, 2), MaxPool2D(4),
        Flatten(), LayerNorm(),
        Dense(30), BatchNorm1D(), ReLU(), Dropout(0.2),
        Dense(10),
    ]  # fmt: skip


def embeddings():
    """Returns vectors for the first pixels, of which some values have no examples; one-hot rows and places in bins."""
    bins = [Columns(300, 320), PiecewiseLinearEncoding([[0, 50, 128, 255]] * 20, missing=True)]
    one_hot = [Columns(320, 340), OneHot([256, 100] * 10)]
    branches = [Columns(0, 300), Embedding(300, 5), Flatten()], bins, one_hot, [Columns(340), Rescale(1 / 255)]
    return [Flatten(), Parallel(*branches), Dense(30), ReLU(), Dense(10)]


class InThreadOrder(Layer):
    """The canary: adds a learned shift, whose gradient is summed in one part per thread."""

    threads = 1

    def build(self, in_shape):
        self.shift = self.param("shift", in_shape, zeros)
        return in_shape

    def forward(self, x, training):
        return x + self.shift.value

    def backward(self, dy):
        self.shift.grad[:] = sum(piece.sum(axis=0) for piece in np.array_split(dy, self.threads))
        return dy


NETS = {
    "lenet": nets.lenet5,
    "cnn": nets.cnn,
    "mixed": mixed,
    "blocks": blocks,
    "embeddings": embeddings,
    "canary": lambda: [Rescale(1 / 255), Flatten(), InThreadOrder(), Dense(10)],
}


def digest(net, dtype, threads, seed):
    """Trains a net and returns its hash. threads=None: the default number of the process."""
    if net == "pixels":
        return digest_of_arrays(of_sizes(seed, threads, dtype))
    rng = np.random.default_rng(seed)
    X, y = rng.integers(0, 256, (EXAMPLES, *nets.IMAGE), dtype=np.uint8), rng.integers(0, nets.CLASSES, EXAMPLES)
    InThreadOrder.threads = threads or 1
    model = Sequential(NETS[net](), nets.IMAGE, dtype=dtype)
    optimizer = SGD(lambda step: 0.05 / (1 + step), momentum=0.9, nesterov=True)
    trainer = Trainer(model, "softmax_cross_entropy", optimizer, ["accuracy"], num_threads=threads)
    trainer.fit(X, y, epochs=2, batch_size=50, verbose=0)  # partial tiles, and a partial batch at the end
    trainer.fit(X, y, batch_size=290, sample_weight=rng.uniform(0, 2, EXAMPLES), verbose=0)  # more tiles than slots
    losses = [trainer.train_batch(X[:n], y[:n]) for n in (2, 5, 17)]  # fewer tiles than threads
    found = hashlib.sha256()
    for name, param in model.params.items():
        for array in (param.value, param.grad):
            found.update(name.encode() + np.ascontiguousarray(array).tobytes())
    for column in ("loss", "accuracy", "lr"):
        found.update(np.array(trainer.history[column]).tobytes())
    for leaf in model.network.leaves:  # frozen batch norm does not couple examples
        leaf.trainable = not any(op.couples_examples for op in leaf.ops)
    apart = [trainer.per_example_gradients(X[:40], y[:40], reduce=reduce) for reduce in (None, "norm")]
    for array in (array for gradients in apart for array in gradients.values()):
        found.update(np.ascontiguousarray(array).tobytes())
    for array in (*model.state_dict().values(), losses, model.predict(X, threads), model.predict(X[:3], threads)):
        found.update(np.asarray(array).tobytes())
    return found.hexdigest()[:16]


def digest_of_arrays(arrays):
    """Returns the hash of several arrays."""
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()[:16]


def in_a_process(net, dtype, threads, isa, seed=SEED, settings=None, processor=None):
    """Returns `digest` of a new process with these environment variables, pinned to `processor` if given."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    environment |= {"MINIDL_ISA": isa, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **(settings or {})}
    task = {"net": net, "dtype": dtype, "threads": threads, "seed": seed, "processor": processor}
    command = [sys.executable, __file__, "--task", json.dumps(task)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT)
    if done.returncode:
        raise RuntimeError(f"{task} under {isa}: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout.strip()


def run_task(net, dtype, threads, seed, processor):
    """Prints a digest: the program that `in_a_process` starts."""
    if processor is not None:
        os.sched_setaffinity(0, {processor})
    print(digest(net, dtype, threads, seed))


def usable_isas():
    """Returns which of v3 and v4, or of the only build of another machine, is built and runs here."""
    folder = Path(minidl_c.__file__).parent
    runs = [isa for isa in minidl_c.cpu.supported() if (folder / isa / "build.json").is_file()]
    return [isa for isa in runs if isa != "v2"] or runs


def random_settings(rng):
    """Draws OpenMP variables that must not matter, a number of threads, and perhaps a single processor."""
    settings = {
        "OMP_DYNAMIC": rng.choice(["true", "false"]),
        "OMP_SCHEDULE": rng.choice(["static", "dynamic,1", "guided", "auto"]),
        "OMP_PROC_BIND": rng.choice(["false", "true", "close", "spread"]),
        "OMP_WAIT_POLICY": rng.choice(["active", "passive"]),
        "OMP_NUM_THREADS": str(rng.randint(1, 9)),
        "OMP_THREAD_LIMIT": str(rng.randint(2, 16)),
    }
    kept = {name: settings[name] for name in sorted(settings) if rng.random() < 0.6}
    processor = rng.choice(sorted(os.sched_getaffinity(0))) if rng.random() < 0.3 else None
    return rng.choice([None, None, *THREADS]), kept, processor


def row(net, dtype, threads, isas, whole=0, seed=SEED):
    """Returns the hashes of one row by their settings."""
    found = {f"{isa} {count}": in_a_process(net, dtype, count, isa) for isa in isas for count in threads}
    rng = random.Random(f"{seed} {net} {dtype}")
    for _ in range(whole):
        count, settings, processor = random_settings(rng)
        isa = rng.choice(isas)
        made_with = f"{isa} {count} {settings} processor={processor}"
        found[made_with] = in_a_process(net, dtype, count, isa, settings=settings, processor=processor)
    return found


def differing(found):
    """Returns the settings whose hash differs from the first; empty for a row of one value."""
    first = next(iter(found.values()))
    return {made_with: value for made_with, value in found.items() if value != first}


def canaries(isa):
    """Returns the canaries that were not noticed: different data, and a sum in thread order."""
    missed = []
    if in_a_process("mixed", "float32", 1, isa) == in_a_process("mixed", "float32", 1, isa, seed=SEED + 1):
        missed.append("another seed gave the same hash")
    if not differing(row("canary", "float32", (1, 3), [isa])):
        missed.append("a net summed in the order of threads was not noticed")
    return missed


def main():
    """Prints the table; exits with 1 if a row has two values or a canary was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", nargs="+", choices=ROWS, default=ROWS)
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=DTYPES)
    parser.add_argument("--threads", nargs="+", type=int, default=THREADS)
    parser.add_argument("--isas", nargs="+", default=usable_isas())
    parser.add_argument(
        "--whole", type=int, default=0, metavar="N", help="number of random OpenMP settings for each row"
    )
    parser.add_argument("--seed", type=int, default=SEED, help="seed of the random settings")
    parser.add_argument("--task", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task:
        run_task(**options.task)
        return
    findings, runs = canaries(options.isas[0]), 0
    print(f"threads {', '.join(map(str, options.threads))}; {', '.join(options.isas)}; {options.whole} random settings")
    for net in options.nets:
        for dtype in options.dtypes:
            found = row(net, dtype, options.threads, options.isas, options.whole, options.seed)
            other, runs = differing(found), runs + len(found)
            print(
                f"  {net:6} {dtype}  {next(iter(found.values()))}  {len(found) - len(other)} of {len(found)}",
                flush=True,
            )
            findings += [f"{net} {dtype}: {value} with {made_with}" for made_with, value in other.items()]
    print(f"same bits: {runs} processes, {len(options.nets) * len(options.dtypes)} rows, {len(findings)} findings")
    print(*findings, sep="\n", end="\n" if findings else "")
    sys.exit(bool(findings))


if __name__ == "__main__":
    main()
