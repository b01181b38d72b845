"""GaussianNoise: the same noise as NumPy's, the identity in inference, errors."""

import numpy as np
import pytest
import reference_augment as augment

from minidl import Sequential
from minidl.layers import GaussianNoise, ReLU
from minidl.testing import check_layer


@pytest.mark.parametrize(("std", "shape"), [(0.3, (7,)), (0.0, (2, 3, 4)), (2, (5, 3))])
def test_keeps_the_contract(std, shape):
    check_layer(GaussianNoise(std), shape)


@pytest.mark.parametrize("n", [0, 1, 3, 17])
@pytest.mark.parametrize("shape", [(5,), (2, 3, 4), (3, 3)])
def test_agrees_with_numpy(shape, n, rng):
    """Each training forward by hand is a new step."""
    model = Sequential([GaussianNoise(0.3)], input_shape=shape, dtype="float64", seed=4)
    x, dy = (rng.normal(size=(n, *shape)) for _ in range(2))
    for step in range(3):
        noise = 0.3 * augment.normal_numbers(int(np.prod(shape)), range(n), seed=4, step=step, path="0")
        np.testing.assert_allclose(model.forward(x, training=True), x + noise.reshape(x.shape), rtol=1e-12, atol=1e-14)
        np.testing.assert_array_equal(model.backward(dy), dy)
    assert model.predict(x).tobytes() == model.forward(x).tobytes() == x.tobytes()
    assert model.params == {} and model.output_shape == shape


@pytest.mark.parametrize(
    ("std", "error", "message"),
    [
        (-0.1, ValueError, "std: expected a number of at least 0, got -0.1"),
        (np.nan, ValueError, "std: expected a finite number"),
        (1e38, ValueError, "std: expected at least 0 and a number that float32 can hold ten times"),
        (None, TypeError, "std: expected a number, got None"),
        (True, TypeError, "std: expected a number, got True"),
    ],
)
def test_invalid_std(std, error, message):
    with pytest.raises(error, match=rf"layer 1, GaussianNoise.*{message}"):
        Sequential([ReLU(), GaussianNoise(std)], input_shape=(4,))


def test_repr():
    assert repr(GaussianNoise(0.1)) == "GaussianNoise(std=0.1)"
