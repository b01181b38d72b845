"""ColorJitter: the same images as NumPy's, the identity in inference, errors."""

import numpy as np
import pytest
import reference_augment as augment

from minidl import Sequential
from minidl.layers import ColorJitter
from minidl.testing import check_layer

LAYERS = {  # name -> (layer, channels, ranges)
    "all": (lambda: ColorJitter(0.2, 0.3, 0.4), 3, [(0.8, 1.2), (0.7, 1.3), (0.6, 1.4)]),
    "grey": (lambda: ColorJitter(0.2, contrast=0.3), 1, [(0.8, 1.2), (0.7, 1.3), (1, 1)]),
    "pairs": (lambda: ColorJitter((0, 0.5), (1, 4), (0.5, 0.5)), 3, [(0, 0.5), (1, 4), (0.5, 0.5)]),
    "none below 0": (lambda: ColorJitter(1.5, 2, 3), 3, [(0, 2.5), (0, 3), (0, 4)]),
    "nothing": (lambda: ColorJitter(), 3, [(1, 1)] * 3),
}
every = pytest.mark.parametrize("name", LAYERS)


@every
def test_keeps_the_contract(name):
    layer, channels, _ = LAYERS[name]
    check_layer(layer(), (channels, 4, 3))


@every
@pytest.mark.parametrize("n", [1, 3, 17])
def test_agrees_with_numpy(name, n, rng):
    """Each training forward by hand is a new step; backward uses the factors of its forward."""
    layer, channels, ranges = LAYERS[name]
    model = Sequential([layer()], input_shape=(channels, 4, 3), dtype="float64", seed=4)
    x, dy = (rng.normal(size=(n, channels, 4, 3)) for _ in range(2))
    for step in range(3):
        factors = augment.jitter_factors(range(n), ranges, seed=4, step=step, path="0")
        y, dx = model.forward(x, training=True), model.backward(dy)
        np.testing.assert_allclose(y, augment.jitter_colors(x, factors), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(dx, augment.jitter_colors_gradient(dy, factors), rtol=1e-12, atol=1e-12)
    assert model.predict(x).tobytes() == model.forward(x).tobytes() == x.tobytes()
    assert model.params == {} and model.output_shape == (channels, 4, 3)


def test_values_have_no_limits():
    model = Sequential([ColorJitter(brightness=(2, 2))], input_shape=(1, 2, 2))
    x = np.array([[[[-3, 0.5], [1, 255]]]], "f4")
    np.testing.assert_array_equal(model.forward(x, training=True), 2 * x)


@pytest.mark.parametrize(
    ("layer", "shape", "error", "message"),
    [
        (ColorJitter(-0.1), (3, 4, 4), ValueError, "brightness: expected a number of at least 0, got -0.1"),
        (ColorJitter(contrast="1"), (3, 4, 4), TypeError, "contrast: expected a number, got '1'"),
        (ColorJitter(saturation=(1, 0.5)), (3, 4, 4), ValueError, r"saturation: expected numbers from 0.*\(1, 0.5\)"),
        (ColorJitter(saturation=0.1), (1, 4, 4), ValueError, "saturation: expected 3 channels, got 1"),
        (ColorJitter(0.1), (2, 4, 4), ValueError, "expected 1 or 3 channels, got 2"),
        (ColorJitter(0.1), (8,), ValueError, r"\(channels, height, width\)"),
        (ColorJitter(1e39), (3, 4, 4), ValueError, "brightness: expected a finite number that float32 can hold"),
    ],
    ids=str,
)
def test_invalid_arguments(layer, shape, error, message):
    with pytest.raises(error, match=rf"layer 0, ColorJitter.*{message}"):
        Sequential([layer], input_shape=shape)


def test_repr():
    assert repr(ColorJitter(0.2, saturation=(0, 1))) == "ColorJitter(brightness=0.2, saturation=(0, 1))"
