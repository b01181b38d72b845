"""AvgPool2D, AdaptiveAvgPool2D, GlobalAvgPool2D: shapes and arguments; values against the reference, in a model."""

import numpy as np
import pytest
import reference as ref
import reference_images as images
from geometries import Pool

from minidl import Sequential
from minidl.layers import AdaptiveAvgPool2D, AvgPool2D, Flatten, GlobalAvgPool2D

CASE = Pool(5, 2, 9, 8, (3, 2), (2, 3), (0, 1, 1, 0), True, dilation=(1, 2))  # no default


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("count", [True, False])
def test_agrees_with_the_reference(count, dtype, rng):
    case = CASE
    layer = AvgPool2D(case.kernel, case.stride, case.padding, case.ceil_mode, count, case.dilation)
    model = Sequential([layer], input_shape=case.x_shape[1:], dtype=dtype)
    x, dy = rng.normal(size=case.x_shape).astype(dtype), rng.normal(size=case.y_shape).astype(dtype)
    bound = {"rtol": ref.rounding(99, dtype), "atol": ref.rounding(99, dtype)}
    np.testing.assert_allclose(model.forward(x, training=True), images.avgpool2d_forward(x, case, count), **bound)
    np.testing.assert_allclose(model.backward(dy), images.avgpool2d_backward(dy, case, count), **bound)
    assert model.output_shape == case.y_shape[1:] and model.params == {}


def test_defaults():
    for layer in (AvgPool2D(3), AvgPool2D(3, stride=3), AvgPool2D((3, 3), (3, 3), (0, 0), False, True)):
        Sequential([layer], input_shape=(2, 9, 13))
        assert layer.out_shape == (2, 3, 4)


@pytest.mark.parametrize("n", [1, 16, 17])
def test_global_is_the_mean_of_each_channel(n, rng):
    x, dy = rng.normal(size=(n, 5, 7, 6)), rng.normal(size=(n, 5))
    model = Sequential([GlobalAvgPool2D()], input_shape=(5, 7, 6), dtype="float64")
    np.testing.assert_allclose(model.forward(x, training=True), x.mean(axis=(2, 3)), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(model.backward(dy), np.broadcast_to(dy[:, :, None, None] / 42, x.shape), rtol=1e-14)
    window = Sequential([AvgPool2D((7, 6)), Flatten()], input_shape=(5, 7, 6), dtype="float64")
    assert window.predict(x).tobytes() == model.predict(x).tobytes()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"pool_size": 0}, ValueError, "pool_size.*got 0"),
        ({"pool_size": "2"}, TypeError, "pool_size.*got '2'"),
        ({"pool_size": 9}, ValueError, "9.*8"),
        ({"stride": 1.5}, TypeError, "stride.*got 1.5"),
        ({"padding": -1}, ValueError, "padding.*got -1"),
        ({"pool_size": 3, "padding": 2}, ValueError, "padding.*at most half.*3.*got 2"),
    ],
    ids=str,
)
def test_invalid_arguments(arguments, error, message):
    with pytest.raises(error, match=rf"layer 0, AvgPool2D.*\(4, 8, 8\).*(?:{message})"):
        Sequential([AvgPool2D(**{"pool_size": 2} | arguments)], input_shape=(4, 8, 8))


@pytest.mark.parametrize("shape", [(8,), (8, 8), (1, 8, 8, 8)])
@pytest.mark.parametrize("layer", [AvgPool2D(2), GlobalAvgPool2D()], ids=str)
def test_needs_an_image(layer, shape):
    with pytest.raises(ValueError, match=r"layer 0, (Global)?AvgPool2D.*\(channels, height, width\)"):
        Sequential([type(layer)(**layer.config())], input_shape=shape)


@pytest.mark.parametrize(("size", "out"), [(3, (3, 3)), ((4, 2), (4, 2)), ((None, 3), (7, 3)), ([5, None], (5, 6))])
def test_adaptive_takes_a_size(size, out, rng):
    x = rng.normal(size=(5, 2, 7, 6)).astype("f4")
    model = Sequential([AdaptiveAvgPool2D(size)], input_shape=(2, 7, 6))
    assert model.output_shape == (2, *out)
    expected = np.empty((5, 2, *out), "f8")
    for i, j in np.ndindex(out):
        rows, columns = (slice(k * n // m, -(-(k + 1) * n // m)) for k, n, m in zip((i, j), (7, 6), out, strict=True))
        expected[:, :, i, j] = x[:, :, rows, columns].mean(axis=(2, 3))
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
    with pytest.raises(error, match=rf"layer 0, AdaptiveAvgPool2D.*{message}"):
        Sequential([AdaptiveAvgPool2D(size)], input_shape=(4, 8, 8))
    with pytest.raises(ValueError, match=r"layer 0, AdaptiveAvgPool2D.*\(channels, height, width\)"):
        Sequential([AdaptiveAvgPool2D(2)], input_shape=(8,))
