"""relu: random sizes, zero and NaN, bitwise reproducibility."""

import numpy as np
import pytest

from minidl_c.kernels.relu import ReLUOp
from minidl_c.runtime.single_op import backward_batch, forward_batch

DTYPES = ("float32", "float64")
SPECIAL = (-np.inf, -1.0, -0.0, 0.0, 1.0, np.inf, np.nan)


def op_for(x):
    return ReLUOp(x.shape[1:], x.dtype.name)


def forward(check, x, **options):
    y = check.output(x.shape, x.dtype)
    forward_batch(op_for(x), x, y, **options)
    return y


def backward(check, dy, x, **options):
    dx = check.output(x.shape, x.dtype)
    backward_batch(op_for(x), dy, x, dx, **options)
    return dx


@pytest.mark.parametrize("n", [0, 1, 2, 15, 16, 17, 31, 33, 257])
@pytest.mark.parametrize("dtype", DTYPES)
def test_random_sizes(check, dtype, n):
    rng = np.random.default_rng(n)
    for size in (1, 2, 3, 8, 15, 16, 17, 63, 64, 65, int(rng.integers(100, 1000))):
        values = rng.choice([*SPECIAL, *rng.standard_normal(20)], (n, size))
        x = check.input(values, dtype)
        dy = check.input(rng.standard_normal((n, size)), dtype)
        what = f"{dtype} n={n} size={size}"
        check.equal(forward(check, x), np.where(x < 0, 0, x), f"y {what}")
        known = ~np.isnan(x)
        expected = np.where(x > 0, dy, 0)
        check.equal(backward(check, dy, x)[known], expected[known], f"dx {what}")
        check.count("relu", dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_nan_stays_nan_and_the_gradient_at_zero_is_zero(check, dtype):
    x = np.tile(np.array(SPECIAL, dtype), (17, 1))
    y, dx = forward(check, x), backward(check, np.full(x.shape, 3, dtype), x)
    check.equal(y, np.tile(np.array([0, 0, 0, 0, 1, np.inf, np.nan]), (17, 1)), "y")
    check.equal(dx[:, :-1], np.tile(np.array([0.0, 0, 0, 0, 3, 3]), (17, 1)), "dx")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("nonfinite", [np.nan, np.inf])
def test_inactive_units_get_a_zero_gradient_even_if_dy_is_not_finite(check, dtype, nonfinite):
    x = np.tile(np.array([-1, 0, 1, -np.inf], dtype), (17, 5))
    dx = backward(check, np.full(x.shape, nonfinite, dtype), x)
    check.equal(dx, np.where(x > 0, nonfinite, 0), "dx")


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_and_batch_neighbours_change_no_bit(check, dtype):
    rng = np.random.default_rng(1)
    x, dy = (rng.standard_normal((277, 37)).astype(dtype) for _ in range(2))
    y, dx = forward(check, x), backward(check, dy, x)
    for threads in (2, 3, 8):
        check.same_bits(forward(check, x, num_threads=threads), y, f"y {threads} threads")
        check.same_bits(backward(check, dy, x, num_threads=threads), dx, f"dx {threads} threads")
    for i in range(40):
        row = slice(i, i + 1)
        check.same_bits(forward(check, x[row]), y[row], f"y row {i}")
        check.same_bits(backward(check, dy[row], x[row]), dx[row], f"dx row {i}")
