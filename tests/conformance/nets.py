"""Random nets, trained and evaluated in every way; for fuzz.py, race.py and poison.py."""

import contextlib
import hashlib
from typing import Any

import numpy as np
from contract import chance
from threaded_ranks import Rank, run_ranks

import minidl
from minidl import Sequential, Trainer
from minidl.layers import (
    BatchNorm2D,
    Conv2D,
    Dense,
    Dropout,
    Dropout2D,
    Flatten,
    MaxPool2D,
    Parallel,
    RandomFlip,
    ReLU,
    Rescale,
    Upsample2D,
)
from minidl.losses import BinaryCrossEntropy, Dice, SoftmaxCrossEntropy
from minidl.optimizers import SGD, Adagrad, Adam, AdamW, RMSprop
from minidl.optimizers.base import Optimizer
from minidl_c.runtime.threads import set_thread_choice

set_thread_choice(False)  # predictions use all threads that they are asked to


def _image_layer(rng):
    kernel = int(rng.integers(1, 4))
    if rng.random() < 0.5:
        filters, groups = int(rng.choice([1, 2, 3, 4, 6, 8, 17])), int(rng.choice([1, 1, 2]))
        stride, padding = int(rng.integers(1, 3)), str(rng.choice(["same", "valid"]))
        dilation = int(rng.integers(1, 3))
        return Conv2D(filters, kernel, stride=stride, padding=padding, dilation=dilation, groups=groups)
    if rng.random() < 0.5:
        return MaxPool2D(kernel, stride=int(rng.integers(1, 3)), padding=int(rng.integers(0, kernel // 2 + 1)))
    return ReLU()


def _random_image_layers(rng):
    """Returns at most one layer of each kind that draws random numbers, in random order."""
    kinds = [draw for draw in rng.permutation(list(chance.DRAWS.values())) if rng.random() < 0.1]
    return [draw(rng).layer for draw in kinds]


def _layers(rng, is_image, classes):
    layers = [Rescale(1 / 64, -1)]
    if is_image:
        layers += _random_image_layers(rng)
        layers += [_image_layer(rng) for _ in range(rng.integers(0, 5))] + [Flatten()]
    for _ in range(rng.integers(0, 3)):
        layers += [Dense(int(rng.integers(1, 40))), ReLU()]
        layers += [Dropout(float(rng.random() * 0.9))] * (rng.random() < 0.5)
    return [*layers, Dense(classes)]


class Net:
    """A random model with data, determined by the seed."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        is_image, classes = rng.random() < 0.8, int(rng.integers(2, 6))
        shape = tuple(int(v) for v in rng.integers((1, 3, 3), (5, 11, 11)))[0 if is_image else 2 :]
        dtype = str(rng.choice(["float32", "float64"]))
        self.model = None
        while self.model is None:
            try:
                self.model = Sequential(_layers(rng, is_image, classes), shape, int(rng.integers(9)), dtype)
            except ValueError:  # a window that does not fit, groups that do not divide
                continue
        self.batch, n = int(rng.integers(1, 70)), int(rng.integers(1, 150))
        self.X = rng.integers(0, 256, (n, *shape)).astype(rng.choice(["uint8", "float32", "float64"]))
        self.y = rng.integers(0, classes, n)
        self.dy = rng.standard_normal((n, classes)).astype(dtype)
        weights = rng.random(n).astype(dtype) if rng.random() < 0.3 else None
        self.fit = {"epochs": int(rng.integers(1, 3)), "batch_size": self.batch, "sample_weight": weights, "verbose": 0}
        self.optimizer = _optimizer(rng)

    def results(self, threads: int) -> list[np.ndarray]:
        """Returns all results of training, forward, backward and prediction, whose bits do not depend on `threads`."""
        model, before = self.model, minidl.get_num_threads()
        trainer = Trainer(model, "softmax_cross_entropy", self.optimizer, metrics=["accuracy"], num_threads=threads)
        losses: list[float] = []
        with contextlib.suppress(FloatingPointError):  # some diverge, at the same step
            losses += trainer.fit(self.X, self.y, **self.fit)["loss"]
            losses += [trainer.train_batch(self.X[: self.batch], self.y[: self.batch])]
        found = [np.array([*losses, trainer.step])]
        minidl.set_num_threads(threads)
        try:
            found += [model.forward(self.X, training=True), model.backward(self.dy)]
        finally:
            minidl.set_num_threads(before)
        some = self.X[: self.batch], self.y[: self.batch]
        found += [*trainer.per_example_gradients(*some).values()]
        found += [*trainer.per_example_gradients(*some, reduce="norm").values()]
        found += [array for param in model.params.values() for array in (param.value, param.grad)]
        return [*found, model.predict(self.X, threads), model.predict(self.X[:3], threads)]


def of_sizes(seed: int, threads: int | None, dtype: str = "float32") -> list[np.ndarray]:
    """Returns all results of a random net of pixels, trained on batches of several sizes with ignored pixels."""
    rng = np.random.default_rng(seed)
    channels, classes = int(rng.integers(1, 4)), int(rng.integers(1, 5))
    widths = [int(width) for width in rng.choice([1, 3, 6, 16, 17], 3)]
    below = [MaxPool2D(2), Conv2D(widths[1], 3, padding=1), BatchNorm2D(), ReLU(), Upsample2D(2)]
    body = [Conv2D(widths[0], 3, padding=1), ReLU(), Parallel([], below, join="concat"), Dropout2D(0.2)]
    layers = [Rescale(1 / 64, -1), RandomFlip(), *body, Conv2D(widths[2], 3, padding="same"), Conv2D(classes, 1)]
    losses: dict[str, Any] = {
        "binary": BinaryCrossEntropy(pos_weight=3.0, ignore_index=9),
        "dice": Dice(ignore_index=9),
        "softmax": SoftmaxCrossEntropy(weight=rng.uniform(0, 3, classes).tolist(), ignore_index=9),
    }
    loss = losses[str(rng.choice(["dice", "binary" if classes == 1 else "softmax"]))]
    batches = []
    for height, width in rng.integers(1, 10, (6, 2)) * 2:
        n = int(rng.integers(1, 40))
        y = rng.integers(0, max(2, classes), (n, height, width))
        y[rng.random(y.shape) < 0.2] = 9
        batches.append((rng.integers(0, 256, (n, channels, height, width), dtype=np.uint8), y))
    model = Sequential(layers, (channels, None, None), int(rng.integers(9)), dtype)
    trainer = Trainer(model, loss, _optimizer(rng), ["iou", "accuracy"], num_threads=threads)
    with contextlib.suppress(FloatingPointError):
        trainer.fit(batches, epochs=2, verbose=0)
    logs = [trainer.history[name] for name in ("loss", "iou", "accuracy") if name in trainer.history]
    found = [np.array(logs), *model.state_dict().values(), *(param.grad for param in model.params.values())]
    return [*found, *(model.predict(x, threads) for x, _ in batches)]


def trained_by(ranks: int, seed: int, threads: int = 1) -> list[np.ndarray]:
    """Trains a net on `ranks` ranks simulated by threads; returns losses and weights, which must agree on all ranks."""

    def run_rank(comm: Rank) -> list[np.ndarray]:
        net, losses = Net(seed), []
        trainer = Trainer(net.model, "softmax_cross_entropy", net.optimizer, num_threads=threads, distributed=comm)
        with contextlib.suppress(FloatingPointError):
            losses += trainer.fit(net.X, net.y, **net.fit)["loss"]
        return [np.array([*losses, trainer.step]), *net.model.state_dict().values()]

    found, _ = run_ranks(ranks, run_rank)
    assert len({digest(one) for one in found}) == 1, "ranks differ"
    return found[0]


def _optimizer(rng: np.random.Generator) -> Optimizer:
    momentum, flag = float(rng.choice([0, 0.9])), bool(rng.random() < 0.5)
    several = SGD(0.01, momentum, nesterov=momentum > 0 and flag), RMSprop(0.001, momentum=momentum, centered=flag)
    return rng.choice([*several, SGD(0.01, momentum), Adagrad(0.01), Adam(0.01, amsgrad=flag), AdamW(0.01)])


def digest(arrays: list[np.ndarray]) -> str:
    """Returns a hash of the bits of the arrays."""
    return hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest()
