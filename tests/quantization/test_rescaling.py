"""Factors as multipliers and shifts: their error, their limits, and sums that fit 32 bits."""

from fractions import Fraction

import numpy as np
import pytest

from minidl.quantization.ranges import Observer, dequantized, quantization, quantized
from minidl.quantization.rescaling import rescaling, rescaling_of_sum


def test_a_factor_is_within_half_a_unit_of_31_bits(rng):
    for factor in [*np.exp(rng.uniform(-22, 20.7, 2000)), 2.0**-32, 0.5, 1.0, 1 - 2**-53, 2.0**29]:
        multiplier, shift = rescaling(float(factor))
        assert 2**30 <= multiplier < 2**31
        assert 1 <= shift <= 62
        assert abs(Fraction(multiplier, 2**shift) / Fraction(float(factor)) - 1) <= Fraction(1, 2**31)


def test_factors_beyond_the_limits():
    assert rescaling(0.0) == (0, 1)
    assert rescaling(2.0**-33) == (0, 1)
    assert rescaling(1e-320) == (0, 1)
    for factor in (2.0**30, np.nextafter(2.0**30, 0), np.inf, np.nan, -1.0):
        with pytest.raises(ValueError, match=r"expected a factor from 0 to 2\*\*30"):
            rescaling(float(factor))


def test_a_sum_fits_32_bits_with_the_largest_shift(rng):
    for factors in [*np.exp(rng.uniform(-8, 10, (300, 3))), [1e-12, 0.0, 0.5]]:
        multipliers, shift = rescaling_of_sum(list(map(float, factors)))
        assert 255 * sum(multipliers) + 2 ** (shift - 1) < 2**31
        assert shift == 30 or 255 * sum(round(f * 2 ** (shift + 1)) for f in factors) + 2**shift >= 2**31
    with pytest.raises(ValueError, match="expected scales of the terms that fit"):
        rescaling_of_sum([1e9, 1.0])


def test_quantization_of_a_range(rng):
    for low, high in [(-1, 3), (2, 5), (-7, -3), (0, 0), (-1e-200, 1e-200), (0, 1e30), (-1e300, 5)]:
        made = quantization(low, high)
        assert dequantized(np.array([made.zero_point]), made) == 0
        x = np.linspace(min(low, 0), max(high, 0), 1001)
        assert np.abs(dequantized(quantized(x, made), made) - x).max() <= made.scale * 0.50001
    for low, high in [(-1e308, 1e308), (0, 1e-300)]:
        with pytest.raises(ValueError, match="expected numbers whose range float64 can hold"):
            quantization(low, high)


@pytest.mark.parametrize("outlier", [10, 300])
def test_ranges_of_normal_numbers_with_an_outlier(outlier, rng):
    x = rng.standard_normal((100, 1, 30, 30))
    x[3, 0, 5, 5] = outlier
    found = {}
    for method in ("minmax", "auto"):
        observer = Observer(100)
        for start in range(0, 100, 40):
            observer.add(x[start : start + 40])
        found[method] = observer.range(method)
        assert observer.mean.shape == (1, 30, 30)
        np.testing.assert_allclose(observer.mean, x.mean(axis=0))
    assert found["minmax"] == (x.min(), outlier)
    if outlier == 10:
        assert found["auto"] == found["minmax"]
    else:
        assert -6 < found["auto"][0] < -3
        assert 3 < found["auto"][1] < 6


def test_ranges_do_not_depend_on_batches(rng):
    """Nor is the sample of single large images taken from the same places of each."""
    x = rng.standard_normal((40, 2, 31, 29)) ** 5
    found = set()
    for size in (40, 16, 1):
        observer = Observer(40)
        for start in range(0, 40, size):
            observer.add(x[start : start + size])
        found.add(observer.range("auto"))
    assert len(found) == 1
