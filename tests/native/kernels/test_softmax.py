"""softmax, log_softmax, softmin over features and over the channels of each pixel: NumPy, extremes, reproducibility."""

import numpy as np
import pytest
import reference as ref

from minidl_c.kernels.softmax import SoftmaxOp
from minidl_c.runtime.single_op import backward_batch, forward_batch

DTYPES = ("float32", "float64")
BATCHES = (0, 1, 15, 16, 17, 33)
SHAPES = [(1,), (2,), (10,), (60,), (1, 3, 2), (3, 1, 1), (4, 5, 3), (21, 4)]
THREADS = (1, 2, 3, 8)
INF, NAN = np.inf, np.nan

each_dtype = pytest.mark.parametrize("dtype", DTYPES)


def forward(check, x, function="softmax", **options):
    y = check.output(x.shape, x.dtype)
    forward_batch(SoftmaxOp(x.shape[1:], x.dtype.name, function), x, y, **options)
    return y


def backward(check, dy, x, function="softmax", **options):
    dx = check.output(x.shape, x.dtype)
    backward_batch(SoftmaxOp(x.shape[1:], x.dtype.name, function), dy, x, dx, **options)
    return dx


@each_dtype
@pytest.mark.parametrize("function", ["softmax", "log_softmax", "softmin"])
@pytest.mark.parametrize(("first", "end"), [(0, 2), (1, 2), (2, 3), (1, 3), (0, 3)])
def test_other_axes_have_the_bits_of_the_first_one(check, dtype, function, first, end):
    """With the axes brought to the front, as one: each sum has the same order."""
    rng, shape = np.random.default_rng(1), (3, 4, 5)
    x, dy = (rng.standard_normal((17, *shape)).astype(dtype) for _ in range(2))
    moved = (0, *range(first + 1, end + 1), *range(1, first + 1), *range(end + 1, 4))

    def front(array):
        return np.ascontiguousarray(array.transpose(moved)).reshape(17, int(np.prod(shape[first:end])), -1)

    for threads in (1, 3):
        y, dx = np.empty_like(x), np.empty_like(x)
        op = SoftmaxOp(shape, dtype, function, first, end)
        forward_batch(op, x, y, num_threads=threads)
        backward_batch(op, dy, x, dx, num_threads=threads)
        check.same_bits(front(y), forward(check, front(x), function), "y")
        check.same_bits(front(dx), backward(check, front(dy), front(x), function), "dx")


@pytest.mark.parametrize(("first", "end"), [(-1, 1), (0, 0), (1, 2), (0, 3), (2, 1)])
def test_invalid_axes_are_refused(first, end):
    with pytest.raises(ValueError, match="axes: expected some of 0 to 0"):
        SoftmaxOp((3,), "float32", "softmax", first, end)


def expected(x, dy):
    """Returns (y, dx) and their allowed errors: units of rounding, plus results that are flushed to zero."""
    y, distance = ref.softmax(x), x.max(axis=1, keepdims=True).astype("f8") - x
    units = y * (distance + 6 + np.sum(y * (distance + 4), axis=1, keepdims=True) + x.shape[1])
    inner = np.sum(dy * y, axis=1, keepdims=True)
    inner_units = np.sum(np.abs(dy) * (units + (x.shape[1] + 1) * y), axis=1, keepdims=True)
    dx_units = units * np.abs(dy - inner) + y * (inner_units + 3 * np.abs(dy) + 3 * np.abs(inner))
    return y, y * (dy - inner), units, dx_units


@pytest.mark.parametrize("n", BATCHES)
@pytest.mark.parametrize("spread", [1e-3, 1.0, 30.0, 1e4])
@each_dtype
def test_matches_numpy(check, dtype, spread, n):
    rng = np.random.default_rng(n)
    for shape in SHAPES:
        x, dy = ((s * rng.standard_normal((n, *shape))).astype("f4") for s in (spread, 1))
        y, dx, units, dx_units = expected(x, dy.astype("f8"))
        what, u, tiny = f"{dtype} n={n} {shape} {spread}", ref.rounding(1, dtype), 4 * shape[0] * np.finfo(dtype).tiny
        x, dy = check.input(x, dtype), check.input(dy, dtype)
        check.close(forward(check, x), y, u * units + tiny, f"y {what}")
        check.close(backward(check, dy, x), dx, u * dx_units + tiny, f"dx {what}")
        check.count("softmax", dtype)


def expected_log(x, dy):
    """Returns (y, dx) of log_softmax and their allowed errors: units of rounding."""
    p, top = ref.softmax(x), x.max(axis=1, keepdims=True).astype("f8")
    total = np.exp(x - top).sum(axis=1, keepdims=True)
    y, terms = x - top - np.log(total), np.abs(dy).sum(axis=1, keepdims=True)
    units = 2 * (top - x) + 4 * np.log(total) + np.sum(p * (top - x + 6), axis=1, keepdims=True) + x.shape[1]
    dx_units = np.abs(dy) + p * terms * (units + x.shape[1] + 6)
    return y, dy - p * dy.sum(axis=1, keepdims=True), units, dx_units


@pytest.mark.parametrize("n", BATCHES)
@pytest.mark.parametrize("spread", [1e-3, 1.0, 30.0, 1e4])
@each_dtype
def test_log_softmax_matches_numpy(check, dtype, spread, n):
    rng = np.random.default_rng(n)
    for shape in SHAPES:
        x, dy = ((s * rng.standard_normal((n, *shape))).astype("f4") for s in (spread, 1))
        y, dx, units, dx_units = expected_log(x, dy.astype("f8"))
        what, u, tiny = f"{dtype} n={n} {shape} {spread}", ref.rounding(1, dtype), 4 * shape[0] * np.finfo(dtype).tiny
        x, dy = check.input(x, dtype), check.input(dy, dtype)
        check.close(forward(check, x, "log_softmax"), y, u * units + tiny, f"y {what}")
        check.close(backward(check, dy, x, "log_softmax"), dx, u * dx_units + tiny, f"dx {what}")
        check.count("log_softmax", dtype)


@pytest.mark.parametrize("n", BATCHES)
@each_dtype
def test_softmin_is_the_softmax_of_the_negative(check, dtype, n):
    rng = np.random.default_rng(n)
    for shape in SHAPES:
        x, dy = (rng.standard_normal((n, *shape)).astype(dtype) for _ in range(2))
        check.same_bits(forward(check, x, "softmin"), forward(check, -x), f"y {shape}")
        check.same_bits(backward(check, dy, x, "softmin"), -backward(check, dy, -x), f"dx {shape}")


@each_dtype
def test_special_values_of_log_softmax(check, dtype):
    """As in PyTorch: -inf has log-probability -inf, and takes no gradient of others."""
    x = np.array([[0, -INF, 0], [INF, 1, 0], [NAN, 0, 1], [-INF, -INF, -INF], [3e38, -3e38, 3e38]], dtype)
    dy = np.tile(np.array([1, 2, 3], dtype), (5, 1))
    y, dx = forward(check, x, "log_softmax"), backward(check, dy, x, "log_softmax")
    half = np.log(0.5)
    assert np.isnan(y[1:4]).all() and np.isnan(dx[1:4]).all()
    np.testing.assert_allclose(y[0], [half, -INF, half], rtol=1e-6)
    np.testing.assert_allclose(y[4, ::2], half, rtol=1e-6)
    np.testing.assert_allclose(dx[[0, 4]], [[-2, 2, 0]] * 2, rtol=1e-6)


def test_an_unknown_function_is_refused():
    with pytest.raises(ValueError, match="function: expected one of softmax, softmin, log_softmax, got 'hardmax'"):
        SoftmaxOp((3,), "float32", "hardmax")
    with pytest.raises(TypeError, match="function"):
        SoftmaxOp((3,), "float32", None)


@each_dtype
@pytest.mark.parametrize("size", [1e4, 3e38])
def test_large_values(check, dtype, size):
    x = np.tile(np.array([[1, -1, 1], [1, -1, 0.5]], dtype) * np.dtype(dtype).type(size), (17, 1))
    y = np.tile([[0.5, 0, 0.5], [1, 0, 0]], (17, 1))
    check.equal(forward(check, x), y, "y")
    dy = np.tile(np.array([1, 5, 3], dtype), (34, 1))
    check.equal(backward(check, dy, x), np.tile([[-0.5, 0, 0.5], [0, 0, 0]], (17, 1)), "dx")


@each_dtype
def test_special_values(check, dtype):
    """As in PyTorch: -inf has probability 0; inf, NaN or only -inf makes its own sum NaN and no other."""
    x = np.array([[0, -INF, 0], [INF, 1, 0], [NAN, 0, 1], [0, 1, NAN], [-INF, -INF, -INF], [1, 2, 3]], dtype)
    dy, clean = np.tile(np.array([1, 2, 3], dtype), (6, 1)), np.array([0, 5])
    y, dx = forward(check, x), backward(check, dy, x)
    check.equal(y[0], np.array([0.5, 0, 0.5]), "y")
    check.equal(dx[0], np.array([-0.5, 0, 0.5]), "dx")
    assert np.isnan(y[1:5]).all() and np.isnan(dx[1:5]).all()
    check.same_bits(y[clean], forward(check, x[clean]), "y beside NaN")
    image = np.stack([x, x[::-1]], axis=2)
    y, dx = forward(check, image), backward(check, np.stack([dy, dy], axis=2), image)
    check.equal(y[0, :, 0], np.array([0.5, 0, 0.5]), "a pixel beside others")
    assert np.isfinite(y[0]).all() and np.isfinite(dx[0]).all() and np.isnan(y[1:5]).all()


@pytest.mark.parametrize("function", ["softmax", "softmin", "log_softmax"])
@each_dtype
def test_threads_and_batch_neighbours_change_no_bit(check, dtype, function):
    rng = np.random.default_rng(1)
    for n in (5, 37, 277):
        x, dy = (rng.standard_normal((n, 5, 3, 4)).astype(dtype) for _ in range(2))
        y, dx = forward(check, x, function), backward(check, dy, x, function)
        for threads in THREADS:
            check.same_bits(forward(check, x, function, num_threads=threads), y, f"y {threads} threads")
            check.same_bits(backward(check, dy, x, function, num_threads=threads), dx, f"dx {threads} threads")
    for i in range(20):
        row = slice(i, i + 1)
        check.same_bits(forward(check, x[row], function), y[row], f"y row {i}")
        check.same_bits(backward(check, dy[row], x[row], function), dx[row], f"dx row {i}")
