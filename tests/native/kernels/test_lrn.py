"""lrn: y and dx compared with NumPy and with finite differences; extremes, reproducibility."""

import numpy as np
import pytest
import reference as ref

from minidl_c.kernels.lrn import LRNOp
from minidl_c.runtime.single_op import backward_batch, forward_batch

DTYPES = ("float32", "float64")
SHAPES = [(1,), (9,), (3, 5), (7, 3, 2), (20, 1, 4)]
ARGUMENTS = [(1, 1e-4, 0.75, 1.0), (3, 0.5, 0.75, 2.0), (5, 1e-4, 0.5, 1.0), (7, 2.0, 1.5, 0.5), (101, 0.1, 1.0, 1.0)]
THREADS = (1, 2, 3, 8)

each_dtype = pytest.mark.parametrize("dtype", DTYPES)


def forward(check, arguments, x, **options):
    y = check.output(x.shape, x.dtype)
    forward_batch(LRNOp(x.shape[1:], *arguments, dtype=x.dtype.name), x, y, **options)
    return y


def backward(check, arguments, dy, x, **options):
    dx = check.output(x.shape, x.dtype)
    backward_batch(LRNOp(x.shape[1:], *arguments, dtype=x.dtype.name), dy, x, dx, **options)
    return dx


def window_sums(values, size):
    """Returns the sums over `size` channels around each."""
    return np.stack([values[:, max(0, c - size // 2) : c + size // 2 + 1].sum(1) for c in range(values.shape[1])], 1)


@pytest.mark.parametrize("arguments", ARGUMENTS)
@each_dtype
def test_matches_numpy(check, dtype, arguments):
    size, alpha, beta, k = arguments
    for shape in SHAPES:
        for n in (1, 16, 17):
            rng = np.random.default_rng(n)
            x, dy = (check.input(3 * rng.standard_normal((n, *shape)), dtype) for _ in range(2))
            wide, d = x.astype("f8"), dy.astype("f8")
            s = k + alpha / size * window_sums(wide**2, size)
            y, terms = wide * s**-beta, d * wide * s ** (-beta - 1)
            dx = d * s**-beta - 2 * alpha / size * beta * wide * window_sums(terms, size)
            units = ref.rounding(40, dtype)
            check.close(forward(check, arguments, x), y, units * np.abs(y), f"y {shape}")
            bound = units * (np.abs(d * s**-beta) + np.abs(wide) * window_sums(np.abs(terms), size))
            check.close(backward(check, arguments, dy, x), dx, bound, f"dx {shape}")
            check.count("lrn", dtype)


@each_dtype
def test_large_numbers_become_0_and_nan_stays_in_its_window(check, dtype):
    x = np.random.default_rng(0).standard_normal((17, 9, 2)).astype(dtype)
    clean = forward(check, ARGUMENTS[1], x)
    x[2, 4, 1], x[3, 4, 0] = np.nan, np.finfo(dtype).max / 2
    y = forward(check, ARGUMENTS[1], x)
    assert np.isnan(y).sum() == 3 and np.isnan(y[2, 3:6, 1]).all()
    assert (y[3, 3:6, 0] == 0).all()
    same = np.ones(x.shape, bool)
    same[2, 3:6, 1] = same[3, 3:6, 0] = False
    check.equal(y[same], clean[same], "the others")


@each_dtype
def test_threads_and_batch_neighbours_change_no_bit(check, dtype):
    rng = np.random.default_rng(1)
    x, dy = (rng.standard_normal((40, 5, 31)).astype(dtype) for _ in range(2))
    y, dx = forward(check, ARGUMENTS[1], x), backward(check, ARGUMENTS[1], dy, x)
    for threads in THREADS:
        check.same_bits(forward(check, ARGUMENTS[1], x, num_threads=threads), y, f"y {threads} threads")
        check.same_bits(backward(check, ARGUMENTS[1], dy, x, num_threads=threads), dx, f"dx {threads} threads")
        for i in (0, 17, 39):
            row = slice(i, i + 1)
            check.same_bits(forward(check, ARGUMENTS[1], x[row], num_threads=threads), y[row], f"y row {i}")
            check.same_bits(backward(check, ARGUMENTS[1], dy[row], x[row], num_threads=threads), dx[row], f"dx row {i}")


@pytest.mark.parametrize("size", [0, -1, 4, 1.5, None, 2**63])
def test_invalid_sizes_are_refused(size):
    with pytest.raises((TypeError, ValueError), match="size: expected"):
        LRNOp((3,), size)
