"""MaxPool2D, AdaptiveMaxPool2D, GlobalMaxPool2D: shapes and arguments; values against the reference, in a model."""

import numpy as np
import pytest
import reference
from geometries import Pool

from minidl import Sequential
from minidl.layers import AdaptiveMaxPool2D, GlobalMaxPool2D, MaxPool2D

CASE = Pool(5, 2, 9, 8, (3, 2), (2, 3), (0, 1, 1, 0), True, dilation=(1, 2))  # no default


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_agrees_with_the_reference(dtype, rng):
    case = CASE
    layer = MaxPool2D(case.kernel, case.stride, case.padding, case.ceil_mode, case.dilation)
    model = Sequential([layer], input_shape=case.x_shape[1:], dtype=dtype)
    x = rng.integers(-3, 3, case.x_shape).astype(dtype)  # integers: ties in most windows
    dy = rng.integers(-9, 9, case.y_shape).astype(dtype)
    expected, winner = reference.maxpool2d_forward(x, case)
    np.testing.assert_array_equal(model.forward(x, training=True), expected)
    np.testing.assert_array_equal(model.backward(dy), reference.maxpool2d_backward(dy, winner, case))
    assert model.output_shape == case.y_shape[1:]


def test_stride_defaults_to_the_window():
    for layer in (MaxPool2D(3), MaxPool2D(3, stride=3), MaxPool2D((3, 3), (3, 3), (0, 0))):
        Sequential([layer], input_shape=(2, 9, 12))
        assert layer.out_shape == (2, 3, 4)
    overlapping = MaxPool2D(3, stride=1)
    Sequential([overlapping], input_shape=(2, 9, 12))
    assert overlapping.out_shape == (2, 7, 10)


def test_has_no_parameters():
    assert Sequential([MaxPool2D(2)], input_shape=(1, 4, 4)).params == {}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"pool_size": 0}, ValueError, "pool_size.*got 0"),
        ({"pool_size": (2, -1)}, ValueError, "pool_size.*got -1"),
        ({"pool_size": "2"}, TypeError, "pool_size.*got '2'"),
        ({"pool_size": None}, TypeError, "pool_size.*got None"),
        ({"pool_size": (1, 2, 3)}, ValueError, r"pool_size.*\(1, 2, 3\)"),
        ({"pool_size": 9}, ValueError, "9.*8"),
        ({"pool_size": (2, 9)}, ValueError, "9.*8.*width"),
        ({"stride": 0}, ValueError, "stride.*got 0"),
        ({"stride": 1.5}, TypeError, "stride.*got 1.5"),
        ({"padding": -1}, ValueError, "padding.*got -1"),
        ({"padding": (1, 1, 1)}, ValueError, r"padding: expected an integer, a pair, or \(top.*got \(1, 1, 1\)"),
        ({"padding": (0, 0, 0, 2)}, ValueError, "padding.*width.*at most half.*2.*got 2"),
        ({"dilation": 0}, ValueError, "dilation: expected at least 1, got 0"),
        ({"dilation": 8}, ValueError, "a window of 2 with a dilation of 8 does not fit into 8"),
        ({"pool_size": 3, "padding": 2}, ValueError, "padding.*at most half.*3.*got 2"),
        ({"pool_size": (4, 1), "padding": (2, 1)}, ValueError, "padding.*half.*1.*got 1"),
    ],
    ids=str,
)
def test_invalid_arguments(arguments, error, message):
    with pytest.raises(error, match=rf"layer 0, MaxPool2D.*\(4, 8, 8\).*(?:{message})"):
        Sequential([MaxPool2D(**{"pool_size": 2} | arguments)], input_shape=(4, 8, 8))


def test_padding_is_at_most_half_the_window():
    Sequential([MaxPool2D(3, padding=1), MaxPool2D(2, padding=1)], input_shape=(1, 5, 5))


@pytest.mark.parametrize("shape", [(8,), (8, 8), (1, 8, 8, 8)])
def test_needs_an_image(shape):
    with pytest.raises(ValueError, match=r"layer 0, MaxPool2D.*\(channels, height, width\)"):
        Sequential([MaxPool2D(2)], input_shape=shape)


@pytest.mark.parametrize("n", [1, 16, 17])
def test_global_is_the_maximum_of_each_channel(n, rng):
    x, dy = rng.integers(-3, 4, (n, 5, 7, 6)).astype("f4"), rng.normal(size=(n, 5)).astype("f4")
    model = Sequential([GlobalMaxPool2D()], input_shape=(5, 7, 6))
    assert np.array_equal(model.forward(x, training=True), x.max(axis=(2, 3)))
    expected = np.zeros((n, 5, 42), "f4")
    np.put_along_axis(expected, x.reshape(n, 5, 42).argmax(axis=2)[..., None], dy[..., None], axis=2)  # the first one
    assert np.array_equal(model.backward(dy), expected.reshape(x.shape))
    with pytest.raises(ValueError, match=r"layer 0, GlobalMaxPool2D.*\(channels, height, width\)"):
        Sequential([GlobalMaxPool2D()], input_shape=(42,))


@pytest.mark.parametrize(("size", "out"), [(3, (3, 3)), ((4, 2), (4, 2)), ((None, 3), (7, 3)), ([5, None], (5, 6))])
def test_adaptive_takes_a_size(size, out, rng):
    x = rng.normal(size=(5, 2, 7, 6)).astype("f4")
    model = Sequential([AdaptiveMaxPool2D(size)], input_shape=(2, 7, 6))
    assert model.output_shape == (2, *out)
    expected = np.empty((5, 2, *out), "f8")
    for i, j in np.ndindex(out):
        rows, columns = (slice(k * n // m, -(-(k + 1) * n // m)) for k, n, m in zip((i, j), (7, 6), out, strict=True))
        expected[:, :, i, j] = x[:, :, rows, columns].max(axis=(2, 3))
    np.testing.assert_allclose(model.predict(x), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("size", "error", "message"),
    [
        (0, ValueError, "size: expected at least 1, got 0"),
        (None, TypeError, "size: expected an integer, got None"),
        (2.5, TypeError, "size: expected an integer, got 2.5"),
        ((2,), ValueError, r"size: expected an integer or a pair, got \(2,\)"),
        ((1, 2, 3), ValueError, r"size: expected an integer or a pair, got \(1, 2, 3\)"),
        ((None, -1), ValueError, "size: expected at least 1, got -1"),
    ],
    ids=str,
)
def test_invalid_adaptive_sizes(size, error, message):
    with pytest.raises(error, match=rf"layer 0, AdaptiveMaxPool2D.*{message}"):
        Sequential([AdaptiveMaxPool2D(size)], input_shape=(4, 8, 8))
    with pytest.raises(ValueError, match=r"layer 0, AdaptiveMaxPool2D.*\(channels, height, width\)"):
        Sequential([AdaptiveMaxPool2D(2)], input_shape=(8,))
