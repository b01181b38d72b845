"""Flatten: row-major order there, and the same way back."""

import numpy as np
import pytest

from minidl import Sequential
from minidl.layers import Flatten, ReLU


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [0, 1, 16, 17])
@pytest.mark.parametrize("shape", [(2, 3, 4), (5, 2), (7,), (2, 2, 2, 2)])
def test_is_a_reshape_both_ways(shape, n, dtype, rng):
    model = Sequential([Flatten()], input_shape=shape, dtype=dtype)
    x = rng.normal(size=(n, *shape)).astype(dtype)
    y = model.forward(x, training=True)
    np.testing.assert_array_equal(y, x.reshape(n, int(np.prod(shape))))
    dy = rng.normal(size=y.shape).astype(dtype)
    np.testing.assert_array_equal(model.backward(dy), dy.reshape(x.shape))
    assert model.params == {}


@pytest.mark.parametrize("n", [3, 17])
def test_between_layers_changes_no_number(n, rng):
    x = rng.normal(size=(n, 2, 3, 4)).astype("float32")
    model = Sequential([ReLU(), Flatten(), ReLU()], input_shape=(2, 3, 4))
    np.testing.assert_array_equal(model.predict(x), np.maximum(x, 0).reshape(n, -1))
