"""Flatten and Reshape: row-major order, forward and backward."""

import numpy as np
import pytest

from minidl import Sequential
from minidl.layers import Conv2D, Flatten, ReLU, Reshape


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [0, 1, 16, 17])
@pytest.mark.parametrize("shape", [(2, 3, 4), (5, 2), (7,), (2, 2, 2, 2)])
def test_is_a_reshape_in_both_directions(shape, n, dtype, rng):
    model = Sequential([Flatten()], input_shape=shape, dtype=dtype)
    x = rng.normal(size=(n, *shape)).astype(dtype)
    y = model.forward(x, training=True)
    np.testing.assert_array_equal(y, x.reshape(n, int(np.prod(shape))))
    dy = rng.normal(size=y.shape).astype(dtype)
    np.testing.assert_array_equal(model.backward(dy), dy.reshape(x.shape))
    assert model.params == {}


@pytest.mark.parametrize("n", [3, 17])
def test_between_layers_it_changes_no_value(n, rng):
    x = rng.normal(size=(n, 2, 3, 4)).astype("float32")
    model = Sequential([ReLU(), Flatten(), ReLU()], input_shape=(2, 3, 4))
    np.testing.assert_array_equal(model.predict(x), np.maximum(x, 0).reshape(n, -1))


@pytest.mark.parametrize(
    ("in_shape", "shape", "out_shape"),
    [
        ((24,), (2, 3, 4), (2, 3, 4)),
        ((2, 3, 4), [4, -1], (4, 6)),
        ((2, 3, 4), (-1,), (24,)),
        ((6,), (1, -1, 1, 2), (1, 3, 1, 2)),
        ((1,), (-1, 1), (1, 1)),
    ],
)
def test_reshape_is_one_in_both_directions(in_shape, shape, out_shape, rng):
    model = Sequential([Reshape(shape)], input_shape=in_shape)
    x = rng.normal(size=(17, *in_shape)).astype("f4")
    y = model.forward(x, training=True)
    np.testing.assert_array_equal(y, x.reshape(17, *out_shape))
    np.testing.assert_array_equal(model.backward(y), x)
    assert model.output_shape == out_shape


def test_a_vector_reshaped_to_an_image_goes_through_a_convolution():
    assert Sequential([Reshape((1, 8, 8)), Conv2D(4, 3)], input_shape=(64,)).output_shape == (4, 6, 6)


@pytest.mark.parametrize(
    ("shape", "error", "message"),
    [
        ((5, 5), ValueError, r"shape: expected 24 elements, got \(5, 5\)"),
        ((5, -1), ValueError, r"shape: expected sizes that divide 24, got \(5, -1\)"),
        ((-1, -1), ValueError, r"shape: expected at most one -1, got \(-1, -1\)"),
        ((24, 0), ValueError, "shape: expected at least 1, got 0"),
        ((-24, -1), ValueError, "shape: expected at least -1, got -24"),
        ((2**62, 2**62, 2**62), ValueError, "shape: expected 24 elements"),
        ((), TypeError, "shape: expected a tuple such as"),
        (24, TypeError, "shape: expected a tuple such as .* got 24"),
        ((4.0, 6), TypeError, "shape: expected an integer, got 4.0"),
        (None, TypeError, "shape.*None"),
    ],
    ids=str,
)
def test_invalid_shapes(shape, error, message):
    with pytest.raises(error, match=rf"layer 0, Reshape.*{message}"):
        Sequential([Reshape(shape)], input_shape=(2, 3, 4))
