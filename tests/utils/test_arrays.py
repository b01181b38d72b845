"""Copies between memory orders, zeros that take no memory, what is an array."""

import array
import collections
import itertools

import numpy as np
import pytest

from minidl import Sequential, Trainer
from minidl.layers import Dense, Flatten
from minidl.optimizers import SGD
from minidl.utils.arrays import as_array, copy_into, is_zeros_view, with_memory_order, zeros_view


@pytest.mark.parametrize("shape", [(), (5,), (0, 3), (40, 7), (7, 40), (33, 5, 2), (17, 3, 2, 4)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_copies_in_all_memory_orders(shape, dtype):
    source = np.random.default_rng(0).random(shape).astype(dtype)
    for order in itertools.permutations(range(len(shape))):
        for view in (source, np.asfortranarray(source), np.repeat(source, 2, -1)[..., ::2] if shape else source):
            target = with_memory_order(np.full(source.size, np.nan, dtype), shape, order)
            copy_into(target, view)
            assert np.array_equal(target, source)


def test_views_of_zeros():
    view = zeros_view((2**20, 2**20), "float32")
    assert is_zeros_view(view) and view.shape == (2**20, 2**20) and view.dtype == "float32"
    others = [np.zeros((3, 4)), np.broadcast_to(-0.0, (3, 4)), np.broadcast_to(1.0, (3, 4)), np.zeros(()), np.zeros(1)]
    assert not any(map(is_zeros_view, [*others, np.broadcast_to(np.zeros(4), (3, 4))]))


class Batches:
    """A sequence of batches as Keras's: NumPy would read it without end."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return np.ones((4, 3)), np.ones(4)


@pytest.mark.parametrize(
    "value", [Batches(), iter([1.0]), (row for row in np.eye(3))], ids=["batches", "iterator", "rows"]
)
def test_batches_are_no_array(value):
    with pytest.raises(TypeError, match=f"X: expected an array, got {type(value).__name__}; only `fit` takes batches"):
        as_array(value, "X")


@pytest.mark.parametrize("make", [list, tuple, collections.deque, lambda a: array.array("d", a), memoryview])
def test_sequences_and_buffers_are_arrays(make):
    assert np.array_equal(as_array(make(np.arange(3.0)), "X"), [0, 1, 2])


@pytest.mark.parametrize("width", [4, 5])
def test_images_of_several_sizes_are_named(width):
    one, other = np.zeros((3, 4, 4)), np.zeros((3, 5, width))
    objects = np.empty(2, object)
    objects[:] = [one.tolist(), other.tolist()]
    found = rf"X: expected images of one size, got \(3, 4, 4\) and \(3, 5, {width}\): crop or pad them to one size"
    trainer = Trainer(Sequential([Flatten(), Dense(2)], input_shape=(3, 4, 4)), "softmax_cross_entropy", SGD(0.1))
    for X in ([one, other], (one, one, other), [one.tolist(), other.tolist()], objects):
        y = [0] * len(X)
        for call in (trainer.model.predict, lambda X, y=y: trainer.fit(X, y), lambda X, y=y: trainer.evaluate(X, y)):
            with pytest.raises(ValueError, match=found):
                call(X)
    with pytest.raises(ValueError, match=r"y: expected images of one size, got \(4, 4\) and \(5, 4\)"):
        as_array([np.zeros((4, 4)), np.zeros((5, 4))], "y")


@pytest.mark.parametrize("value", [[[1, 2], [3]], [[[1], [2, 3]], [[1]]], [np.zeros(3), np.zeros(4)], [np.eye(2), 3]])
def test_other_ragged_lists_are_no_images(value):
    with pytest.raises(ValueError, match="X: expected rows of one shape: "):
        as_array(value, "X")
