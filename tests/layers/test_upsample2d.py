"""Upsample2D: repeats pixels in blocks, sums their gradients; and what is refused."""

import numpy as np
import pytest

from minidl import Sequential
from minidl.layers import AvgPool2D, Upsample2D


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("scale", "pair"), [(1, (1, 1)), (2, (2, 2)), (3, (3, 3)), ((1, 4), (1, 4)), ([3, 2], (3, 2))])
def test_agrees_with_numpy(scale, pair, dtype, rng):
    x = rng.normal(size=(17, 2, 3, 4)).astype(dtype)
    model = Sequential([Upsample2D(scale)], input_shape=(2, 3, 4), dtype=dtype)
    y = model.forward(x, training=True)
    assert y.tobytes() == x.repeat(pair[0], axis=2).repeat(pair[1], axis=3).tobytes()
    dy = rng.integers(-9, 10, y.shape).astype(dtype)  # sums without rounding
    assert np.array_equal(model.backward(dy), dy.reshape(17, 2, 3, pair[0], 4, pair[1]).sum(axis=(3, 5)))


def test_average_pooling_inverts_it(rng):
    x = rng.normal(size=(17, 2, 3, 4)).astype("f4")
    model = Sequential([Upsample2D((2, 4)), AvgPool2D((2, 4))], input_shape=(2, 3, 4))
    np.testing.assert_allclose(model.predict(x), x, rtol=1e-6)


@pytest.mark.parametrize(
    ("scale", "error", "message"),
    [
        (0, ValueError, "scale: expected at least 1, got 0"),
        ((2, -1), ValueError, "scale.*got -1"),
        (1.5, TypeError, "scale: expected an integer, got 1.5"),
        ((1, 2, 3), ValueError, r"scale: expected an integer or a pair, got \(1, 2, 3\)"),
    ],
)
def test_invalid_scales(scale, error, message):
    with pytest.raises(error, match=rf"layer 0, Upsample2D.*{message}"):
        Sequential([Upsample2D(scale)], input_shape=(1, 4, 4))


def test_needs_an_image():
    with pytest.raises(ValueError, match=r"layer 0, Upsample2D.*\(channels, height, width\)"):
        Sequential([Upsample2D(2)], input_shape=(8,))
