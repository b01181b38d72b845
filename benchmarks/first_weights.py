"""Comparison of initial weights: accuracy on MNIST over nets, inputs, optimizers, learning rates and seeds.

python benchmarks/first_weights.py --results build/bench/first_weights.jsonl            # 1.5 hours; can be interrupted
python benchmarks/first_weights.py --results ... --nets lenet --inputs standardized     # a part of it
python benchmarks/first_weights.py --results ... --table                                # print the tables only
"""

import argparse
import itertools
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from first_weights_table import format_tables
from nets import cnn, lenet5, make_model, mlp, resnet20, vgg

from minidl import Trainer, initializers
from minidl.datasets import load_mnist
from minidl.layers import Dense, Flatten, Normalize, ReLU, Rescale
from minidl.optimizers import SGD, Adam
from minidl.schedules import Polynomial

BATCH, TEST = 64, 2000
MEAN, STD = 0.1307, 0.3081  # of MNIST from 0 to 1
OPTIMIZERS = {"SGD": lambda lr: SGD(lr, momentum=0.9), "Adam": Adam}
INPUTS = {
    "standardized": lambda X: [Rescale(1 / (255 * STD), -MEAN / STD)],
    "0 to 1": lambda X: [Rescale(1 / 255)],
    "Normalize": lambda X: [Normalize.from_data(X)],
}
HALF_DECADES = {
    "SGD": (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
    "Adam": (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1),
}
DECADES = {optimizer: rates[::2] for optimizer, rates in HALF_DECADES.items()}


def deep_mlp():
    """Returns the layers of an MLP with twelve hidden layers of 64."""
    return [Flatten(), *(layer for _ in range(12) for layer in (Dense(64), ReLU())), Dense(10)]


@dataclass(frozen=True)
class Case:
    """A net, used without its Rescale, and its training. With 60,000 images, MNIST's own test set is used."""

    layers: Callable
    images: int
    epochs: int
    pooled: bool  # to 14 x 14
    rates: dict


CASES = {
    "lenet": Case(lenet5, 10_000, 2, False, HALF_DECADES),
    "mlp": Case(mlp, 10_000, 2, False, HALF_DECADES),
    "deep_mlp": Case(deep_mlp, 10_000, 2, False, HALF_DECADES),
    "cnn": Case(cnn, 4000, 1, True, DECADES),
    "vgg": Case(vgg, 3000, 1, True, DECADES),
    "resnet20": Case(resnet20, 3000, 1, True, DECADES),
    "lenet_60000": Case(lenet5, 60_000, 2, False, {"SGD": (0.02, 0.05)}),
}


def torch_uniform(rng, shape):
    """The default of torch.nn.Linear and Conv2d: kaiming_uniform_(a=sqrt(5)), uniform with limit 1 / sqrt(inputs)."""
    limit = 1 / math.sqrt(math.prod(shape[1:]))
    return rng.uniform(-limit, limit, shape)


def spectral_uniform(rng, shape):
    """Variance 2 min(inputs, outputs) / inputs^2: parametrization 1 of arXiv:2310.17813, with the 2 of He et al."""
    return initializers.he_uniform(rng, shape) * math.sqrt(min(1.0, shape[0] / shape[1]))


INITS = {  # name: initializer, factor of the last layer's weights
    "he": (initializers.he_uniform, 1.0),
    "he_small_last": (initializers.he_uniform, 0.1),
    "damped": (initializers.damped_he_uniform, 1.0),
    "spectral": (spectral_uniform, 1.0),
    "glorot": (initializers.glorot_uniform, 1.0),
    "torch": (torch_uniform, 1.0),  # biases too, as in PyTorch; all others start with zero biases
}


def draw_weights(model, init, last, seed):
    """Initializes the weights of all convolutions and dense layers; those of the last layer are scaled by `last`."""
    weights = [name for name, param in model.params.items() if param.value.ndim > 1]
    for i, name in enumerate(weights):
        param, rng = model.params[name], np.random.default_rng([seed, i])
        param.value = init(rng, param.value.shape) * (last if name == weights[-1] else 1.0)
        bias = model.params.get(name.removesuffix("weight") + "bias")
        if init is torch_uniform and bias is not None:
            limit = 1 / math.sqrt(math.prod(param.value.shape[1:]))
            bias.value = rng.uniform(-limit, limit, bias.value.shape)


def halve_images(images):
    """Halves the size of images: means of 2 x 2 pixels, rounded."""
    n, c, h, w = images.shape
    return images.reshape(n, c, h // 2, 2, w // 2, 2).mean(axis=(3, 5)).round().astype(np.uint8)


def split_images(mnist, case, first):
    """Returns X, y, X_test, y_test: a part of MNIST's training set that starts at `first`, or all of MNIST."""
    if case.images == len(mnist.X_train):
        return mnist.X_train, mnist.y_train, mnist.X_test, mnist.y_test
    X, y = (values[first : first + TEST + 10_000] for values in (mnist.X_train, mnist.y_train))
    X = halve_images(X) if case.pooled else X
    return X[TEST:], y[TEST:], X[:TEST], y[:TEST]


def run_case(case, data, inputs, optimizer, lr, init, seed):
    """Returns the test accuracy of a run whose learning rate falls linearly to 0; 0 if the run diverged."""
    X, y, X_test, y_test = data
    layers = [layer for layer in case.layers() if not isinstance(layer, Rescale)]
    model = make_model([*INPUTS[inputs](X), *layers], X.shape[1:], seed)
    draw_weights(model, *INITS[init], seed)
    falling = Polynomial(lr, case.epochs * math.ceil(case.images / BATCH))
    trainer = Trainer(model, "softmax_cross_entropy", OPTIMIZERS[optimizer](falling), ["accuracy"], seed=seed)
    try:
        trainer.fit(X[: case.images], y[: case.images], epochs=case.epochs, batch_size=BATCH, verbose=0)
    except FloatingPointError:
        return 0.0
    return trainer.evaluate(X_test, y_test)["accuracy"]


def measure(args, found):
    """Runs what `found` lacks, and adds it to `found` and to the file; all initial weights of a rate come together."""
    mnist = load_mnist()
    seeds = range(100, 100 + args.seeds) if args.confirm else range(args.seeds)
    args.results.parent.mkdir(parents=True, exist_ok=True)
    with args.results.open("a", encoding="utf-8") as file:
        for net in args.nets:
            case = CASES[net]
            data = split_images(mnist, case, 30_000 if args.confirm else 0)
            for inputs, optimizer in itertools.product(args.inputs, case.rates):
                rates = case.rates[optimizer] if args.rates is None else args.rates
                for lr, init, seed in itertools.product(rates, args.inits, seeds):
                    key = (net, inputs, optimizer, lr, init, seed)
                    if key not in found:
                        found[key] = run_case(case, data, *key[1:])
                        file.write(json.dumps([*key, found[key]]) + "\n")
                        file.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, required=True, help="a file of JSON lines, to which runs are appended")
    parser.add_argument("--nets", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--inputs", nargs="+", default=list(INPUTS), choices=list(INPUTS))
    parser.add_argument("--inits", nargs="+", default=list(INITS), choices=list(INITS))
    parser.add_argument("--rates", nargs="+", type=float, help="default: the grid of each optimizer")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--confirm", action="store_true", help="other images and seeds; use a separate file")
    parser.add_argument("--table", action="store_true", help="print the tables without running anything")
    args = parser.parse_args()
    found = {}
    if args.results.exists():
        rows = map(json.loads, args.results.read_text(encoding="utf-8").splitlines())
        found = {tuple(row[:-1]): row[-1] for row in rows}
    if not args.table:
        measure(args, found)
    print(format_tables(found, list(INITS)))


if __name__ == "__main__":
    main()
