"""Fits on batches: data cut into batches, kinds of sources of them, and fits that are interrupted."""

import numpy as np
import pytest

from minidl import Sequential, Trainer
from minidl.callbacks import Checkpoint
from minidl.layers import BatchNorm1D, Dense, Dropout, ReLU
from minidl.optimizers import Adam

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.standard_normal((50, 5)).astype("float32"), RANDOM.integers(0, 3, 50)
WEIGHTS = RANDOM.random(50) + 0.1
CUTS = [slice(start, start + 16) for start in range(0, 50, 16)]
BATCHES = [(X[cut], Y[cut]) for cut in CUTS]
WEIGHTED = [(X[cut], Y[cut], WEIGHTS[cut]) for cut in CUTS]


def make_trainer(*more, input_shape=(5,), metrics=("accuracy",)):
    layers = [*more, Dense(8), BatchNorm1D(), ReLU(), Dropout(0.3), Dense(3)]
    return Trainer(Sequential(layers, input_shape), "softmax_cross_entropy", Adam(0.01), list(metrics), num_threads=2)


def on_arrays(*more, epochs=3, weights=None, **options):
    trainer = make_trainer(*more)
    trainer.fit(X, Y, epochs, batch_size=16, shuffle=False, sample_weight=weights, verbose=0, **options)
    return trainer


def assert_same(one, other):
    for name, array in one.model.state_dict().items():
        np.testing.assert_array_equal(array, other.model.state_dict()[name])
    assert (one.step, one.epoch) == (other.step, other.epoch)
    for name, values in one.history.items():
        if name != "images_per_second":
            np.testing.assert_array_equal(values, other.history[name])


class Loader:
    """As PyTorch's: iterates again each time, over lists."""

    def __iter__(self):
        return iter([list(batch) for batch in BATCHES])

    def __len__(self):
        return len(BATCHES)


class Sequence:
    """As Keras's."""

    ended = 0

    def __len__(self):
        return len(BATCHES)

    def __getitem__(self, index):
        return BATCHES[index]

    def on_epoch_end(self):
        self.ended += 1


class Unsized(Loader):
    """As PyTorch's, over an IterableDataset."""

    def __len__(self):
        raise TypeError("object of type 'IterableDataset' has no len()")


class NoLength:
    """An iterable that has no len()."""

    def __iter__(self):
        return iter(BATCHES)


class Items:
    """Python's own protocol: items up to an IndexError."""

    def __getitem__(self, index):
        return BATCHES[index]


class Endless(Items):
    """As Keras's PyDataset of unknown length."""

    def __len__(self):
        return None


def forever(batches=BATCHES):
    while True:
        yield from batches


class Crash:
    def __init__(self, step):
        self.step = step

    def on_save(self, trainer):
        if trainer.step == self.step:
            raise KeyboardInterrupt


def interrupted(step, source, path, **options):
    trainer = make_trainer()
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(source, callbacks=[Checkpoint(path, every_n_steps=1), Crash(step)], verbose=0, **options)
    return trainer
