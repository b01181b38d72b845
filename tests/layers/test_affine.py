"""RandomRotation and RandomZoom: the same images as NumPy's, the identity in inference, errors."""

import numpy as np
import pytest
import reference_augment as augment

from minidl import Sequential
from minidl.layers import RandomRotation, RandomZoom
from minidl.testing import check_layer

SHAPE = (2, 6, 5)
LAYERS = {  # name -> (layer, draws, value)
    "rotation": (lambda: RandomRotation(30), {"degrees": (-30, 30)}, 0),
    "rotation of a range": (lambda: RandomRotation((45, 300), value=2.0), {"degrees": (45, 300)}, 2),
    "no rotation": (lambda: RandomRotation(0), {}, 0),
    "zoom": (lambda: RandomZoom(0.4), {"zoom": (0.6, 1.4)}, 0),
    "zoom of a range": (lambda: RandomZoom((0.25, 0.5), value=-1.0), {"zoom": (0.25, 0.5)}, -1),
}
every = pytest.mark.parametrize("name", LAYERS)


@every
def test_keeps_the_contract(name):
    check_layer(LAYERS[name][0](), SHAPE)


@every
@pytest.mark.parametrize("n", [1, 3, 17])
def test_agrees_with_numpy(name, n, rng):
    """Each training forward by hand is a new step; backward is the transpose of its forward."""
    layer, ranges, value = LAYERS[name]
    model = Sequential([layer()], input_shape=SHAPE, dtype="float64", seed=4)
    x, dy = (rng.normal(size=(n, *SHAPE)) for _ in range(2))
    for step in range(3):
        draws = augment.affine_draws(range(n), **ranges, seed=4, step=step, path="0")
        matrices = augment.affine_matrices(SHAPE, draws)
        y, dx = model.forward(x, training=True), model.backward(dy)
        np.testing.assert_allclose(y, augment.affine_forward(x, matrices, value), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(dx, augment.affine_backward(dy, matrices), rtol=1e-12, atol=1e-12)
    assert model.predict(x).tobytes() == model.forward(x).tobytes() == x.tobytes()
    assert model.params == {} and model.output_shape == SHAPE


@pytest.mark.parametrize(
    ("layer", "error", "message"),
    [
        (RandomRotation(-1), ValueError, "degrees: expected a number of at least 0, got -1"),
        (RandomRotation(361), ValueError, "degrees: expected numbers from -360 to 360, the smaller one first, got 361"),
        (RandomRotation((20, 10)), ValueError, r"degrees: expected numbers from -360 to 360.*got \(20, 10\)"),
        (RandomRotation((1, 2, 3)), ValueError, r"degrees: expected a number or a pair, got \(1, 2, 3\)"),
        (RandomRotation("30"), TypeError, "degrees: expected a number, got '30'"),
        (RandomRotation(30, value=np.nan), ValueError, "value: expected a finite number"),
        (RandomZoom(1), ValueError, r"scale: expected a number in \[0, 1\), got 1"),
        (RandomZoom((0, 1)), ValueError, "scale: expected numbers from 0.0009765625 to 1024"),
        (RandomZoom((2, 1)), ValueError, "scale: expected numbers from"),
        (RandomZoom(None), TypeError, "scale: expected a number, got None"),
    ],
    ids=str,
)
def test_invalid_arguments(layer, error, message):
    with pytest.raises(error, match=rf"layer 0, Random.*{message}"):
        Sequential([layer], input_shape=SHAPE)


@pytest.mark.parametrize("layer", [RandomRotation(10), RandomZoom(0.1)], ids=str)
def test_needs_an_image(layer):
    with pytest.raises(ValueError, match=r"layer 0, Random.*\(channels, height, width\)"):
        Sequential([layer], input_shape=(8,))


def test_reprs():
    assert repr(RandomRotation((0, 90), value=0.5)) == "RandomRotation(degrees=(0, 90), value=0.5)"
    assert repr(RandomZoom(0.2)) == "RandomZoom(scale=0.2)"
