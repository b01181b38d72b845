"""Initializers: ranges, moments, shapes, and nothing but the generator that is given."""

import numpy as np
import pytest

from minidl.initializers import glorot_uniform, he_uniform, ones, zeros

SHAPES = [(300, 400), (40, 30, 5, 3)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("init", [he_uniform, glorot_uniform])
def test_is_uniform_with_the_variance_of_its_paper(init, shape, rng):
    pixels = int(np.prod(shape[2:]))
    inputs, outputs = shape[1] * pixels, shape[0] * pixels
    variance = 2 / inputs if init is he_uniform else 2 / (inputs + outputs)
    values = init(rng, shape)
    limit = np.sqrt(3 * variance)  # a uniform distribution on +-limit has variance limit^2 / 3
    assert values.shape == shape
    assert np.abs(values).max() <= limit
    shares = np.histogram(values, bins=10, range=(-limit, limit))[0] / values.size
    np.testing.assert_allclose(shares, 0.1, atol=0.01)
    np.testing.assert_allclose(values.var(), variance, rtol=0.02)


@pytest.mark.parametrize("init", [he_uniform, glorot_uniform])
def test_draws_from_the_generator_alone(init):
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    first, again = (init(np.random.default_rng(7), (3, 4)) for _ in range(2))
    other = init(np.random.default_rng(8), (3, 4))
    np.testing.assert_array_equal(first, again)
    assert (first != other).all()
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


@pytest.mark.parametrize(("init", "value"), [(zeros, 0), (ones, 1)])
def test_constants(init, value, rng):
    values = init(rng, (2, 3, 4))
    assert values.shape == (2, 3, 4)
    assert (values == value).all()
