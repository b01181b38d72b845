"""Cutout: the same boxes as NumPy's, the identity in inference, in training and blocked, errors."""

import numpy as np
import pytest
import reference_augment as augment

from minidl import Sequential
from minidl.layers import Cutout
from minidl.testing import check_layer

SHAPE = (2, 6, 5)


@pytest.mark.parametrize("layer", [Cutout(3), Cutout((1, 9), value=-1.5), Cutout(2, rate=0.5)], ids=str)
def test_keeps_the_contract(layer):
    check_layer(layer, SHAPE)


@pytest.mark.parametrize("n", [1, 3, 17])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_agrees_with_numpy(n, dtype, rng):
    """Each training forward by hand is a new step; backward uses the boxes of its forward."""
    model = Sequential([Cutout((3, 2), value=7.5, rate=0.6)], input_shape=SHAPE, dtype=dtype, seed=4)
    x, dy = (rng.normal(size=(n, *SHAPE)).astype(dtype) for _ in range(2))
    for step in range(3):
        inside = augment.cutout_boxes(range(n), SHAPE, (3, 2), 0.6, seed=4, step=step, path="0")
        np.testing.assert_array_equal(model.forward(x, training=True), np.where(inside, 7.5, x))
        np.testing.assert_array_equal(model.backward(dy), np.where(inside, 0, dy))
    assert model.predict(x).tobytes() == model.forward(x).tobytes() == x.tobytes()
    assert model.params == {} and model.output_shape == SHAPE


@pytest.mark.parametrize(
    ("layer", "error", "message"),
    [
        (Cutout(0), ValueError, "size: expected at least 1, got 0"),
        (Cutout(2.5), TypeError, "size: expected an integer, got 2.5"),
        (Cutout((1, 2, 3)), ValueError, "size: expected an integer or a pair"),
        (Cutout(2**40), ValueError, "size: expected at most 16777216"),
        (Cutout(2, value=np.inf), ValueError, "value: expected a finite number"),
        (Cutout(2, value=1e39), ValueError, "value: expected a finite number that float32 can hold"),
        (Cutout(2, value="0"), TypeError, "value: expected a number, got '0'"),
        (Cutout(2, rate=1.1), ValueError, "rate: expected a number from 0 to 1, got 1.1"),
        (Cutout(2, rate=None), TypeError, "rate: expected a number, got None"),
    ],
    ids=str,
)
def test_invalid_arguments(layer, error, message):
    with pytest.raises(error, match=rf"layer 0, Cutout.*{message}"):
        Sequential([layer], input_shape=SHAPE)


def test_needs_an_image():
    with pytest.raises(ValueError, match=r"layer 0, Cutout.*\(channels, height, width\)"):
        Sequential([Cutout(2)], input_shape=(8,))


def test_repr():
    assert [repr(Cutout(16)), repr(Cutout(8, rate=0.5))] == ["Cutout(size=16)", "Cutout(size=8, rate=0.5)"]
