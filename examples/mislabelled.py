"""Finding wrong labels
=======================

A mislabelled example has a large gradient. Some labels are flipped at random, a net is trained on all examples, and the
examples are ranked by the norm of their gradient.

Run it with: `python examples/mislabelled.py` (`--data digits` takes seconds; `--picture FILE` draws the suspects)

A ranking by loss is shown for comparison.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
from mnist_lenet import small_lenet
from models import lenet5

from minidl import Trainer
from minidl.datasets import DatasetUnavailable, load_digits, load_mnist
from minidl.losses import softmax_cross_entropy
from minidl.optimizers import SGD
from minidl.schedules import Cosine

BATCH_SIZE, DRAWN = 32, 20


@dataclass(frozen=True)
class Task:
    """A data set, a net, and the numbers of examples, wrong labels and epochs."""

    load: Callable
    network: Callable
    examples: int
    wrong: int
    epochs: int


TASKS = {"mnist": Task(load_mnist, lenet5, 10_000, 50, 3), "digits": Task(load_digits, small_lenet, 1_000, 10, 10)}


def flip_labels(data, task, seed):
    """Returns a sample of the training images, their labels with some flipped, and the indices of the flipped ones."""
    rng = np.random.default_rng(seed)
    rows = rng.choice(len(data.X_train), task.examples, replace=False)
    X, y = data.X_train[rows], data.y_train[rows]
    wrong = rng.choice(task.examples, task.wrong, replace=False)
    y[wrong] = (y[wrong] + rng.integers(1, 10, task.wrong)) % 10
    return X, y, wrong


def train_on(X, y, task, seed):
    """Trains a net on these labels, including the wrong ones; returns the trainer."""
    steps = task.epochs * -(-len(X) // BATCH_SIZE)
    optimizer = SGD(Cosine(0.02, steps), momentum=0.9)
    trainer = Trainer(task.network(seed=seed), "softmax_cross_entropy", optimizer, seed=seed)
    trainer.fit(X, y, epochs=task.epochs, batch_size=BATCH_SIZE, verbose=0)
    return trainer


def rank_suspects(trainer, X, y):
    """Returns the indices of X, most suspicious first: by gradient norm, and by loss."""
    norms = trainer.per_example_gradients(X, y, reduce="norm")  # by parameter, (n,) each
    norm = np.linalg.norm(list(norms.values()), axis=0)  # of all parameters together
    losses, _ = softmax_cross_entropy(trainer.model.predict(X), y)
    return np.argsort(-norm), np.argsort(-losses)


def draw_images(trainer, X, y, wrong, rows, path):
    """Draws the images of these rows with their label and the predicted one; flipped labels in red."""
    from matplotlib.figure import Figure

    read = trainer.model.predict(X[rows]).argmax(axis=1)
    figure = Figure(figsize=(5.5, 5.2), layout="constrained")
    for axes, i, found in zip(figure.subplots(4, DRAWN // 4).flat, rows, read, strict=True):
        axes.imshow(X[i, 0], cmap="gray_r")
        axes.set_title(f"{y[i]}, read as {found}", fontsize=9, color="tab:red" if i in wrong else "black")
        axes.axis("off")
    figure.savefig(path, dpi=150)
    print(f"The first {len(rows)} by gradient norm are in {path}, flipped labels in red")


def main():
    """Flips labels, trains, ranks and counts, for each seed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", choices=TASKS, default="mnist", help="default: mnist, or digits if it is unavailable")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of labels, weights and order")
    parser.add_argument("--picture", metavar="FILE", help="draw the top suspects of the last seed (needs matplotlib)")
    args = parser.parse_args()
    if args.picture and find_spec("matplotlib") is None:
        raise SystemExit('matplotlib is not installed: pip install "minidl[plot]"')
    task = TASKS[args.data]
    try:
        data = task.load()
    except DatasetUnavailable as error:
        print(f"MNIST is out of reach: {error}\nSo this run takes the embedded 8x8 digits.")
        task = TASKS["digits"]
        data = task.load()

    n_first = 2 * task.wrong
    print(f"{task.wrong} of {task.examples:,} labels are flipped. Of these, found among the first {n_first}:\n")
    print("seed   by gradient norm   by loss")
    for seed in args.seeds:
        X, y, wrong = flip_labels(data, task, seed)
        trainer = train_on(X, y, task, seed)
        by_norm, by_loss = (ranking[:n_first] for ranking in rank_suspects(trainer, X, y))
        print(f"{seed:4}{np.isin(by_norm, wrong).sum():19}{np.isin(by_loss, wrong).sum():10}", flush=True)
    if args.picture:
        draw_images(trainer, X, y, wrong, by_norm[:DRAWN], args.picture)


if __name__ == "__main__":
    main()
