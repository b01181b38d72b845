"""ReLU: max(x, 0) of any shape, with the edge cases of docs/reference/semantics.md."""

import numpy as np
import pytest

from minidl import Sequential
from minidl.layers import Dense, ReLU

EDGES = [-np.inf, -1.0, -1e-40, -0.0, 0.0, 1e-40, 1.0, np.inf]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(5,), (2, 3, 4), (3, 2)])
@pytest.mark.parametrize("n", [0, 1, 16, 17])
def test_agrees_with_numpy(n, shape, dtype, rng):
    model = Sequential([ReLU()], input_shape=shape, dtype=dtype)
    x, dy = (rng.normal(size=(n, *shape)).astype(dtype) for _ in range(2))
    np.testing.assert_array_equal(model.forward(x, training=True), np.maximum(x, 0))
    np.testing.assert_array_equal(model.backward(dy), np.where(x > 0, dy, 0))
    assert model.params == {} and model.output_shape == shape


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nan_is_kept_and_the_gradient_at_zero_is_zero(dtype):
    """X may not contain NaN, so a dense layer with identity weights introduces it through its bias."""
    edges = np.array([*EDGES, np.nan], dtype)
    model = Sequential([Dense(edges.size), ReLU()], input_shape=(1,), dtype=dtype)
    model.params["0.weight"].value[:] = 0
    model.params["0.bias"].value = edges
    y = model.forward(np.zeros((3, 1)), training=True)
    model.backward(np.full((3, edges.size), 2.0))
    tiny = np.abs(edges) < 1e-30  # whether these count as zero depends on the processor's mode
    np.testing.assert_array_equal(y[0, ~tiny], np.maximum(edges, 0)[~tiny])
    passed = model.params["0.bias"].grad
    np.testing.assert_array_equal(passed[:5], 0)
    np.testing.assert_array_equal(passed[[6, 7]], 6)
    assert np.isnan(y[:, -1]).all()
