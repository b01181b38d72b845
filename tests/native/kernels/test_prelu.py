"""prelu: y, dx and the gradient of the slopes compared with NumPy, for one slope or one per channel; zero and NaN."""

import numpy as np
import pytest
import reference as ref

from minidl_c.kernels.prelu import PReLUOp
from minidl_c.runtime.single_op import backward_batch, forward_batch

DTYPES = ("float32", "float64")
BATCHES = (0, 1, 15, 16, 17, 33, 277)  # 277: slots of two tiles
SHAPES = [(1,), (7,), (1, 2, 3), (3, 1, 1), (5, 4, 7), (2, 40)]
THREADS = (1, 2, 3, 8)
INF, NAN = np.inf, np.nan

each_dtype = pytest.mark.parametrize("dtype", DTYPES)
one_or_many = pytest.mark.parametrize("shared", [False, True])


def forward(check, x, weight, **options):
    y = check.output(x.shape, x.dtype)
    forward_batch(PReLUOp(x.shape[1:], len(weight) == 1, x.dtype.name), x, y, (weight,), **options)
    return y


def backward(check, dy, x, weight, want_dx=True, **options):
    """Returns (dx, dweight)."""
    dx, dweight = check.output(x.shape, x.dtype) if want_dx else None, check.output(weight.shape, x.dtype)
    op = PReLUOp(x.shape[1:], len(weight) == 1, x.dtype.name)
    backward_batch(op, dy, x, dx, (weight,), (dweight,), **options)
    return dx, dweight


def along_channels(weight, x):
    return weight.reshape(-1, *(1,) * (x.ndim - 2))


def draw(rng, n, shape, shared, dtype):
    """Draws x with zeros, dy, and weights of both signs."""
    x = rng.choice([0.0, -0.0, *rng.standard_normal(30)], (n, *shape)).astype("f4")
    dy, weight = rng.standard_normal((n, *shape), "f4"), rng.standard_normal(1 if shared else shape[0], "f4")
    return [a.astype(dtype) for a in (x, dy, weight)]


@pytest.mark.parametrize("n", BATCHES)
@one_or_many
@each_dtype
def test_matches_numpy(check, dtype, shared, n):
    rng = np.random.default_rng(n)
    for shape in SHAPES:
        x, dy, weight = draw(rng, n, shape, shared, dtype)
        what = f"{dtype} n={n} {shape} shared={shared}"
        args = check.input(x, dtype), check.input(weight, dtype)
        w = along_channels(weight, x)
        check.equal(forward(check, *args), np.where(x > 0, x, w * x), f"y {what}")
        dx, dweight = backward(check, check.input(dy, dtype), *args)
        check.equal(dx, np.where(x > 0, dy, w * dy), f"dx {what}")
        terms = np.where(x > 0, 0, x.astype("f8") * dy)
        axes = tuple(range(x.ndim)) if shared else (0, *range(2, x.ndim))
        bound = ref.rounding(x.size, dtype) * np.abs(terms).sum(axes)
        check.close(dweight, terms.sum(axes).reshape(weight.shape), bound, f"dweight {what}")
        check.same_bits(backward(check, dy, *args, want_dx=False)[1], dweight, f"dweight without dx {what}")
        check.count("prelu", dtype)


@one_or_many
@each_dtype
def test_special_values(check, dtype, shared):
    values = np.array([-INF, -2.0, -0.0, 0.0, 2.0, INF, NAN], dtype)
    x = np.tile(values, (17, 3, 1))
    weight = np.array([0.25] if shared else [0.25, -1, 0.25], dtype)
    y = forward(check, x, weight)
    check.equal(y[:, 0], np.tile(np.array([-INF, -0.5, 0, 0, 2, INF, NAN]), (17, 1)), "y")
    dx, dweight = backward(check, np.full(x.shape, 3, dtype), x, weight)
    check.equal(dx[:, 0], np.tile(np.array([0.75, 0.75, 0.75, 0.75, 3, 3, 0.75]), (17, 1)), "dx")
    assert np.isnan(dweight).all()
    check.equal(backward(check, np.full((17, 3, 4), 3, dtype), x[:, :, 1:5].copy(), weight)[1],
                np.full(weight.shape, 17 * -6 * (3 if shared else 1)), "dweight")  # fmt: skip


@one_or_many
@each_dtype
def test_threads_and_batch_neighbours_change_no_bit(check, dtype, shared):
    for n in (5, 37, 277):
        x, dy, weight = draw(np.random.default_rng(n), n, (5, 3, 7), shared, dtype)
        y, (dx, dweight) = forward(check, x, weight), backward(check, dy, x, weight)
        for threads in THREADS:
            check.same_bits(forward(check, x, weight, num_threads=threads), y, f"y {threads} threads")
            again = backward(check, dy, x, weight, num_threads=threads)
            check.same_bits(again[0], dx, f"dx {threads} threads")
            check.same_bits(again[1], dweight, f"dweight {threads} threads")
    for i in range(20):
        row = slice(i, i + 1)
        check.same_bits(forward(check, x[row], weight), y[row], f"y row {i}")
        check.same_bits(backward(check, dy[row], x[row], weight)[0], dx[row], f"dx row {i}")


@each_dtype
def test_tile_sums_are_complete_before_they_are_combined(check, dtype):
    """The sum over the batch is the sum of the sums of its tiles."""
    x, dy, weight = draw(np.random.default_rng(0), 32, (2, 9), False, dtype)
    whole = backward(check, dy, x, weight)[1]
    halves = [backward(check, dy[part], x[part], weight)[1] for part in (slice(16), slice(16, 32))]
    check.same_bits(whole, halves[0] + halves[1], "dweight")
