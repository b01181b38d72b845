"""upsample2d: nearest as numpy.repeat, bit for bit, backward sums each block; bilinear beside its definition."""

import numpy as np
import pytest
import reference as ref

from minidl_c.kernels.upsample2d import BilinearUpsample2DOp, Upsample2DOp
from minidl_c.runtime.single_op import backward_batch, forward_batch

DTYPES = ("float32", "float64")
SPECIAL = (-np.inf, -0.0, 0.0, np.inf, np.nan, 3e38)


def both(check, x, dy, scale, **options):
    op = Upsample2DOp(x.shape[1:], scale, x.dtype.name)
    y, dx = check.output((len(x), *op.out_shape), x.dtype), check.output(x.shape, x.dtype)
    forward_batch(op, x, y, **options)
    backward_batch(op, dy, x, dx, **options)
    return y, dx


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 33])
@pytest.mark.parametrize("dtype", DTYPES)
def test_matches_numpy(check, dtype, n):
    rng = np.random.default_rng(n)
    for scale in [(1, 1), (2, 2), (3, 3), (1, 4), (5, 1), *rng.integers(1, 7, (9, 2)).tolist()]:
        c, h, w = (int(v) for v in rng.integers(1, 7, 3))
        x = check.input(rng.choice([*SPECIAL, *rng.standard_normal(9)], (n, c, h, w)), dtype)
        expected = x.repeat(scale[0], axis=2).repeat(scale[1], axis=3)
        dy = check.input(rng.standard_normal(expected.shape), dtype)
        blocks = dy.astype("f8").reshape(n, c, h, scale[0], w, scale[1])
        bound = ref.rounding(int(np.prod(scale)) + 1, dtype) * np.abs(blocks).sum(axis=(3, 5))
        first = None
        for threads in (1, 2, 3, 8):
            y, dx = both(check, x, dy, scale, num_threads=threads)
            label = f"{dtype} {x.shape} {scale} {threads} threads"
            check.same_bits(y, expected, f"y {label}")
            check.close(dx, blocks.sum(axis=(3, 5)), bound, f"dx {label}")
            first = dx if first is None else first
            check.same_bits(dx, first, f"dx, repeated {label}")
        check.count("upsample2d", dtype)


def test_many_channels_of_one_example(check):
    """In the blocked layout."""
    x, dy = (np.random.default_rng(3).standard_normal((1, 65, *size), "f4") for size in ((4, 3), (8, 6)))
    for threads in (1, 2, 3):
        y, dx = both(check, x, dy, (2, 2), num_threads=threads)
        check.same_bits(y, x.repeat(2, axis=2).repeat(2, axis=3), f"y, {threads} threads")
        check.close(dx, dy.reshape(1, 65, 4, 2, 3, 2).sum((3, 5), dtype="f8"), 1e-5, f"dx, {threads} threads")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scale": (0, 1)}, "scale: expected numbers from 1"),
        ({"scale": 2}, "scale: expected 2 whole numbers"),
        ({"scale": (2**62, 2**62)}, "output shape: expected at most"),
        ({"in_shape": (3, 4)}, "input shape: expected 3 whole numbers"),
        ({"dtype": "float16"}, "dtype"),
    ],
    ids=str,
)
def test_invalid_arguments_are_refused(changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Upsample2DOp(**{"in_shape": (2, 3, 4), "scale": (2, 2)} | changes)


# ---- bilinear


def matrix(n, size, scale, align_corners):
    """Returns the weights of each source pixel in each output along an axis, (size, n), from the definition."""
    weights = np.zeros((size, n))
    for i in range(size):
        aligned = i * (n - 1) / (size - 1) if size > 1 else 0.0
        at = aligned if align_corners else min(max((i + 0.5) / scale - 0.5, 0.0), n - 1)
        low = min(int(at), n - 1)
        weights[i, low] += 1 - (at - low)
        weights[i, min(low + 1, n - 1)] += at - low
    return weights


def interpolate(check, op, x, dy, **options):
    y, dx = check.output((len(x), *op.out_shape), x.dtype), check.output(x.shape, x.dtype)
    forward_batch(op, x, y, **options)
    backward_batch(op, dy, x, dx, **options)
    return y, dx


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 33])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("align_corners", [False, True])
def test_bilinear_matches_the_definition(check, align_corners, dtype, n):
    rng = np.random.default_rng(n)
    sizes = [(1, 1), (2, 3), (13, 11), (4, 1), *rng.integers(1, 12, (6, 2)).tolist()]
    for size in map(tuple, sizes):
        c, h, w = (int(v) for v in rng.integers(1, 7, 3))
        scale = (size[0] / h, size[1] / w) if rng.integers(2) else (1.5, 0.7)
        op = BilinearUpsample2DOp((c, h, w), size, scale, align_corners, dtype)
        rows, columns = matrix(h, size[0], scale[0], align_corners), matrix(w, size[1], scale[1], align_corners)
        x = check.input(rng.standard_normal((n, c, h, w)), dtype)
        dy = check.input(rng.standard_normal((n, c, *size)), dtype)
        label = f"{dtype} {x.shape} to {size} by {scale}, align_corners={align_corners}"
        first = None
        for threads in (1, 2, 3, 8):
            y, dx = interpolate(check, op, x, dy, num_threads=threads)
            coordinates = ref.rounding(40, "float64") * np.abs(x.astype("f8")).max(initial=0)
            bound = ref.rounding(12, dtype) * (rows @ np.abs(x.astype("f8")) @ columns.T) + coordinates
            check.close(y, rows @ x.astype("f8") @ columns.T, bound, f"y {label}")
            bound = ref.rounding(12 + 4 * size[0] * size[1], dtype) * (rows.T @ np.abs(dy.astype("f8")) @ columns)
            bound += ref.rounding(40, "float64") * np.abs(dy.astype("f8")).sum(axis=(2, 3), keepdims=True)
            check.close(dx, rows.T @ dy.astype("f8") @ columns, bound, f"dx {label}")
            first = first or (y, dx)
            check.same_bits(y, first[0], f"y, repeated {label}, {threads} threads")
            check.same_bits(dx, first[1], f"dx, repeated {label}, {threads} threads")
        check.count("bilinear", dtype)


def test_bilinear_rows_do_not_depend_on_their_neighbours(check):
    rng, op = np.random.default_rng(1), BilinearUpsample2DOp((3, 5, 4), (9, 7), (9 / 5, 7 / 4), False)
    x, dy = rng.standard_normal((19, 3, 5, 4), "f4"), rng.standard_normal((19, 3, 9, 7), "f4")
    both = interpolate(check, op, x, dy)
    for i in range(19):
        row = slice(i, i + 1)
        for name, a, b in zip(("y", "dx"), interpolate(check, op, x[row], dy[row]), both, strict=True):
            check.same_bits(a, b[row], f"{name} row {i}")


@pytest.mark.parametrize("align_corners", [False, True])
def test_bilinear_to_the_same_size_changes_nothing(check, align_corners):
    x = np.random.default_rng(2).standard_normal((17, 2, 5, 6), "f4")
    y, dx = interpolate(check, BilinearUpsample2DOp((2, 5, 6), (5, 6), (1.0, 1.0), align_corners), x, x)
    check.equal(y, x, "y")
    check.equal(dx, x, "dx")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": (0, 1)}, "size: expected numbers from 1"),
        ({"size": 2}, "size: expected 2 whole numbers"),
        ({"size": (2**25, 1)}, "size: expected at most 16777216 pixels along an axis"),
        ({"size": (2**23, 2**23)}, "output shape: expected at most"),
        ({"scale": (0.0, 1.0)}, "scale: expected numbers from 1 / 16777216 to 16777216"),
        ({"scale": (1.0, float("nan"))}, "scale: expected numbers from"),
        ({"scale": (1.0, 1e-200)}, "scale: expected numbers from"),
        ({"in_shape": (3, 4)}, "input shape: expected 3 whole numbers"),
        ({"dtype": "float16"}, "dtype"),
    ],
    ids=str,
)
def test_invalid_arguments_of_bilinear_are_refused(changes, message):
    arguments = {"in_shape": (2, 3, 4), "size": (5, 6), "scale": (1.5, 1.5), "align_corners": False}
    with pytest.raises((ValueError, TypeError), match=message):
        BilinearUpsample2DOp(**arguments | changes)
