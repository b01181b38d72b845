"""CIFAR-10 in minutes
======================

A net for two cores learns CIFAR-10 in about 2, 12 or 40 minutes, and shows its worst mistakes.

Run it with: `python examples/cifar10_fast.py --minutes 2`. `--folder FOLDER` takes images in `train/CLASS` and
`test/CLASS`; `--shapes` draws some, in seconds. With `--checkpoint FILE`, a program that was killed goes on at its
next start.

A number of minutes stands for a fixed recipe, not for a clock, so each run has the same bits. The recipe follows
Jordan, "94% on CIFAR-10 in 3.29 Seconds on a Single GPU" (2024), arXiv:2404.00498, with sizes that suit processors.
docs/tutorials/cifar10.md builds it up, part by part.
"""

import argparse
import hashlib
import math
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from cifar10 import load_synthetic

from minidl import Sequential, Trainer
from minidl.callbacks import Checkpoint
from minidl.datasets import DatasetUnavailable, load_cifar10, load_images
from minidl.layers import (
    BatchNorm2D,
    Conv2D,
    Cutout,
    Dense,
    GlobalMaxPool2D,
    MaxPool2D,
    Normalize,
    RandomFlip,
    RandomShift,
    SiLU,
)
from minidl.losses import SoftmaxCrossEntropy
from minidl.optimizers import Muon
from minidl.schedules import Polynomial

CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


@dataclass(frozen=True)
class Recipe:
    """The sizes of a net and of its training."""

    filters: tuple[int, ...]  # of each group
    epochs: int
    batch_size: int = 125
    rate: float = 0.24  # of Muon, at the beginning
    bias_rate: float = 3.0
    scores_rate: float = 0.05
    shift: int = 2  # pixels, the most
    cutout: int = 0  # pixels of a box's side


RECIPES = {
    2: Recipe((32, 128, 128), 4),
    12: Recipe((64, 256, 256), 7),
    40: Recipe((64, 256, 256), 23, shift=4, cutout=12),
}
SHORT = Recipe((16, 32, 32), 3, batch_size=50)


def load(args):
    """Returns images and labels for training and for the test, and the names of the classes."""
    if args.folder is not None:
        train, test = (load_images(args.folder / part, 32) for part in ("train", "test"))
        classes, others = (", ".join(part.class_names) for part in (train, test))
        if classes != others:  # labels are positions in these names
            raise SystemExit(f"--folder: expected the same classes in train and test, got {classes} and {others}")
        return train.X, train.y, test.X, test.y, list(train.class_names)
    data = load_synthetic(2000) if args.shapes else load_cifar10()
    names = [f"shape {i}" for i in range(10)] if args.shapes else CLASSES
    return data.X_train, data.y_train, data.X_test, data.y_test, names


def make_net(X, classes, recipe, seed=0):
    """Returns the net for images X, which augments them in training.

    Each group halves the size of the images. All convolutions but the first one use Winograd's algorithm, also on small
    images, where it pays in batches such as these. Batch norms make biases of convolutions redundant.
    """
    steps = math.ceil(len(X) / recipe.batch_size)
    layers = [Normalize.from_data(X), RandomShift(recipe.shift, mode="reflect"), RandomFlip(alternate_every=steps)]
    layers += [Cutout(recipe.cutout)] if recipe.cutout else []
    algorithm = "auto"
    for filters in recipe.filters:
        for pool in ([MaxPool2D(2)], []):
            convolution = Conv2D(filters, 3, padding=1, use_bias=False, algorithm=algorithm)
            layers += [convolution, *pool, BatchNorm2D(), SiLU()]
            algorithm = "winograd"
    return Sequential([*layers, GlobalMaxPool2D(), Dense(classes, use_bias=False)], X.shape[1:], seed)


def make_trainer(model, n_examples, recipe, seed=0, threads=None):
    """Returns a trainer whose rates fall along a line to 0. Biases and the last layer have rates of their own."""
    *_, last = (name for name, param in model.params.items() if param.value.ndim > 1)
    model.set_param_group("bias", lr_mult=recipe.bias_rate / recipe.rate)
    model.set_param_group(last, lr_mult=recipe.scores_rate / recipe.rate)
    rate = Polynomial(recipe.rate, recipe.epochs * math.ceil(n_examples / recipe.batch_size))
    optimizer = Muon(rate, weight_decay=0, momentum=0.6, ns_steps=3, exclude=[last])
    loss = SoftmaxCrossEntropy(label_smoothing=0.1)
    return Trainer(model, loss, optimizer, ["accuracy"], seed, threads)


class TimeToGo:
    """A callback that prints after each epoch how long the others will take."""

    def __init__(self, epochs):
        self.epochs = epochs

    def on_fit_begin(self, trainer):
        self.begin, self.first = time.monotonic(), trainer.epoch

    def on_epoch_begin(self, trainer, epoch):
        if epoch > self.first:
            seconds = (time.monotonic() - self.begin) / (epoch - self.first) * (self.epochs - epoch)
            print(f"{seconds // 60:.0f}:{seconds % 60:02.0f} minutes to go", flush=True)


def draw(model, X, y, names, path):
    """Writes a picture: the confusion matrix, and the most confident mistakes."""
    import matplotlib.pyplot as plt

    from minidl import plots

    figure = plt.figure(figsize=(13.5, 7))
    left, right = figure.subfigures(1, 2, width_ratios=[7.5, 6])
    plots.confusion_matrix(model, X, y, class_names=names, figure=left)
    plots.misclassified(model, X, y, class_names=names, figure=right)
    figure.savefig(path)


def main():
    """Trains, tests, and draws what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=int, choices=RECIPES, default=2, help="the recipe; default: 2")
    data = parser.add_mutually_exclusive_group()
    data.add_argument("--folder", type=Path, help="has train/CLASS/*.jpg and test/CLASS/*.jpg; default: load_cifar10")
    data.add_argument("--shapes", action="store_true", help="2,000 drawn shapes and a small net instead")
    parser.add_argument("--picture", type=Path, default=Path("cifar10_fast.png"))
    parser.add_argument("--checkpoint", type=Path, help="written after each epoch; if it is there, goes on from it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, help="default: every core this process may use")
    args = parser.parse_args()
    if not args.picture.parent.is_dir():  # not after a training of 40 minutes
        parser.error(f"--picture: expected an existing folder to write into, got {args.picture.parent}")

    try:
        X, y, X_test, y_test, names = load(args)
    except DatasetUnavailable as error:
        raise SystemExit(f"{error}\n--folder takes image files, --shapes needs no data.") from None
    recipe = SHORT if args.shapes else RECIPES[args.minutes]
    model = make_net(X, len(names), recipe, args.seed)
    trainer, callbacks = make_trainer(model, len(X), recipe, args.seed, args.threads), [TimeToGo(recipe.epochs)]
    if args.checkpoint is not None:
        callbacks.append(Checkpoint(args.checkpoint))
        if args.checkpoint.exists():
            trainer = Trainer.resume(args.checkpoint, num_threads=args.threads, model=model)
    print(recipe, f"{model.summary().macs:,} multiply-adds an image", sep="\n", flush=True)
    begin = time.monotonic()
    trainer.fit(X, y, epochs=recipe.epochs, batch_size=recipe.batch_size, callbacks=callbacks)
    minutes = (time.monotonic() - begin) / 60

    plain, views = (model.predict(X_test, views=views).argmax(axis=1) == y_test for views in (None, "flip+shift"))
    weights = hashlib.sha256(b"".join(value.tobytes() for value in model.state_dict().values())).hexdigest()
    print(f"Test accuracy {views.mean():.2%} over six views of each image, {plain.mean():.2%} over the image alone")
    print(f"{minutes:.1f} minutes; SHA-256 of the weights: {weights[:16]}")
    if find_spec("matplotlib") is not None:
        draw(model, X_test, y_test, names, args.picture)
        print(f"Confusion matrix and mistakes: {args.picture}")


if __name__ == "__main__":
    main()
