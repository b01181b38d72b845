"""reduce: each function and its gradient over any axes, compared with NumPy; ties, NaN, zeros, reproducibility."""

from itertools import combinations

import numpy as np
import pytest
import reference as ref

from minidl_c.kernels.reduce import ReduceOp
from minidl_c.runtime.single_op import backward_batch, forward_batch

DTYPES = ("float32", "float64")
FUNCTIONS = ("mean", "sum", "max", "min", "l2")
SHAPES = [(1,), (40,), (3, 1), (3, 4, 5), (2, 300), (2, 3, 1, 2)]
THREADS = (1, 2, 3, 8)
NAN = np.nan

each_dtype = pytest.mark.parametrize("dtype", DTYPES)
each_function = pytest.mark.parametrize("function", FUNCTIONS)


def out_shape(shape, axes):
    return tuple(size for axis, size in enumerate(shape) if axis not in axes) or (1,)


def forward(check, function, axes, x, **options):
    shape = out_shape(x.shape[1:], axes)
    y = check.output((len(x), *shape), x.dtype)
    forward_batch(ReduceOp(x.shape[1:], function, axes, shape, x.dtype.name), x, y, **options)
    return y


def backward(check, function, axes, dy, x, **options):
    dx = check.output(x.shape, x.dtype)
    backward_batch(ReduceOp(x.shape[1:], function, axes, dy.shape[1:], x.dtype.name), dy, x, dx, **options)
    return dx


def expected(function, axes, x, dy):
    """Returns y and dx: all elements of a reduction as the last axis, then back."""
    order = [axis + 1 for axis in range(x.ndim - 1) if axis not in axes] + [axis + 1 for axis in axes]
    moved = x.transpose(0, *order)
    rows, d = moved.reshape(*dy.shape, int(np.prod([x.shape[axis + 1] for axis in axes]))), dy[..., np.newaxis]
    first = {"max": rows.argmax(-1), "min": rows.argmin(-1)}.get(function)
    if function == "l2":
        y = np.sqrt((rows**2).sum(-1))
        slope = np.divide(rows, y[..., np.newaxis], where=y[..., np.newaxis] > 0, out=np.zeros_like(rows))
    elif first is None:
        y, slope = rows.sum(-1), np.ones_like(rows)
        if function == "mean":
            y, slope = y / rows.shape[-1], slope / rows.shape[-1]
    else:
        y = np.take_along_axis(rows, first[..., np.newaxis], -1)[..., 0]
        slope = np.arange(rows.shape[-1]) == first[..., np.newaxis]
    dx = (d * slope).reshape(moved.shape).transpose(np.argsort([0, *order]))
    return y, dx


@each_function
@each_dtype
def test_matches_numpy(check, dtype, function):
    for shape in SHAPES:
        for axes in (axes for n in range(1, len(shape) + 1) for axes in combinations(range(len(shape)), n)):
            for n in (0, 1, 16, 17):
                rng = np.random.default_rng(n)
                x = check.input(
                    rng.integers(-3, 4, (n, *shape)) * rng.choice([0.5, 1], (n, *shape)), dtype
                )  # with ties
                dy = check.input(rng.standard_normal((n, *out_shape(shape, axes))), dtype)
                y, dx = expected(function, axes, x.astype("f8"), dy.astype("f8"))
                bound = ref.rounding(x.size + 4, dtype) * (np.abs(x).max(initial=1) * np.sqrt(x.size + 1) + np.abs(y))
                check.close(forward(check, function, axes, x), y, bound, f"y {shape} {axes}")
                bound = 8 * np.finfo(dtype).eps * (np.abs(dx) + 1e-30)
                check.close(backward(check, function, axes, dy, x), dx, bound, f"dx {shape} {axes}")
                check.count("reduce", dtype)


@each_function
@each_dtype
def test_nan_makes_its_own_output_nan(check, dtype, function):
    x = np.random.default_rng(0).standard_normal((17, 3, 4)).astype(dtype)
    x[5, 1, 2], x[5, 1, 3] = NAN, 9
    y, dx = forward(check, function, (1,), x), backward(check, function, (1,), np.ones((17, 3), dtype), x)
    assert np.isnan(y[5, 1]) and np.isnan(y).sum() == 1
    if function in ("max", "min"):
        assert dx[5, 1].tolist() == [0, 0, 1, 0]


@each_dtype
def test_the_gradient_of_a_norm_of_0_is_0(check, dtype):
    x = np.zeros((17, 2, 3), dtype)
    x[0, 1] = 2
    dx = backward(check, "l2", (1,), np.ones((17, 2), dtype), x)
    assert np.isfinite(dx).all() and np.count_nonzero(dx) == 3


@each_function
@each_dtype
def test_threads_and_batch_neighbours_change_no_bit(check, dtype, function):
    rng = np.random.default_rng(1)
    for axes in ((0,), (1, 2), (0, 2)):
        x = rng.standard_normal((40, 5, 6, 31)).astype(dtype)
        dy = rng.standard_normal((40, *out_shape((5, 6, 31), axes))).astype(dtype)
        y, dx = forward(check, function, axes, x), backward(check, function, axes, dy, x)
        for threads in THREADS:
            check.same_bits(forward(check, function, axes, x, num_threads=threads), y, f"y {threads} threads")
            check.same_bits(backward(check, function, axes, dy, x, num_threads=threads), dx, f"dx {threads} threads")
        for i in (0, 17, 39):
            row = slice(i, i + 1)
            check.same_bits(forward(check, function, axes, x[row], num_threads=3), y[row], f"y row {i}")
            check.same_bits(backward(check, function, axes, dy[row], x[row]), dx[row], f"dx row {i}")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("median", (0,), (4,)), ValueError, "function: expected one of sum, mean, max, min, l2, got 'median'"),
        ((None, (0,), (4,)), TypeError, "function"),
        (("sum", (), (3, 4)), ValueError, "axes: expected some of 0 to 1"),
        (("sum", (2,), (4,)), ValueError, "axes: expected some of 0 to 1"),
        (("sum", (1, 0), (1,)), ValueError, "axes: expected some of 0 to 1, in their order"),
        (("sum", (-1,), (3,)), ValueError, "axes"),
        (("sum", (0,), (3,)), ValueError, "out_shape: expected 4 elements"),
        (("sum", (0,), (4,), "float16"), ValueError, "dtype"),
    ],
)
def test_invalid_arguments_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        ReduceOp((3, 4), *arguments)
