"""Copies between memory orders, and zeros that take no memory."""

import itertools

import numpy as np
import pytest

from minidl.utils.arrays import copy_into, is_zeros_view, with_memory_order, zeros_view


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
