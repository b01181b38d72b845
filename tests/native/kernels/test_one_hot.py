"""one_hot: y and dx bit for bit as NumPy computes them."""

import numpy as np
import pytest
import reference as ref
from plans import train

from minidl_c.kernels.one_hot import OneHotOp
from minidl_c.kernels.scale import ScaleOp
from minidl_c.losses.elementwise_losses import ElementwiseLossOp
from minidl_c.runtime.plan import Plan
from minidl_c.runtime.single_op import backward_batch, forward_batch

BATCHES = (0, 1, 15, 16, 17, 33)
THREADS = (1, 2, 3, 8)
UNKNOWN = (np.nan, np.inf, -np.inf, -1.0, 0.5, 1e30)
GEOMETRIES = ([1], [5], [3, 1, 7], [16, 1, 15, 17], [300, 2], [1] * 40, [2, 9] * 20)

each_dtype = pytest.mark.parametrize("dtype", ["float32", "float64"])
each_geometry = pytest.mark.parametrize("categories", GEOMETRIES, ids=lambda counts: f"{len(counts)}-{counts[:4]}")


def draw(rng, n, categories, dtype):
    """Draws x, of which some numbers are no category, and dy."""
    x = rng.integers(0, categories, (n, len(categories))).astype(dtype)
    is_other = rng.random(x.shape) < 0.2
    x[is_other] = rng.choice([*UNKNOWN, -0.0, *categories], is_other.sum())
    return x, rng.standard_normal((n, sum(categories))).astype(dtype)


@pytest.mark.parametrize("n", BATCHES)
@each_geometry
@each_dtype
def test_matches_numpy(check, dtype, categories, n):
    x, dy = (check.input(a, dtype) for a in draw(np.random.default_rng(n), n, categories, dtype))
    op = OneHotOp(x.shape[1:], categories, dtype)
    assert (op.categories, op.out_shape) == (categories, dy.shape[1:])
    for threads in THREADS:
        y, dx = check.output(dy.shape, dtype), check.output(x.shape, dtype)
        forward_batch(op, x, y, num_threads=threads)
        backward_batch(op, dy, x, dx, num_threads=threads)
        check.same_bits(y, ref.one_hot_forward(x, categories), f"y {dtype} {threads} threads")
        check.same_bits(dx, np.zeros_like(x), f"dx {dtype} {threads} threads")
    check.count("one_hot", dtype)


@each_geometry
@each_dtype
def test_the_blocked_layout_has_the_bits_of_tiles(dtype, categories):
    """The gradient of a Scale before it sums dx * x, the loss that of y * y."""
    x, targets = draw(np.random.default_rng(0), 16, categories, dtype)
    n_in, n_out = x.shape[1], targets.shape[1]
    op = OneHotOp((n_in,), categories, dtype)
    loss = ElementwiseLossOp((n_out,), "mean_squared_error", dtype=dtype)
    inference, training = Plan([op], [0]), Plan([ScaleOp((n_in,), False, dtype), op, loss], [0] * 3, True)
    param, finite = np.ones(n_in, dtype), np.where(np.isfinite(x), x, -1).astype(dtype)

    def run(n, threads, limit):
        inference.blocked_limit = training.blocked_limit = limit
        y, losses, grad = np.empty((n, n_out), dtype), np.empty(n, dtype), np.full(n_in, 7, dtype)
        inference.predict(x[:n], None, np.empty(0, dtype), y, threads)
        given = (finite[:n], None, n, targets[:n], np.ones(n, dtype), losses, None, np.full(1, 3.0), np.zeros(1))
        train(training, *given, param.copy(), grad, None, threads, 5, np.full(1, 9))
        assert y.tobytes() == ref.one_hot_forward(x[:n], categories).tobytes() and not grad.any()
        return losses.tobytes()

    for n in (1, 2, 7, 16):
        assert run(n, 1, 16) == run(n, 3, 16) == run(n, 1, 0), n


@each_dtype
def test_subnormal_numbers_are_zeros(dtype):
    x, y = np.full((1, 1), np.finfo(dtype).tiny / 2, dtype), np.empty((1, 2), dtype)
    forward_batch(OneHotOp((1,), [2], dtype), x, y)
    assert y.tolist() == [[1, 0]]


@pytest.mark.parametrize(
    ("in_shape", "categories", "dtype", "message"),
    [
        ((2,), [3], "float32", r"categories: expected 2 whole numbers, got \[3\]"),
        ((1,), [3, 3], "float32", r"categories: expected 1 whole numbers, got \[3, 3\]"),
        ((1,), 3, "float32", "categories: expected 1 whole numbers, got 3"),
        ((1,), [2.0], "float32", r"categories: expected 1 whole numbers, got \[2.0\]"),
        ((2,), [3, 0], "float32", r"categories: expected numbers from 1 to .*, got \[3, 0\]"),
        ((1, 1), [3], "float32", "in_shape: expected 1 whole numbers"),
        ((0,), [], "float32", "in_shape: expected numbers from 1"),
        ((2,), [1, 2**24 + 1], "float32", "categories: expected at most 16777216, up to which float32 has all whole"),
        ((2,), [2**39, 2**39 + 1], "float64", "output shape: expected at most 1099511627776 numbers"),
        ((1,), [3], "float16", "dtype: expected 'float32' or 'float64'"),
    ],
    ids=str,
)
def test_invalid_arguments_are_refused(in_shape, categories, dtype, message):
    with pytest.raises((ValueError, TypeError), match=message):
        OneHotOp(in_shape, categories, dtype)
