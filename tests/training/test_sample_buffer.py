"""The examples that a trainer keeps for reports: few copies, for any data, sampled deterministically."""

import weakref

import numpy as np
import pytest

from minidl import Sequential, Trainer
from minidl.layers import Dense, Flatten
from minidl.optimizers import SGD
from minidl.training.sample_buffer import MAX_BYTES, MAX_EXAMPLES, _positions

SHAPE = (1, 4, 4)


def data(n, dtype="float32"):
    """Returns images whose first value is their index."""
    X = np.zeros((n, *SHAPE), dtype)
    X[:, 0, 0, 0] = np.arange(n)
    return X, np.arange(n) % 3


def make_trainer(shape=SHAPE):
    model = Sequential([Flatten(), Dense(3)], shape)
    return Trainer(model, "softmax_cross_entropy", SGD(1e-12))


def kept(trainer):
    return trainer.sample_buffer.sample(trainer.sample_key)


def numbers(trainer):
    return kept(trainer).X.reshape(len(kept(trainer).X), -1)[:, 0].astype(int)


@pytest.mark.parametrize("size", [1, 3, 64, 500, 5000])
@pytest.mark.parametrize("n", [1, 2, 63, 300, 4000])
def test_a_fit_keeps_examples_of_all_its_batches(n, size):
    X, y = data(n)
    trainer = make_trainer()
    trainer.fit(X, y, batch_size=size, shuffle=False, verbose=0)
    result, sample = numbers(trainer), kept(trainer)
    assert len(set(result)) == len(result) <= MAX_EXAMPLES
    assert len(result) >= min(MAX_EXAMPLES, n) / 2
    assert (sample.y == result % 3).all()
    size = min(n, size)
    assert sample.size == size
    batches = [set(result[sample.batches == batch] // size) for batch in np.unique(sample.batches)]
    assert all(len(batch) == 1 for batch in batches)
    assert len(set().union(*batches)) == len(batches) == min(n // size, max(32, MAX_EXAMPLES // size))
    assert result.max() - result.min() > 0.8 * (n - n % size) - 2


def test_train_batch_keeps_examples_of_the_latest_batches():
    X, y = data(6400)
    trainer = make_trainer()
    for step in range(100):
        trainer.train_batch(X[64 * step :][:64], y[64 * step :][:64])
    result, batches = numbers(trainer), kept(trainer).batches
    assert len(set(result)) == len(result) == MAX_EXAMPLES
    assert [set(result[batches == batch] // 64) for batch in np.unique(batches)] == [
        {n} for n in dict.fromkeys(result // 64)
    ]
    assert result.max() > 32 * 64
    trainer.fit(X[:100], y[:100], verbose=0)
    assert numbers(trainer).max() < 100
    trainer.train_batch(X[:2], y[:2])
    assert 2 < len(result) <= MAX_EXAMPLES


def test_rows_of_weight_zero_are_not_kept_and_other_weights_are():
    X, y = data(500)
    trainer, weights = make_trainer(), np.arange(500) % 2 * 3.0
    trainer.fit(X, y, sample_weight=weights, verbose=0)
    assert (numbers(trainer) % 2 == 1).all() and (kept(trainer).weights == 1).all()  # divided by their mean
    trainer.train_batch(X, y, sample_weight=weights)
    assert (numbers(trainer) % 2 == 1).all()
    trainer.train_batch(X, y)
    assert set(kept(trainer).weights) == {1, 3}


def test_the_seed_determines_the_sample():
    def result(seed, epochs=1):
        trainer = Trainer(Sequential([Flatten(), Dense(3)], SHAPE), "softmax_cross_entropy", SGD(0.1), seed=seed)
        _positions.cache_clear()
        trainer.fit(*data(2000), epochs=epochs, verbose=0)
        return list(numbers(trainer))

    assert result(0) == result(0) != result(1)
    assert result(0, epochs=3) == result(0)  # sampled in the first epoch only


@pytest.mark.parametrize("method", ["fit", "train_batch"])
def test_user_data_is_neither_kept_alive_nor_read_again(method):
    X, y = data(1000)
    trainer = make_trainer()
    options = {"verbose": 0} if method == "fit" else {}
    getattr(trainer, method)(X[100:900], y[100:900], **options)
    before = kept(trainer).X.copy()
    watched = weakref.ref(X)
    X[:] = -1
    assert (before == kept(trainer).X).all()
    del X
    assert watched() is None


@pytest.mark.parametrize(("side", "limit"), [(512, 8), (2048, 1)])
def test_only_few_large_images_are_kept(side, limit):
    X = np.zeros((40, 1, side, side), "u1") if side < 2000 else np.zeros((3, 1, side, side), "u1")
    trainer = make_trainer(X.shape[1:])
    trainer.fit(X, np.zeros(len(X), int), batch_size=2, verbose=0)
    assert len(kept(trainer).X) <= limit == max(1, MAX_BYTES // (8 * side * side))
    for k in range(len(X)):
        trainer.train_batch(X[k : k + 1], [0])
    assert 1 <= len(kept(trainer).X) <= limit


def test_data_of_different_kinds_in_sequence():
    trainer = make_trainer()
    for dtype in ("uint8", "float32", "float64", "int16", "float16", ">f4"):
        X, y = data(100, dtype)
        trainer.fit(X.reshape(100, -1), y, verbose=0)
        assert len(numbers(trainer)) == 64
        trainer.train_batch(np.asfortranarray(X), y)
    assert len(numbers(trainer)) == 72 - 64 + 64  # both were converted to float32
