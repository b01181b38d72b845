"""Rescale: y = x * scale + offset of any shape."""

import numpy as np
import pytest

from minidl import Sequential
from minidl.layers import Rescale


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(5,), (2, 3, 4)])
@pytest.mark.parametrize(("scale", "offset"), [(1 / 255, 0.0), (2, -1), (-0.5, 3.25), (0.0, 1.0)])
def test_agrees_with_numpy(scale, offset, shape, dtype, rng):
    model = Sequential([Rescale(scale, offset)], input_shape=shape, dtype=dtype)
    x = rng.integers(0, 256, (17, *shape)).astype(np.uint8)
    dy = rng.normal(size=x.shape).astype(dtype)
    tolerance = {"rtol": 4 * np.finfo(dtype).eps, "atol": 4 * np.finfo(dtype).eps}
    np.testing.assert_allclose(model.forward(x, training=True), x.astype(dtype) * scale + offset, **tolerance)
    np.testing.assert_allclose(model.backward(dy), dy * scale, **tolerance)


def test_offset_defaults_to_zero():
    model = Sequential([Rescale(2)], input_shape=(1,))
    np.testing.assert_array_equal(model.predict([[0], [3]]), [[0], [6]])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((np.nan,), ValueError, "scale: expected a finite number.* got nan"),
        ((np.inf,), ValueError, "scale.*got inf"),
        ((1, -np.inf), ValueError, "offset.*got -inf"),
        (("1",), TypeError, "scale.*'1'"),
        ((1, None), TypeError, "offset.*None"),
    ],
)
def test_invalid_arguments(arguments, error, message):
    with pytest.raises(error, match=rf"layer 0, Rescale.*{message}"):
        Sequential([Rescale(*arguments)], input_shape=(4,))
