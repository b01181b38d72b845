"""Weights of examples: their dtype, those of classes, and means."""

from fractions import Fraction

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_class_weight

from minidl.utils.weights import as_weights, balanced_weights, mean_weight, times_class_weights, weighted_mean


def test_weights_become_float64():
    for weights in ([1, 0, 2], np.array([1, 0, 2], "u1"), np.array([1.0, 0, 2], ">f4")):
        result = as_weights(weights, 3)
        assert result.dtype == np.float64
        np.testing.assert_array_equal(result, [1, 0, 2])
    assert len(as_weights([], 0)) == 0


def test_balanced_weights_match_scikit_learn():
    y = np.array([0, 0, 0, 2, 2, 5])
    expected = dict(zip([0, 2, 5], compute_class_weight("balanced", classes=np.unique(y), y=y), strict=True))
    np.testing.assert_allclose(balanced_weights(y, np.ones(6)), [expected[label] for label in y])


def test_balanced_weights_have_full_precision():
    weights = balanced_weights(np.repeat([0, 1, 2], [1, 3, 7]), np.ones(11))
    assert weights.dtype == np.float64 and weights[0] == 11 / 3


def test_class_weights_from_a_dict():
    y = np.array([0, 1, 2, 1])
    np.testing.assert_array_equal(times_class_weights(None, {1: 3.0, 2: 0}, y, (3,)), [1, 3, 0, 3])
    np.testing.assert_array_equal(times_class_weights(None, {}, y, (3,)), np.ones(4))
    np.testing.assert_array_equal(times_class_weights(np.arange(4.0), {1: 3.0}, y, (3,)), [0, 3, 2, 9])
    for wrong in ("even", [1, 2], 3):
        with pytest.raises(TypeError, match="class_weight: "):
            times_class_weights(None, wrong, y, (3,))


def test_means_are_correctly_rounded():
    """Also of weights whose sum overflows: they are divided by a power of 2 first."""
    weights = 10.0 ** np.random.default_rng(0).uniform(-12, 12, 1000)
    exact = sum(map(Fraction, weights)) / 1000
    assert abs(Fraction(mean_weight(weights)) - exact) <= exact * Fraction(2**-52)
    assert mean_weight(np.array([1.7e308, 1.7e308])) == 1.7e308
    assert weighted_mean(np.array([1.0, 3.0]), np.array([1.7e308, 1.7e308])) == 2
    assert weighted_mean(np.array([1.0, 3.0]), np.array([1e-320, 1e-320])) == 2
