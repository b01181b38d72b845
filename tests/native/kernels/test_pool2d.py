"""pool2d: adaptive windows of max- and average-pooling beside their definition; sizes that divide; bits; errors."""

import numpy as np
import pytest
import reference as ref

from minidl_c.kernels.avgpool2d import AdaptiveAvgPool2DOp, AvgPool2DOp
from minidl_c.kernels.maxpool2d import AdaptiveMaxPool2DOp, MaxPool2DOp
from minidl_c.runtime.single_op import backward_batch, forward_batch

DTYPES = ("float32", "float64")
SIZES = [(1, 1), (2, 3), (4, 5), (7, 6), (10, 3), (1, 13)]
OPS = (AdaptiveAvgPool2DOp, AdaptiveMaxPool2DOp)


def both(check, op, x, dy, **options):
    y, dx = check.output((len(x), *op.out_shape), x.dtype), check.output(x.shape, x.dtype)
    forward_batch(op, x, y, **options)
    backward_batch(op, dy, x, dx, **options)
    return y, dx


def windows(n, size):
    """Returns the windows of an axis as slices, from PyTorch's definition."""
    return [slice(i * n // size, -(-(i + 1) * n // size)) for i in range(size)]


def mean(x, dy, size):
    """Returns (y, dx) of the mean of each window."""
    y, dx = np.zeros(dy.shape), np.zeros(x.shape)
    for p, rows in enumerate(windows(x.shape[2], size[0])):
        for q, columns in enumerate(windows(x.shape[3], size[1])):
            cells = x[:, :, rows, columns]
            y[:, :, p, q] = cells.mean(axis=(2, 3), dtype="f8")
            dx[:, :, rows, columns] += dy[:, :, p, q, None, None] / (cells.shape[2] * cells.shape[3])
    return y, dx


def largest(x, dy, size):
    """Returns (y, dx) of the maximum of each window; the first one, or the first NaN, gets the gradient."""
    y, dx = np.zeros(dy.shape), np.zeros(x.shape)
    for p, rows in enumerate(windows(x.shape[2], size[0])):
        for q, columns in enumerate(windows(x.shape[3], size[1])):
            for n, c in np.ndindex(x.shape[:2]):
                cells = x[n, c, rows, columns]
                place = np.unravel_index(cells.argmax(), cells.shape)  # NumPy's argmax finds the first NaN
                y[n, c, p, q] = cells[place]
                dx[n, c, rows, columns][place] += dy[n, c, p, q]
    return y, dx


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 33])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_matches_the_definition(check, size, dtype, n):
    rng = np.random.default_rng(n)
    for shape in [(3, 7, 9), (2, 4, 5), (1, 1, 13)]:
        x = rng.integers(-3, 4, (n, *shape)).astype(dtype)
        x[rng.random(x.shape) < 0.05] = np.nan
        dy = check.input(rng.integers(-9, 10, (n, shape[0], *size)), dtype)
        for threads in (1, 2, 3, 8):
            label = f"{dtype} {x.shape} to {size}, {threads} threads"
            y, dx = largest(x, dy, size)
            found = both(check, AdaptiveMaxPool2DOp(shape, size, dtype), check.input(x, dtype), dy, num_threads=threads)
            check.equal(found[0], y, f"y of max {label}")
            check.equal(found[1], dx, f"dx of max {label}")
            finite = np.nan_to_num(x)
            y, dx = mean(finite, dy, size)
            found = both(check, AdaptiveAvgPool2DOp(shape, size, dtype), finite, dy, num_threads=threads)
            check.close(found[0], y, ref.rounding(70, dtype) * 3, f"y of mean {label}")
            check.close(found[1], dx, ref.rounding(70, dtype) * mean(finite, abs(dy), size)[1], f"dx of mean {label}")
        check.count("adaptive pools", dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [(4, 3), (2, 9), (8, 1), (1, 1), (8, 9)])
def test_a_size_that_divides_gives_the_bits_of_ordinary_windows(check, size, dtype):
    rng, shape = np.random.default_rng(3), (3, 8, 9)
    window = tuple(n // m for n, m in zip(shape[1:], size, strict=True))
    x, dy = rng.standard_normal((17, *shape)).astype(dtype), rng.standard_normal((17, 3, *size)).astype(dtype)
    for adaptive, ordinary in ((AdaptiveAvgPool2DOp, AvgPool2DOp), (AdaptiveMaxPool2DOp, MaxPool2DOp)):
        found = both(check, adaptive(shape, size, dtype), x, dy)
        expected = both(check, ordinary(shape, window, window, dtype=dtype), x, dy)
        for name, a, b in zip(("y", "dx"), found, expected, strict=True):
            check.same_bits(a, b, f"{name} of {adaptive.__name__} to {size}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cls", OPS)
def test_threads_and_batch_neighbours_change_no_bit(check, dtype, cls):
    rng, op = np.random.default_rng(10), cls((3, 7, 9), (4, 5), dtype)
    x, dy = rng.standard_normal((19, 3, 7, 9)).astype(dtype), rng.standard_normal((19, 3, 4, 5)).astype(dtype)
    y, dx = both(check, op, x, dy)
    for threads in (2, 3, 8):
        for name, a, b in zip(("y", "dx"), both(check, op, x, dy, num_threads=threads), (y, dx), strict=True):
            check.same_bits(a, b, f"{name} {threads} threads")
    for i in range(19):
        row = slice(i, i + 1)
        for name, a, b in zip(("y", "dx"), both(check, op, x[row], dy[row]), (y[row], dx[row]), strict=True):
            check.same_bits(a, b, f"{name} row {i}")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": (0, 2)}, "size: expected numbers from 1"),
        ({"size": 2}, "size: expected 2 whole numbers"),
        ({"size": (2**24 + 1, 1)}, "output shape: expected at most 16777216 windows along an axis"),
        ({"size": (2**23, 2**23)}, "output shape: expected at most"),
        ({"in_shape": (1, 2**16, 2**16), "size": (1, 1)}, r"size: expected fewer than 2\*\*31 cells in a window"),
        ({"in_shape": (2, 6)}, "input shape: expected 3 whole numbers"),
        ({"dtype": "float16"}, "dtype"),
    ],
    ids=str,
)
@pytest.mark.parametrize("cls", OPS)
def test_invalid_arguments_are_refused(cls, changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        cls(**{"in_shape": (2, 6, 5), "size": (2, 3)} | changes)
