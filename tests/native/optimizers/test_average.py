"""average: the moving average of flat arrays, compared bit for bit with NumPy's."""

import numpy as np
import pytest

from minidl_c.optimizers.average import average

RNG = np.random.default_rng(5)
DTYPES = ("float32", "float64")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [0, 1, 7, 16, 33, 1000])
@pytest.mark.parametrize("rate", [0.005, 0.3, 1 / 3, 1 - 1e-3])
def test_it_has_the_bits_of_numpy(rate, size, dtype):
    mean, values = RNG.normal(size=(2, size)).astype(dtype)
    expected, kept = mean + mean.dtype.type(rate) * (values - mean), values.copy()
    average(mean, values, rate)
    assert mean.tobytes() == expected.tobytes() and values.tobytes() == kept.tobytes()


ODD = [np.nan, -0.0, 1e-40, np.inf, -np.inf, 0.0, 3e-320, 1.0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_rate_of_one_copies_and_one_of_zero_leaves_every_bit(dtype):
    odd, other = np.array(ODD).astype(dtype), np.array(ODD[::-1]).astype(dtype)
    mean = other.copy()
    average(mean, odd, 0)
    assert mean.tobytes() == other.tobytes()
    average(mean, odd, 1)
    assert mean.tobytes() == odd.tobytes()


@pytest.mark.parametrize("rate", [-0.1, 1.5, np.nan, np.inf])
def test_other_rates_are_refused(rate):
    mean = np.ones(3)
    with pytest.raises(ValueError, match=r"^rate: expected a number from 0 to 1, got"):
        average(mean, np.zeros(3), rate)
    assert mean.tolist() == [1, 1, 1]


def test_other_arrays_are_refused():
    flat = np.ones(6)
    for mean, values in (
        (flat, np.ones(5)),
        (flat, np.ones(6, "f4")),
        (flat[::2], np.ones(3)),
        (flat[:4], flat[2:]),
        (flat.astype("i8"), flat.astype("i8")),
    ):
        with pytest.raises((TypeError, ValueError)):
            average(mean, values, 0.5)
    assert flat.tolist() == [1] * 6
