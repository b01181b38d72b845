"""Upsample2D: repeats pixels in blocks, sums their gradients; interpolates; and what is refused."""

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


def test_a_size_is_a_scale(rng):
    x = rng.normal(size=(5, 2, 3, 4)).astype("f4")
    for by_scale, by_size in (
        (Upsample2D((2, 3)), Upsample2D(size=(6, 12))),
        (Upsample2D(2, "bilinear"), Upsample2D(size=(6, 8), mode="bilinear")),
        (Upsample2D(2, "bilinear", True), Upsample2D(None, "bilinear", True, (6, 8))),
    ):
        expected, found = (Sequential([layer], input_shape=(2, 3, 4)).predict(x) for layer in (by_scale, by_size))
        assert expected.tobytes() == found.tobytes()


def test_bilinear_keeps_planes_and_corners(rng):
    """A linear image stays linear inside; with align_corners its corners keep their values."""
    rows, columns = np.mgrid[:4, :5]
    x = (2 * rows + 3 * columns)[None, None].astype("f8")
    aligned = Upsample2D(size=(7, 9), mode="bilinear", align_corners=True)
    y = Sequential([aligned], (1, 4, 5), dtype="float64").predict(x)
    np.testing.assert_allclose(y[0, 0], 2 * np.linspace(0, 3, 7)[:, None] + 3 * np.linspace(0, 4, 9), atol=1e-12)
    y = Sequential([Upsample2D(2, "bilinear")], (1, 4, 5), dtype="float64").predict(x)
    np.testing.assert_allclose(np.diff(y[0, 0], axis=1)[:, 1:-1], 1.5)


def test_a_scale_rounds_the_size_down():
    assert Sequential([Upsample2D((1.5, 0.7), "bilinear")], (2, 5, 5)).output_shape == (2, 7, 3)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ValueError, "expected either scale or size, got scale=None and size=None"),
        ({"scale": 2, "size": 8}, ValueError, "expected either scale or size, got scale=2 and size=8"),
        ({"scale": 2, "mode": "bicubic"}, ValueError, "mode: expected 'nearest' or 'bilinear', got 'bicubic'"),
        ({"scale": 2, "align_corners": True}, ValueError, "align_corners: expected False for mode='nearest'"),
        ({"scale": 2, "align_corners": 1}, TypeError, "align_corners: expected True or False, got 1"),
        ({"size": (8, 9)}, ValueError, r"size: expected multiples of \(4, 4\) for mode='nearest', got \(8, 9\)"),
        ({"size": 0, "mode": "bilinear"}, ValueError, "size: expected at least 1, got 0"),
        ({"size": 1.5, "mode": "bilinear"}, TypeError, "size: expected an integer, got 1.5"),
        ({"scale": 0, "mode": "bilinear"}, ValueError, "scale: expected a number above 0, got 0"),
        ({"scale": "2", "mode": "bilinear"}, TypeError, "scale: expected a number, got '2'"),
        ({"scale": (1, 2, 3), "mode": "bilinear"}, ValueError, "scale: expected a number or a pair"),
        ({"scale": 0.1, "mode": "bilinear"}, ValueError, "scale: expected to keep at least 1 x 1 of 4 x 4, got 0.1"),
        ({"scale": 1e30, "mode": "bilinear"}, ValueError, "size: expected"),
    ],
    ids=str,
)
def test_invalid_arguments(arguments, error, message):
    with pytest.raises(error, match=rf"layer 0, Upsample2D.*{message}"):
        Sequential([Upsample2D(**arguments)], input_shape=(1, 4, 4))
