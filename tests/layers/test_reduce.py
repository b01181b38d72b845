"""Reduce: shapes, arguments and a norm for each pixel."""

import numpy as np
import pytest

from minidl import Sequential
from minidl.layers import Reduce
from minidl.testing import check_layer


@pytest.mark.parametrize(
    ("axis", "keepdims", "shape"),
    [
        (0, False, (4, 5)),
        (-1, True, (3, 4, 1)),
        ((0, 2), False, (4,)),
        ((1, 0, 2), False, (1,)),
        ([2, 1], True, (3, 1, 1)),
    ],
)
def test_shapes(axis, keepdims, shape, rng):
    model = Sequential([Reduce("max", axis, keepdims=keepdims)], input_shape=(3, 4, 5), dtype="float64")
    x = rng.standard_normal((6, 3, 4, 5))
    axes = tuple(axis % 3 + 1 for axis in np.ravel(axis))
    np.testing.assert_array_equal(model.predict(x), x.max(axes).reshape(6, *shape))


def test_norm_of_each_pixel(rng):
    model = Sequential([Reduce("l2", 0, keepdims=True)], input_shape=(3, 4, 5), dtype="float64")
    x = rng.standard_normal((6, 3, 4, 5))
    np.testing.assert_allclose(model.predict(x), np.linalg.norm(x, axis=1, keepdims=True), 1e-14)
    check_layer(Reduce("l2", 0, keepdims=True), (3, 4, 5))


@pytest.mark.parametrize(
    ("layer", "error", "message"),
    [
        (Reduce("median", 0), ValueError, "function: expected 'mean', 'sum', 'max', 'min' or 'l2', got 'median'"),
        (Reduce("sum", 3), ValueError, "axis: expected at most 2, got 3"),
        (Reduce("sum", (0, -3)), ValueError, "axis: expected some of 0 to 2, each once"),
        (Reduce("sum", None), TypeError, "axis: expected an integer, got None"),
        (Reduce("sum", 0, keepdims=1), TypeError, "keepdims: expected True or False, got 1"),
    ],
    ids=str,
)
def test_invalid_arguments(layer, error, message):
    with pytest.raises(error, match=rf"layer 0, Reduce.*{message}"):
        Sequential([layer], input_shape=(3, 4, 5))
