"""LocalResponseNorm: arguments, and AlexNet's numbers."""

import numpy as np
import pytest

from minidl import Sequential
from minidl.layers import LocalResponseNorm
from minidl.testing import check_layer


def test_the_numbers_of_alexnet(rng):
    layer = LocalResponseNorm(5, alpha=5e-4, beta=0.75, k=2)
    x = rng.normal(0, 30, (4, 8, 3, 3))
    y = Sequential([layer], input_shape=(8, 3, 3), dtype="float64").predict(x)
    sums = sum(np.pad(x**2, [(0, 0), (2, 2), (0, 0), (0, 0)])[:, i : i + 8] for i in range(5))
    np.testing.assert_allclose(y, x / (2 + 1e-4 * sums) ** 0.75, 1e-13)
    check_layer(LocalResponseNorm(3, alpha=0.5, k=2), (5, 2, 2))


@pytest.mark.parametrize(
    ("layer", "error", "message"),
    [
        (LocalResponseNorm(4), ValueError, "size: expected an odd number, got 4"),
        (LocalResponseNorm(0), ValueError, "size: expected at least 1, got 0"),
        (LocalResponseNorm(2.5), TypeError, "size: expected an integer, got 2.5"),
        (LocalResponseNorm(3, alpha=np.nan), ValueError, "alpha: expected a finite number"),
        (LocalResponseNorm(3, beta="1"), TypeError, "beta: expected a number, got '1'"),
        (LocalResponseNorm(3, k=np.inf), ValueError, "k: expected a finite number"),
    ],
    ids=str,
)
def test_invalid_arguments(layer, error, message):
    with pytest.raises(error, match=rf"layer 0, LocalResponseNorm.*{message}"):
        Sequential([layer], input_shape=(3, 4, 5))
