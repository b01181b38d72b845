"""Tiles that threads share: the same bits for 1 to 40 threads, whatever is left over, and few barriers."""

import hashlib

import numpy as np
import pytest

from minidl import Layer, Sequential, Trainer
from minidl.layers import (
    BatchNorm2D,
    Conv2D,
    Dense,
    DepthwiseConv2D,
    Dropout,
    Flatten,
    LayerNorm,
    MaxPool2D,
    Parallel,
    PReLU,
    ReLU,
    Rescale,
    Residual,
    Tanh,
)
from minidl.optimizers import SGD

CLASSES, STEPS = 5, 2


class Halve(Layer):
    """A layer in NumPy, which cuts the plan: forward and backward are calls of their own."""

    def forward(self, x, training):
        return x * np.asarray(0.5, x.dtype)

    def backward(self, dy):
        return dy * np.asarray(0.5, dy.dtype)


def lenet():
    convs = [Conv2D(6, 3, padding=1), ReLU(), MaxPool2D(2), Conv2D(16, 3), ReLU()]
    return (1, 10, 10), [Rescale(0.5), *convs, Flatten(), Dense(20), ReLU(), Dense(CLASSES)]


def winograd():
    return (16, 8, 8), [
        Conv2D(32, 3, padding=1),
        ReLU(),
        MaxPool2D(2),
        Conv2D(8, 1),
        PReLU(),
        Flatten(),
        Dense(CLASSES),
    ]


def branches():
    body = [Conv2D(8, 3, padding=1), BatchNorm2D(), ReLU(), Dropout(0.3)]
    concat = Parallel([Conv2D(5, 1), Tanh()], [DepthwiseConv2D(3, padding=1), PReLU()])
    return (3, 6, 6), [
        Conv2D(8, 3, padding=1),
        BatchNorm2D(),
        ReLU(),
        Residual(*body),
        concat,
        Flatten(),
        Dense(CLASSES),
    ]


def dense():
    return (17,), [Dense(33), Tanh(), Dropout(0.5), Dense(24), LayerNorm(), ReLU(), Dense(CLASSES)]


def cut():
    return (2, 6, 6), [Conv2D(6, 3), BatchNorm2D(), Halve(), ReLU(), MaxPool2D(2), Flatten(), Dense(CLASSES)]


NETS = (lenet, winograd, branches, dense, cut)
BATCHES = (2, 17, 33, 49, 80, 115, 257, 331, 1099)


def trainer_of(make, dtype="float32", threads=None):
    shape, layers = make()
    model = Sequential(layers, input_shape=shape, dtype=dtype, seed=1)
    return Trainer(model, "softmax_cross_entropy", SGD(0.05, momentum=0.9), num_threads=threads, clip_norm=1.0)


def digest(make, dtype, batch, threads):
    """Returns a hash of losses, weights and scores after two steps."""
    rng, trainer = np.random.default_rng(batch), trainer_of(make, dtype, threads)
    X, y = rng.standard_normal((batch, *trainer.model.input_shape)).astype(dtype), rng.integers(0, CLASSES, batch)
    losses = [trainer.train_batch(X, y) for _ in range(STEPS)]
    arrays = [*trainer.model.state_dict().values(), trainer.model.predict(X, num_threads=threads)]
    return hashlib.sha256(repr(losses).encode() + b"".join(array.tobytes() for array in arrays)).hexdigest()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("make", NETS)
def test_any_number_of_threads_gives_the_same_bits(make, dtype):
    rng = np.random.default_rng(NETS.index(make))
    for batch in BATCHES:
        want = digest(make, dtype, batch, 1)
        for threads in [2, *rng.integers(3, 41, 1 if batch > 1000 else 3)]:
            assert digest(make, dtype, batch, int(threads)) == want, f"{batch} examples on {threads} threads"


def split_phases(make, batch, threads):
    """Returns the number of phases in which threads share tiles, and of those with whole ones."""
    plan = trainer_of(make).steps().plan
    plan.blocked_limit = 0
    names = [name for name, _ in plan.phases(batch, threads)]
    return names.count("SPLIT_TILES"), names.count("TILES")


def test_ops_that_read_no_other_channel_follow_without_a_barrier():
    """Forward: gather, rescale (of one channel), conv with pool, conv with ReLU, dense with ReLU, dense; the loss, both
    ways. Back: dense with ReLU, dense, ReLU, conv with pool, conv. Patches of pixels are followed by nothing.
    """
    assert split_phases(lenet, 48, 2) == (12, 1)
    assert split_phases(lenet, 16, 2) == (12, 0)
    assert split_phases(lenet, 32, 2) == (0, 1)
    assert split_phases(lenet, 16, 4)[0] > 12  # four parts of six channels are not equal
    assert split_phases(winograd, 16, 2) == (11, 0)
