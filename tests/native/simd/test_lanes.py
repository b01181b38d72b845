"""lanes: every kernel, in every thread, flushes subnormal inputs and results to zero."""

import numpy as np
import pytest

import minidl_c
from minidl_c.kernels.dense import DenseOp
from minidl_c.kernels.rescale import RescaleOp
from minidl_c.runtime.single_op import backward_batch, forward_batch

N, IN, OUT = 40, 9, 5
LOWEST = {"float32": -126, "float64": -1022}  # exponents of the smallest normal numbers
each_dtype = pytest.mark.parametrize("dtype", LOWEST)


def flushed(x):
    return np.where(np.abs(x) < 1, 0, x)


def few_bits(rng, shape, most):
    """Draws integers so small that their products and sums are exact."""
    return rng.integers(-most, most + 1, shape).astype("f8")


@each_dtype
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("n", [1, 3, N])
def test_every_multiply_add_is_flushed_to_zero(check, dtype, threads, n):
    """In units of the smallest normal number; an output is a chain of multiply-adds that starts at the bias."""
    rng, half = np.random.default_rng(n), LOWEST[dtype] // 2
    x, w, b = few_bits(rng, (n, IN), 15), few_bits(rng, (IN, OUT), 15), few_bits(rng, (OUT,), 63) / 32
    y, fused = check.output((n, OUT), dtype), minidl_c.isa != "v2"
    given = [np.ldexp(a, e).astype(dtype) for a, e in ((x, half - 3), (w / 16, half), (b, 2 * half))]
    forward_batch(DenseOp((IN,), OUT, dtype), given[0], y, given[1:], num_threads=threads)
    expected = np.tile(flushed(b), (n, 1))
    for i in range(IN):
        product = x[:, i, None] / 8 * w[i] / 16
        expected = flushed(expected + (product if fused else flushed(product)))
    assert 0.05 < np.mean(expected == 0) < 0.95
    check.equal(np.ldexp(y.astype("f8"), -2 * half), expected, f"y {dtype}")


@each_dtype
def test_subnormal_operands_count_as_zero(check, dtype):
    tiny = np.finfo(dtype).tiny
    x = (np.array([0.5, 0.75, 1, -0.5, -1, 2]) * tiny).astype(dtype).reshape(1, 6).repeat(N, axis=0)
    assert np.count_nonzero(x[0]) == 6
    y, dx = check.output(x.shape, dtype), check.output(x.shape, dtype)
    op = RescaleOp((6,), 2.0**20, 0.0, dtype)
    forward_batch(op, x, y, num_threads=2)
    backward_batch(op, x, x, dx, num_threads=2)
    for name, got in (("y", y), ("dx", dx)):
        check.equal(got, np.where(np.abs(x) < tiny, 0, x * np.dtype(dtype).type(2.0**20)), name)


@each_dtype
def test_the_callers_floating_point_mode_is_restored(dtype):
    tiny = np.finfo(dtype).tiny
    x = np.ones((N, 6), dtype)
    for threads in (1, 2):
        forward_batch(RescaleOp((6,), 2.0, 0.0, dtype), x, np.empty_like(x), num_threads=threads)
        assert (tiny * x / 2 > 0).all(), "flush-to-zero outlived the call"
