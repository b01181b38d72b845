"""Pad2D: the three forms of its argument, and what is refused."""

import numpy as np
import pytest

from minidl import Sequential
from minidl.layers import Conv2D, Pad2D


@pytest.mark.parametrize(
    ("padding", "frame"),
    [(0, ((0, 0), (0, 0))), (2, ((2, 2), (2, 2))), ((1, 3), ((1, 1), (3, 3))), ([4, 0, 1, 2], ((4, 0), (1, 2)))],
)
@pytest.mark.parametrize("value", [0.0, -1.5])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_agrees_with_numpy(padding, frame, value, dtype, rng):
    x = rng.normal(size=(17, 2, 3, 4)).astype(dtype)
    model = Sequential([Pad2D(padding, value)], input_shape=(2, 3, 4), dtype=dtype)
    y = model.forward(x, training=True)
    assert y.tobytes() == np.pad(x, ((0, 0), (0, 0), *frame), constant_values=value).tobytes()
    dy = rng.normal(size=y.shape).astype(dtype)
    (top, _), (left, _) = frame
    assert np.array_equal(model.backward(dy), dy[:, :, top : top + 3, left : left + 4])


def test_zeros_equal_a_convolutions_own_padding(rng):
    x = rng.normal(size=(17, 2, 6, 5))
    separate = Sequential([Pad2D((2, 1)), Conv2D(3, 3)], input_shape=(2, 6, 5), dtype="float64")
    combined = Sequential([Conv2D(3, 3, padding=(2, 1))], input_shape=(2, 6, 5), dtype="float64")
    for ours, theirs in zip(combined.params.values(), separate.params.values(), strict=True):
        ours.value = theirs.value
    np.testing.assert_allclose(separate.predict(x), combined.predict(x), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((-1,), ValueError, "padding: expected at least 0, got -1"),
        (((1, 2, 3),), ValueError, r"padding: .* or \(top, bottom, left, right\), got \(1, 2, 3\)"),
        (((1, 0, 0, -2),), ValueError, "padding: expected at least 0, got -2"),
        ((1.5,), TypeError, "padding: expected an integer, got 1.5"),
        ((None,), TypeError, "padding.*None"),
        ((1, np.inf), ValueError, "value: expected a finite number.* got inf"),
        ((1, 1e39), ValueError, "value.*float32"),
        ((1, "0"), TypeError, "value.*'0'"),
    ],
    ids=str,
)
def test_invalid_arguments(arguments, error, message):
    with pytest.raises(error, match=rf"layer 0, Pad2D.*{message}"):
        Sequential([Pad2D(*arguments)], input_shape=(1, 4, 4))


def test_needs_an_image():
    with pytest.raises(ValueError, match=r"layer 0, Pad2D.*\(channels, height, width\)"):
        Sequential([Pad2D(1)], input_shape=(8,))
