"""The data, recipes and clocks of cifar10.py, parts of a recipe that can be left out, and minidl's training."""

import hashlib
import json
import resource
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))  # first: its cifar10.py is another module

import cifar10_fast as fast

from minidl import layers, losses, optimizers

VIEWS = {"plain": None, "flip": "flip", "flip+shift": "flip+shift"}
SGD_RATE = 0.4  # in place of Muon's, with the momentum of the recipe


def load(args):
    """Returns images and labels for training and for the test, and the number of classes; `images` spreads evenly."""
    X, y, X_test, y_test, names = fast.load(args)
    some, some_test = (
        np.linspace(0, len(of) - 1, min(args.images or len(of), len(of))).astype(int) for of in (y, y_test)
    )
    return X[some], y[some], X_test[some_test], y_test[some_test], len(names)


def recipe_of(args, minutes):
    """Returns the example's recipe with the changes of --set and --epochs."""
    changes = dict(option.split("=", 1) for option in args.set)
    changes = {name: json.loads(value) for name, value in changes.items()}
    if "filters" in changes:
        changes["filters"] = tuple(changes["filters"])
    return replace(fast.RECIPES[minutes], **changes | ({"epochs": args.epochs} if args.epochs else {}))


# ---- what is left out


def replacements(part):
    """Returns what stands in the example for a part that is left out, by the name there."""
    return {
        None: {},
        "muon": {"Muon": sgd},
        "alternating": {"RandomFlip": lambda **options: layers.RandomFlip()},
        "flip": {"RandomFlip": lambda **options: layers.RandomFlip(horizontal=False)},
        "shift": {"RandomShift": lambda *args, **options: layers.RandomShift(0)},
        "smoothing": {"SoftmaxCrossEntropy": lambda **options: losses.SoftmaxCrossEntropy()},
        "silu": {"SiLU": layers.ReLU},
        "winograd": {"Conv2D": direct},
    }[part]


def sgd(rate, *, momentum, **options):
    """Returns SGD with Muon's momentum, in Nesterov's form."""
    return optimizers.SGD(rate, momentum=momentum, nesterov=True)


def direct(*args, **options):
    """Returns a convolution by the direct sum."""
    return layers.Conv2D(*args, **options | {"algorithm": "direct"})


PARTS = ["muon", "alternating", "flip", "shift", "smoothing", "silu", "winograd"]


def make(X, classes, recipe, seed, threads, part=None):
    """Returns the example's net and trainer without a part."""
    if part == "muon":
        recipe = replace(recipe, rate=SGD_RATE)  # those of the biases and the last layer stay
    with ExitStack() as stack:
        for name, value in replacements(part).items():
            stack.enter_context(mock.patch.object(fast, name, value))
        model = fast.make_net(X, classes, recipe, seed)
        trainer = fast.make_trainer(model, len(X), recipe, seed, threads)
    return model, trainer


# ---- clocks


class Progress:
    """The seconds of a training without its evaluations, with the accuracy after each epoch; a callback of minidl."""

    def __init__(self, accuracy):
        self.accuracy, self.wall, self.cpu, self.epochs, self.memory = accuracy, 0.0, 0.0, [], None

    def start(self):
        self.begin = time.perf_counter(), time.process_time()

    def stop(self):
        self.wall += time.perf_counter() - self.begin[0]
        self.cpu += time.process_time() - self.begin[1]

    def on_epoch_end(self, trainer=None, epoch=None, logs=None):
        self.stop()
        self.memory = self.memory or peak_memory()  # before the first evaluation
        self.epochs.append([self.wall, self.accuracy()])
        self.start()

    def row(self):
        """Returns what a line of the results has of it."""
        return {"seconds": self.wall, "cpu": self.cpu, "by_epoch": self.epochs, "memory": self.memory}


def peak_memory():
    """Returns the most bytes that this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def accuracy(scores, y):
    return float((scores.argmax(axis=1) == y).mean())


def accuracies(model, X, y):
    """Returns the accuracy over each kind of views."""
    return {name: accuracy(model.predict(X, views=views), y) for name, views in VIEWS.items()}


# ---- minidl's side


def learn_minidl(data, recipe, seed, threads, part):
    """Trains the example's net; returns its line of the results."""
    X, y, X_test, y_test, classes = data
    model, trainer = make(X, classes, recipe, seed, threads, part)
    progress = Progress(lambda: accuracy(model.predict(X_test), y_test))
    progress.start()
    trainer.fit(X, y, recipe.epochs, batch_size=recipe.batch_size, verbose=0, callbacks=[progress])
    progress.stop()
    weights = hashlib.sha256(b"".join(value.tobytes() for value in model.state_dict().values())).hexdigest()
    return progress.row() | {"accuracy": accuracies(model, X_test, y_test), "weights": weights}
