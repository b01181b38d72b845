"""noise: compared with NumPy, the distribution, bitwise reproducibility, errors."""

import numpy as np
import pytest
import reference_augment as augment
from scipy import stats

from minidl_c.kernels.noise import NoiseOp
from minidl_c.runtime.single_op import backward_batch, forward_batch

DTYPES = ("float32", "float64")
BATCHES = (0, 1, 15, 16, 17, 33)
THREADS = (1, 2, 3, 8)
LARGE = 2**63 - 1  # the largest seed and step


def forward(check, op, x, **run):
    y = check.output(x.shape, x.dtype)
    forward_batch(op, x, y, training=True, **run)
    return y


def backward(check, op, dy, **run):
    dx = check.output(dy.shape, dy.dtype)
    backward_batch(op, dy, np.zeros(dy.shape, dy.dtype), dx, **run)
    return dx


@pytest.mark.parametrize("n", BATCHES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_matches_numpy(check, dtype, n):
    """To two roundings to the dtype, and one of the logarithm's argument, which counts near 1."""
    rng = np.random.default_rng(n)
    for number, size in enumerate((1, 2, 3, 16, 33, int(rng.integers(100, 1000)))):
        what = {"seed": int(rng.integers(LARGE)), "step": int(rng.integers(2**40))}
        numbers = rng.integers(0, (10, 2**32, LARGE)[number % 3], n)
        normal = augment.normal_numbers(size, numbers, **what, path=f"{size}")
        x, dy = (check.input(rng.uniform(-1, 1, (n, size)), dtype) for _ in range(2))
        op, bound = NoiseOp((size,), 0.7, f"{size}", dtype), 1e-11 + 12 * np.finfo(dtype).eps / 2
        for threads in THREADS:
            run = what | {"example_ids": numbers, "num_threads": threads}
            check.close(forward(check, op, x, **run), x + 0.7 * normal, bound, f"y {size} {threads} threads")
            check.same_bits(backward(check, op, dy, **run), dy, f"dx {size} {threads} threads")
        check.count("noise", dtype)


def test_both_dtypes_have_the_same_noise(check):
    zeros = np.zeros((17, 101))
    wide = forward(check, NoiseOp((101,), 0.3, dtype="float64"), zeros)
    narrow = forward(check, NoiseOp((101,), 0.3, dtype="float32"), zeros.astype("f4"))
    check.same_bits(narrow, wide.astype("f4"), "rounded")


@pytest.mark.parametrize("dtype", DTYPES)
def test_inference_is_the_identity(check, dtype):
    rng, op = np.random.default_rng(0), NoiseOp((3, 5), 1.0, dtype=dtype)
    for n in BATCHES:
        x = check.input(rng.choice([np.nan, np.inf, -0.0, *rng.standard_normal(20)], (n, 3, 5)), dtype)
        for threads in THREADS:
            y = check.output(x.shape, dtype)
            forward_batch(op, x, y, num_threads=threads, seed=3, step=4)
            check.same_bits(y, x, f"{n} {threads}")


def test_the_distribution_is_normal():
    """Of 2**20 numbers: Kolmogorov and Smirnov's test, moments, and independence of neighbours, examples and steps."""
    y, other = np.empty((1024, 1024)), np.empty((1024, 1024))
    op, nothing = NoiseOp((1024,), 1.0, dtype="float64"), np.zeros((1024, 1024))
    forward_batch(op, nothing, y, training=True, seed=1)
    forward_batch(op, nothing, other, training=True, seed=1, step=1)
    assert stats.kstest(y.ravel(), "norm").pvalue > 1e-4
    assert abs(y.mean()) * 1024 <= 4 and abs(y.var() - 1) * 1024 / np.sqrt(2) <= 4
    assert 4.3 < np.abs(y).max() < 6.8
    for a, b in ((y[:, 1:], y[:, :-1]), (y[:, 2:], y[:, :-2]), (y[1:], y[:-1]), (y[16:], y[:-16]), (y, other)):
        for power in (1, 2):
            correlation = np.corrcoef((a**power).ravel(), (b**power).ravel())[0, 1]
            assert abs(correlation) * 1024 <= 4


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_and_batch_neighbours_change_no_bit(check, dtype):
    x = np.random.default_rng(1).standard_normal((277, 73)).astype(dtype)
    op = NoiseOp((73,), 0.4, dtype=dtype)
    y = forward(check, op, x)
    for threads in (2, 3, 8):
        check.same_bits(forward(check, op, x, num_threads=threads), y, f"{threads} threads")
    for i in range(40):
        check.same_bits(forward(check, op, x[i : i + 1], example_ids=np.array([i])), y[i : i + 1], f"row {i}")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"std": -0.1}, "std: expected at least 0.*got -0.1"),
        ({"std": np.nan}, "std: expected"),
        ({"std": 1e38}, "std: expected at least 0 and a number that float32 can hold ten times, got 1e.38"),
        ({"std": 1e308, "dtype": "float64"}, "std: expected.*float64"),
        ({"std": None}, None),
        ({"in_shape": (2**41,)}, "shape: expected at most"),
        ({"path": 3}, "path: expected a string, got 3"),
        ({"dtype": "float16"}, "dtype"),
    ],
    ids=str,
)
def test_invalid_arguments_are_refused(changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        NoiseOp(**{"in_shape": (5,), "std": 0.1} | changes)
