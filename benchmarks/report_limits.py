"""Error rates of `trainer.report()`: false alarms in healthy runs, and planted faults that it misses.

    python benchmarks/report_limits.py --seeds 3 --images 1442 --data digits

A run is healthy if it ends with a validation accuracy of at least 0.8; findings in other runs are counted separately.
These counts justify the thresholds in minidl/training/report/thresholds.py.
"""

import argparse
import contextlib
import io
import itertools
from collections import Counter

import numpy as np
from measure import positive

from minidl import Sequential, Trainer
from minidl.datasets import load_digits, load_mnist
from minidl.initializers import he_uniform
from minidl.layers import (
    ELU,
    GELU,
    BatchNorm2D,
    Conv2D,
    Dense,
    Dropout,
    Flatten,
    GlobalAvgPool2D,
    Hardswish,
    MaxPool2D,
    RandomShift,
    ReLU,
    Rescale,
    Residual,
    Sigmoid,
    SiLU,
    Tanh,
)
from minidl.optimizers import SGD, Adagrad, Adam, AdamW, RMSprop


def mlp(activation, *units):
    return [Flatten(), *(layer for n in units for layer in (Dense(n), activation())), Dense(10)]


def convolutions():
    return [Conv2D(6, 5, padding=2), ReLU(), MaxPool2D(2), Conv2D(16, 3), ReLU(), *mlp(ReLU, 120, 84)]


def residual(filters):
    def norm():
        return Conv2D(filters, 3, padding=1, use_bias=False), BatchNorm2D()

    return Residual(*norm(), ReLU(), *norm())


NETS = {
    **{f"mlp {f.__name__}": lambda f=f: mlp(f, 64, 32) for f in (ReLU, Sigmoid, Tanh, ELU, GELU, SiLU, Hardswish)},
    "deep mlp": lambda: mlp(ReLU, *[48] * 8),
    "lenet": convolutions,
    "batch norm": lambda: [
        *(Conv2D(16, 3, padding=1, use_bias=False), BatchNorm2D(), ReLU(), MaxPool2D(2)),
        *(Conv2D(32, 3, padding=1, use_bias=False), BatchNorm2D(), ReLU(), GlobalAvgPool2D(), Dense(10)),
    ],
    "residual": lambda: [
        *(Conv2D(8, 3, padding=1), ReLU(), residual(8), ReLU(), MaxPool2D(2), residual(8), ReLU()),
        *(GlobalAvgPool2D(), Dense(10)),
    ],
    "dropout": lambda: [
        *(Conv2D(8, 3, padding=1), ReLU(), MaxPool2D(2), Dropout(0.25), Flatten()),
        *(Dense(64), ReLU(), Dropout(0.5), Dense(10)),
    ],
    "augmented": lambda: [RandomShift(1), Conv2D(8, 3, padding=1), ReLU(), MaxPool2D(2), *mlp(Tanh, 64)],
}
OPTIMIZERS = {
    "SGD(0.01)": lambda: SGD(0.01),
    "SGD(0.1)": lambda: SGD(0.1),
    "SGD(0.01, momentum=0.9)": lambda: SGD(0.01, momentum=0.9),
    "SGD(0.05, momentum=0.9)": lambda: SGD(0.05, momentum=0.9),
    "Adam(0.0001)": lambda: Adam(0.0001),
    "Adam(0.001)": Adam,
    "Adam(0.003)": lambda: Adam(0.003),
    "AdamW(0.001)": AdamW,
    "RMSprop(0.001)": lambda: RMSprop(0.001),
    "Adagrad(0.01)": Adagrad,
}
LEARNED_ACCURACY = 0.8  # validation accuracy of a healthy run, at least
EPOCHS = {"digits": (1, 2, 5, 10, 20, 50), "mnist": (1, 2, 5)}


def make_trainer(layers, shape, optimizer, seed):
    model = Sequential(layers, input_shape=shape, seed=seed)
    return Trainer(model, "softmax_cross_entropy", optimizer, ["accuracy"], seed=seed)


def report_quietly(trainer):
    with contextlib.redirect_stdout(io.StringIO()):
        return trainer.report()


def report_on_healthy_runs(data, scale, epochs, seeds):
    """Trains every net with every optimizer and reports after several numbers of epochs; prints the findings.

    Returns the number of reports and the findings, each by whether the run was healthy.
    """
    reports, found = Counter(), {True: Counter(), False: Counter()}
    for net, name, seed in itertools.product(NETS, OPTIMIZERS, range(seeds)):
        trainer = make_trainer([Rescale(scale), *NETS[net]()], data.X_train.shape[1:], OPTIMIZERS[name](), seed)
        validation, run = (data.X_test[:2000], data.y_test[:2000]), []
        for more in np.diff([0, *epochs]):
            trainer.fit(data.X_train, data.y_train, int(more), validation_data=validation, verbose=0)
            run.append((trainer.epoch, report_quietly(trainer)))
        accuracy = trainer.history["val_accuracy"][-1]
        reports[accuracy >= LEARNED_ACCURACY] += len(run)
        for epoch, finding in ((epoch, finding) for epoch, found_then in run for finding in found_then):
            found[accuracy >= LEARNED_ACCURACY][finding.symptom] += 1
            print(f"{net}, {name}, seed {seed} (final accuracy {accuracy:.2f}), epoch {epoch}: {finding}", flush=True)
    return reports, found


class Faults:
    """One training run per planted fault. The name of a method is the expected symptom, with underscores."""

    def __init__(self, data, scale, seed):
        self.X, self.y, self.data, self.scale, self.seed = data.X_train, data.y_train, data, scale, seed

    def fit(self, layers, optimizer, X=None, y=None, epochs=5, **options):
        X, y = self.X if X is None else X, self.y if y is None else y
        trainer = make_trainer(layers, X.shape[1:], optimizer, self.seed)
        with contextlib.suppress(FloatingPointError):  # the report looks at the weights before that step
            trainer.fit(X, y, epochs, verbose=0, **options)
        return trainer

    def dead_units(self):
        return self.fit([Rescale(self.scale), *mlp(ReLU, 64)], SGD(5.0))

    def saturated_units(self):
        def wide(rng, shape):
            return 40 * he_uniform(rng, shape)

        layers = [Flatten(), Dense(64, kernel_initializer=wide), Tanh(), Dense(10)]
        return self.fit([Rescale(self.scale), *layers], SGD(0.01))

    def small_updates(self):
        return self.fit([Rescale(self.scale), *mlp(ReLU, 64)], SGD(1e-6))

    def large_updates(self):
        return self.fit([Rescale(self.scale), *mlp(Tanh, 64)], SGD(2.0), epochs=1)

    def vanishing_gradients(self):
        return self.fit([Rescale(self.scale), *mlp(Sigmoid, *[32] * 10)], SGD(0.1))

    def exploding_gradients(self):
        def wide(rng, shape):
            return 4 * he_uniform(rng, shape)

        layers = [layer for _ in range(8) for layer in (Dense(48, kernel_initializer=wide), ReLU())]
        return self.fit([Rescale(self.scale), Flatten(), *layers, Dense(10)], SGD(1e-9), epochs=1)

    def unscaled_inputs(self):
        return self.fit(mlp(ReLU, 64), SGD(0.001))

    def constant_inputs(self):
        return self.fit([Rescale(self.scale), *mlp(ReLU, 64)], SGD(0.05), X=np.full_like(self.X, 3))

    def unshuffled_labels(self):
        order = np.argsort(self.y, kind="stable")
        options = {"X": self.X[order], "y": self.y[order], "shuffle": False}
        return self.fit([Rescale(self.scale), *mlp(ReLU, 64)], SGD(0.05), **options)

    def imbalanced_labels(self):
        rows = np.flatnonzero((self.y == 0) | (np.random.default_rng(self.seed).random(len(self.y)) < 0.003))
        return self.fit([Rescale(self.scale), *mlp(ReLU, 64)], SGD(0.05), X=self.X[rows], y=self.y[rows])

    def overfitting(self):
        return self.fit_few(epochs=60)

    def rising_validation_loss(self):
        return self.fit_few(epochs=150, noise=0.3)

    def fit_few(self, epochs, noise=0.0):
        """Trains on sixty examples, a fraction `noise` of them with random labels."""
        rng = np.random.default_rng(self.seed)
        rows = rng.permutation(len(self.X))[:60]
        y = np.where(rng.random(60) < noise, rng.integers(0, 10, 60), self.y[rows])
        validation = {"validation_data": (self.data.X_test[:1000], self.data.y_test[:1000])}
        layers = [Rescale(self.scale), *mlp(ReLU, 128, 64)]
        return self.fit(layers, Adam(0.003), self.X[rows], y, epochs, batch_size=16, **validation)

    def stuck_loss(self):
        y = np.random.default_rng(self.seed).permutation(self.y)  # labels of other images
        return self.fit([Rescale(self.scale), *mlp(ReLU, 16)], SGD(0.01), y=y, epochs=15)

    def diverging_loss(self):
        trainer = self.fit([Rescale(self.scale), *mlp(ReLU, 64)], SGD(0.05, momentum=0.9), epochs=5)
        trainer.optimizer.lr = 4.0
        with contextlib.suppress(FloatingPointError):
            trainer.fit(self.X, self.y, 1, verbose=0)
        return trainer

    def oscillating_loss(self):
        return self.fit([Rescale(self.scale), *mlp(ELU, 64)], SGD(2.0), epochs=10)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", choices=EPOCHS, default="digits")
    parser.add_argument("--images", type=positive, default=10_000, help="size of the training set from MNIST")
    parser.add_argument("--seeds", type=positive, default=3)
    parser.add_argument("--epochs", type=positive, nargs="+", help="after which healthy runs are reported on")
    args = parser.parse_args()
    data, scale = (load_digits(), 1 / 16) if args.data == "digits" else (load_mnist(), 1 / 255)
    data.X_train, data.y_train = data.X_train[: args.images], data.y_train[: args.images]
    names = [
        name for name, method in vars(Faults).items() if name not in ("__init__", "fit", "fit_few") and callable(method)
    ]
    for name in names:
        symptom, others, found = name.replace("_", " "), Counter(), 0
        for seed in range(args.seeds):
            symptoms = {finding.symptom for finding in report_quietly(getattr(Faults(data, scale, seed), name)())}
            found += symptom in symptoms
            others.update(symptoms - {symptom})
        extra = ", ".join(f"{other} {count}" for other, count in others.items()) or "nothing else"
        print(f"planted {symptom}: found in {found} of {args.seeds}; also found: {extra}", flush=True)
    reports, found = report_on_healthy_runs(data, scale, sorted(args.epochs or EPOCHS[args.data]), args.seeds)
    for well, end in ((True, "at least"), (False, "below")):
        counts = f"{reports[well]} reports, {found[well].total()} findings {dict(found[well])}"
        print(f"runs that end {end} {LEARNED_ACCURACY}: {counts}")


if __name__ == "__main__":
    main()
