"""Error rates of `trainer.report()`: false alarms in healthy runs, and planted faults that it misses.

    python benchmarks/report_limits.py --seeds 3 --images 1442 --data digits

A run is healthy if it ends with a validation accuracy of at least 0.8, or of pixels with such an IoU; findings in other
runs are counted separately. With the digits, nets also find their ink, 4 % of the pixels, in larger images.
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
    Upsample2D,
)
from minidl.losses import BinaryCrossEntropy, Dice, SoftmaxCrossEntropy
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
PIXEL_NETS = {
    "encoder and decoder": lambda outputs: [
        *(Rescale(1 / 16), Conv2D(8, 3, padding=1), ReLU(), MaxPool2D(2), Conv2D(16, 3, padding=1), ReLU()),
        *(Upsample2D(2), Conv2D(8, 3, padding=1), ReLU(), Conv2D(outputs, 1)),
    ],
    "batch norm of pixels": lambda outputs: [
        *(Rescale(1 / 16), Conv2D(8, 3, padding=1, use_bias=False), BatchNorm2D(), ReLU()),
        *(Conv2D(8, 3, padding=1, use_bias=False), BatchNorm2D(), ReLU(), Conv2D(outputs, 1)),
    ],
}
PIXEL_LOSSES = {
    "softmax": lambda: (SoftmaxCrossEntropy(ignore_index=255), 2),
    "weighted softmax": lambda: (SoftmaxCrossEntropy(weight=[1.0, 20.0], ignore_index=255), 2),
    "sigmoid": lambda: (BinaryCrossEntropy(ignore_index=255), 1),
    "Dice": lambda: (Dice(ignore_index=255), 1),
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
LEARNED = 0.8  # validation accuracy, or IoU, of a healthy run, at least
SCENE = 24  # pixels: height and width of images for nets of pixels
EPOCHS = {"digits": (1, 2, 5, 10, 20, 50), "mnist": (1, 2, 5)}


def make_trainer(layers, shape, optimizer, seed):
    model = Sequential(layers, input_shape=shape, seed=seed)
    return Trainer(model, "softmax_cross_entropy", optimizer, ["accuracy"], seed=seed)


def make_pixel_trainer(layers, loss, optimizer, seed):
    model = Sequential(layers, input_shape=(1, SCENE, SCENE), seed=seed)
    return Trainer(model, loss, optimizer, ["iou"], seed=seed)


def draw_scenes(images, seed):
    """Returns larger images, each with one of these at a random position, and labels of pixels: 1 for ink."""
    rng, size = np.random.default_rng(seed), images.shape[-1]
    X = np.zeros((len(images), 1, SCENE, SCENE), images.dtype)
    for scene, image, (top, left) in zip(X, images, rng.integers(0, SCENE - size + 1, (len(X), 2)), strict=True):
        scene[:, top : top + size, left : left + size] = image
    y = (X[:, 0] > 6).astype("u1")
    y[:, 0] = 255  # a row without labels
    return X, y


def report_quietly(trainer):
    with contextlib.redirect_stdout(io.StringIO()):
        return trainer.report()


def healthy_runs(data, scale, seeds, of_pixels):
    """Yields the name and the trainer of each net with each optimizer, its examples and those of its validation."""
    train, held_out = (data.X_train, data.y_train), (data.X_test[:2000], data.y_test[:2000])
    for net, name, seed in itertools.product(NETS, OPTIMIZERS, range(seeds)):
        trainer = make_trainer([Rescale(scale), *NETS[net]()], data.X_train.shape[1:], OPTIMIZERS[name](), seed)
        yield f"{net}, {name}, seed {seed}", trainer, train, held_out
    if not of_pixels:
        return
    train, held_out = draw_scenes(data.X_train, 0), draw_scenes(data.X_test, 1)
    for net, loss_name, name, seed in itertools.product(PIXEL_NETS, PIXEL_LOSSES, OPTIMIZERS, range(seeds)):
        loss, outputs = PIXEL_LOSSES[loss_name]()
        trainer = make_pixel_trainer(PIXEL_NETS[net](outputs), loss, OPTIMIZERS[name](), seed)
        shaped = [(X, y if loss_name != "sigmoid" else y.astype("f4")) for X, y in (train, held_out)]
        yield f"{net}, {loss_name}, {name}, seed {seed}", trainer, *shaped


def report_on_healthy_runs(runs, epochs):
    """Trains and reports after several numbers of epochs; prints the findings.

    Returns the number of reports and the findings, each by whether the run was healthy.
    """
    reports, found = Counter(), {True: Counter(), False: Counter()}
    for name, trainer, train, held_out in runs:
        run = []
        for more in np.diff([0, *epochs]):
            trainer.fit(*train, int(more), validation_data=held_out, verbose=0)
            run.append((trainer.epoch, report_quietly(trainer)))
        measure = next(iter(trainer.metrics))
        final = trainer.history[f"val_{measure}"][-1]
        reports[final >= LEARNED] += len(run)
        for epoch, finding in ((epoch, finding) for epoch, found_then in run for finding in found_then):
            found[final >= LEARNED][finding.symptom] += 1
            print(f"{name} (final {measure} {final:.2f}), epoch {epoch}: {finding}", flush=True)
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


class PixelFaults:
    """As `Faults`, in labels of pixels."""

    def __init__(self, data, scale, seed):
        self.seed, self.rng, (self.X, self.y) = seed, np.random.default_rng(seed), draw_scenes(data.X_train, seed)

    def fit_pixels(self, y, outputs=2):
        layers = PIXEL_NETS["encoder and decoder"](outputs)
        trainer = make_pixel_trainer(layers, SoftmaxCrossEntropy(ignore_index=255), Adam(0.003), self.seed)
        trainer.fit(self.X, y, -(-250 * 32 // len(y)), batch_size=32, verbose=0)  # 250 steps
        return trainer

    def one_class(self):
        return self.fit_pixels(np.where(self.y == 0, 255, self.y))  # only ink is labelled

    def imbalanced_labels(self):
        return self.fit_pixels((self.rng.random(self.y.shape) < 0.02).astype("u1"))  # of pixels like any other

    def unpredicted_class(self):
        some = (self.y < 255) & (self.rng.random(self.y.shape) < 0.1)
        return self.fit_pixels(np.where(some, 2, self.y), outputs=3)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", choices=EPOCHS, default="digits")
    parser.add_argument("--images", type=positive, default=10_000, help="size of the training set from MNIST")
    parser.add_argument("--seeds", type=positive, default=3)
    parser.add_argument("--epochs", type=positive, nargs="+", help="after which healthy runs are reported on")
    args = parser.parse_args()
    data, scale = (load_digits(), 1 / 16) if args.data == "digits" else (load_mnist(), 1 / 255)
    data.X_train, data.y_train = data.X_train[: args.images], data.y_train[: args.images]
    of_pixels = args.data == "digits"
    for faults in (Faults, PixelFaults)[: 1 + of_pixels]:
        for name in (name for name in vars(faults) if not name.startswith(("_", "fit"))):
            symptom, others, found = name.replace("_", " "), Counter(), 0
            for seed in range(args.seeds):
                symptoms = {finding.symptom for finding in report_quietly(getattr(faults(data, scale, seed), name)())}
                found += symptom in symptoms
                others.update(symptoms - {symptom})
            extra = ", ".join(f"{other} {count}" for other, count in others.items()) or "nothing else"
            where = " of pixels" if faults is PixelFaults else ""
            print(f"planted {symptom}{where}: found in {found} of {args.seeds}; also found: {extra}", flush=True)
    runs = healthy_runs(data, scale, args.seeds, of_pixels)
    reports, found = report_on_healthy_runs(runs, sorted(args.epochs or EPOCHS[args.data]))
    for well, end in ((True, "at least"), (False, "below")):
        counts = f"{reports[well]} reports, {found[well].total()} findings {dict(found[well])}"
        print(f"runs that end {end} {LEARNED}: {counts}")


if __name__ == "__main__":
    main()
