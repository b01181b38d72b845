"""scale: y, dx and the gradients of factors and offsets compared with NumPy; NaN, infinity, reproducibility."""

from itertools import combinations

import numpy as np
import pytest
import reference as ref

from minidl_c.kernels.scale import ScaleOp
from minidl_c.runtime.single_op import backward_batch, forward_batch

DTYPES = ("float32", "float64")
BATCHES = (0, 1, 15, 16, 17, 33, 277)  # 277: slots of two tiles
SHAPES = [(1,), (7,), (1, 2, 3), (3, 1, 1), (5, 4, 7), (2, 40), (17, 3)]
THREADS = (1, 2, 3, 8)

each_dtype = pytest.mark.parametrize("dtype", DTYPES)
with_or_without_bias = pytest.mark.parametrize("use_bias", [False, True])


def forward(check, x, params, **options):
    y = check.output(x.shape, x.dtype)
    forward_batch(ScaleOp(x.shape[1:], len(params) == 2, x.dtype.name), x, y, params, **options)
    return y


def backward(check, dy, x, params, want_dx=True, **options):
    """Returns (dx, *gradients)."""
    dx = check.output(x.shape, x.dtype) if want_dx else None
    grads = [check.output(p.shape, x.dtype) for p in params]
    backward_batch(ScaleOp(x.shape[1:], len(params) == 2, x.dtype.name), dy, x, dx, params, grads, **options)
    return dx, *grads


def along_channels(weight, x):
    return weight.reshape(-1, *(1,) * (x.ndim - 2))


def draw(check, rng, n, shape, use_bias, dtype):
    """Draws x, dy and the parameters."""
    x, dy = (check.input(rng.standard_normal((n, *shape)), dtype) for _ in range(2))
    return x, dy, tuple(check.input(rng.standard_normal(shape[0]), dtype) for _ in range(1 + use_bias))


@pytest.mark.parametrize("n", BATCHES)
@with_or_without_bias
@each_dtype
def test_matches_numpy(check, dtype, use_bias, n):
    rng = np.random.default_rng(n)
    for shape in SHAPES:
        x, dy, params = draw(check, rng, n, shape, use_bias, dtype)
        what = f"{dtype} n={n} {shape} use_bias={use_bias}"
        wide, w = x.astype("f8"), along_channels(params[0].astype("f8"), x)
        b = along_channels(params[1].astype("f8"), x) if use_bias else 0
        bound = np.finfo(dtype).eps * (np.abs(w * wide) + np.abs(b))
        check.close(forward(check, x, params), w * wide + b, bound, f"y {what}")
        dx, *grads = backward(check, dy, x, params)
        check.equal(dx, along_channels(params[0], x) * dy, f"dx {what}")
        axes = (0, *range(2, x.ndim))
        for grad, terms in zip(grads, (wide * dy, dy.astype("f8")), strict=False):
            bound = ref.rounding(x.size, dtype) * np.abs(terms).sum(axes)
            check.close(grad, terms.sum(axes), bound, f"gradient {what}")
        for a, b in zip(backward(check, dy, x, params, want_dx=False)[1:], grads, strict=True):
            check.same_bits(a, b, f"gradient without dx {what}")
        check.count("scale", dtype)


@with_or_without_bias
@each_dtype
def test_non_finite_values_stay_in_their_place(check, dtype, use_bias):
    rng = np.random.default_rng(0)
    x, dy, params = draw(check, rng, 17, (3, 4), use_bias, dtype)
    clean = forward(check, x, params)
    for value in (np.nan, np.inf, -np.inf):
        bad, place = np.array(x), np.zeros(x.shape, bool)
        bad[16, 1, 2], place[16, 1, 2] = value, True
        y = forward(check, bad, params)
        assert not np.isfinite(y[place]).any()
        check.equal(y[~place], clean[~place], "y")
        dweight = backward(check, dy, bad, params)[1]
        assert np.isfinite(dweight).tolist() == [True, False, True]


@with_or_without_bias
@each_dtype
def test_threads_and_batch_neighbours_change_no_bit(check, dtype, use_bias):
    rng = np.random.default_rng(1)
    for shape in ((37,), (5, 2, 3), (2, 300)):
        for n in (5, 16, 40, 277):
            x, dy, params = draw(check, rng, n, shape, use_bias, dtype)
            y, found = forward(check, x, params), backward(check, dy, x, params)
            for threads in THREADS:
                check.same_bits(forward(check, x, params, num_threads=threads), y, f"y of {n}, {threads} threads")
                for a, b in zip(backward(check, dy, x, params, num_threads=threads), found, strict=True):
                    check.same_bits(a, b, f"gradient of {n}, {threads} threads")
        for i in range(40):
            row = slice(i, i + 1)
            check.same_bits(forward(check, x[row], params), y[row], f"y row {i}")


def forward_along(check, x, params, axes, **options):
    y = check.output(x.shape, x.dtype)
    forward_batch(ScaleOp(x.shape[1:], len(params) == 2, x.dtype.name, axes), x, y, params, **options)
    return y


def backward_along(check, dy, x, params, axes, **options):
    dx, grads = check.output(x.shape, x.dtype), [check.output(p.shape, x.dtype) for p in params]
    op = ScaleOp(x.shape[1:], len(params) == 2, x.dtype.name, axes)
    backward_batch(op, dy, x, dx, params, grads, **options)
    return dx, *grads


ALONG = [
    (shape, axes)
    for shape in ((3, 1, 2), (17, 3, 4), (2, 40))
    for n in range(1, len(shape) + 1)
    for axes in combinations(range(len(shape)), n)
]


@with_or_without_bias
@each_dtype
@pytest.mark.parametrize(("shape", "axes"), ALONG, ids=str)
def test_weights_along_axes_match_numpy_for_any_threads(check, dtype, use_bias, shape, axes):
    rng = np.random.default_rng(3)
    sizes = [n if axis in axes else 1 for axis, n in enumerate(shape)]
    others = tuple(axis for axis in range(len(shape) + 1) if axis - 1 not in axes)
    for n in (1, 16, 37):
        x, dy = (check.input(rng.standard_normal((n, *shape)), dtype) for _ in range(2))
        kept = tuple(shape[axis] for axis in axes)
        params = tuple(check.input(rng.standard_normal(kept), dtype) for _ in range(1 + use_bias))
        wide, w = x.astype("f8"), params[0].astype("f8").reshape(sizes)
        b = params[1].astype("f8").reshape(sizes) if use_bias else 0
        y, (dx, *grads) = forward_along(check, x, params, axes), backward_along(check, dy, x, params, axes)
        check.close(y, w * wide + b, np.finfo(dtype).eps * (np.abs(w * wide) + np.abs(b)), f"y {shape} {axes}")
        check.equal(dx, params[0].reshape(sizes) * dy, f"dx {shape} {axes}")
        for grad, terms in zip(grads, (wide * dy, dy.astype("f8")), strict=False):
            bound = ref.rounding(x.size, dtype) * np.abs(terms).sum(others)
            check.close(grad, terms.sum(others), bound, f"gradient {shape} {axes}")
        for threads in (2, 3):
            check.same_bits(forward_along(check, x, params, axes, num_threads=threads), y, "y")
            again = backward_along(check, dy, x, params, axes, num_threads=threads)
            for a, b in zip(again, (dx, *grads), strict=True):
                check.same_bits(a, b, f"gradient of {n}, {threads} threads")


@pytest.mark.parametrize("axes", [(), (1,), (-1,), (0, 0), ("0",), None, 0])
def test_invalid_axes_are_refused(axes):
    with pytest.raises((TypeError, ValueError)):
        ScaleOp((3,), axes=axes)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), ("a",), (2.0,), None])
def test_invalid_shapes_are_refused(shape):
    with pytest.raises((TypeError, ValueError)):
        ScaleOp(shape)


def test_an_invalid_dtype_is_refused():
    with pytest.raises(ValueError, match="dtype: expected 'float32' or 'float64', got 'float16'"):
        ScaleOp((3,), dtype="float16")
