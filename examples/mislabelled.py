"""Finding wrong labels: an example with a wrong label pulls hard at the weights, and against all the others.

Run it with: python examples/mislabelled.py (--data digits: the embedded ones, in seconds; --picture FILE draws)

Some labels are flipped at random, a net learns from all of them, and then the examples are ranked by the norm of each
one's own gradient. The ranking by loss stands beside it.
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
    """Data, the net that learns them, and how many examples, wrong labels and epochs there are."""

    load: Callable
    network: Callable
    examples: int
    wrong: int
    epochs: int


TASKS = {"mnist": Task(load_mnist, lenet5, 10_000, 50, 3), "digits": Task(load_digits, small_lenet, 1_000, 10, 10)}


def flipped(data, task, seed):
    """Some of the training images, their labels, a few of which are flipped to another class; and the rows of these."""
    rng = np.random.default_rng(seed)
    rows = rng.choice(len(data.X_train), task.examples, replace=False)
    X, y = data.X_train[rows], data.y_train[rows]
    wrong = rng.choice(task.examples, task.wrong, replace=False)
    y[wrong] = (y[wrong] + rng.integers(1, 10, task.wrong)) % 10
    return X, y, wrong


def learned(X, y, task, seed):
    """A trainer that has learned these labels, the wrong ones too."""
    steps = task.epochs * -(-len(X) // BATCH_SIZE)
    optimizer = SGD(Cosine(0.02, steps), momentum=0.9)
    trainer = Trainer(task.network(seed=seed), "softmax_cross_entropy", optimizer, seed=seed)
    trainer.fit(X, y, epochs=task.epochs, batch_size=BATCH_SIZE, verbose=0)
    return trainer


def rankings(trainer, X, y):
    """The rows of X, those first that are most likely wrong: by the norm of their gradient, and by their loss."""
    norms = trainer.per_example_gradients(X, y, reduce="norm")  # by parameter, (n,) each
    norm = np.linalg.norm(list(norms.values()), axis=0)  # of all parameters together
    losses, _ = softmax_cross_entropy(trainer.model.predict(X), y)
    return np.argsort(-norm), np.argsort(-losses)


def draw(trainer, X, y, wrong, rows, path):
    """The images of these rows, with the labels that they have and that the net finds; flipped ones in red."""
    from matplotlib.figure import Figure

    read = trainer.model.predict(X[rows]).argmax(axis=1)
    figure = Figure(figsize=(8, 2.2), layout="constrained")
    for axes, i, found in zip(figure.subplots(2, DRAWN // 2).flat, rows, read, strict=True):
        axes.imshow(X[i, 0], cmap="gray_r")
        axes.set_title(f"{y[i]}, read as {found}", fontsize=7, color="tab:red" if i in wrong else "black")
        axes.axis("off")
    figure.savefig(path, dpi=150)
    print(f"The first {len(rows)} by gradient norm are in {path}, flipped labels in red")


def main():
    """Flip, learn, rank and count, for each seed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", choices=TASKS, default="mnist", help="default: mnist; digits, if it is out of reach")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of labels, weights and order")
    parser.add_argument("--picture", metavar="FILE", help="draw the first ones of the last seed (needs matplotlib)")
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

    most = 2 * task.wrong
    print(f"{task.wrong} of {task.examples:,} labels are flipped. Of these, found among the first {most}:\n")
    print("seed   by gradient norm   by loss")
    for seed in args.seeds:
        X, y, wrong = flipped(data, task, seed)
        trainer = learned(X, y, task, seed)
        by_norm, by_loss = (ranking[:most] for ranking in rankings(trainer, X, y))
        print(f"{seed:4}{np.isin(by_norm, wrong).sum():19}{np.isin(by_loss, wrong).sum():10}", flush=True)
    if args.picture:
        draw(trainer, X, y, wrong, by_norm[:DRAWN], args.picture)


if __name__ == "__main__":
    main()
