"""cutout: boxes compared with NumPy, statistics, bitwise reproducibility, errors."""

import numpy as np
import pytest
import reference_augment as augment

from minidl_c.kernels.cutout import CutoutOp
from minidl_c.runtime.single_op import backward_batch, forward_batch

DTYPES = ("float32", "float64")
BATCHES = (0, 1, 15, 16, 17, 33)
THREADS = (1, 2, 3, 8)
LARGE = 2**63 - 1  # the largest seed and step
SPECIAL = (-np.inf, -0.0, 0.0, np.inf, np.nan, 3e38)


def geometries(rng, count):
    """Yields in_shape, size and rate."""
    for _ in range(count):
        shape, size = (tuple(int(v) for v in rng.integers(1, 9, n)) for n in (3, 2))
        yield shape, size, float(rng.choice([0.0, 0.3, 1.0]))


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
    rng = np.random.default_rng(n)
    for number, (shape, size, rate) in enumerate(geometries(rng, 40)):
        what = {"seed": int(rng.integers(LARGE)), "step": int(rng.integers(2**40))}
        numbers = rng.integers(0, (10, 2**32, LARGE)[number % 3], n)
        inside = augment.cutout_boxes(numbers, shape, size, rate, **what, path=f"{number}")
        x = check.input(rng.choice([*SPECIAL, *rng.standard_normal(20)], (n, *shape)), dtype)
        dy = check.input(rng.standard_normal((n, *shape)), dtype)
        op = CutoutOp(shape, size, 0.3, rate, f"{number}", dtype)
        for threads in THREADS:
            run = what | {"example_ids": numbers, "num_threads": threads}
            label = f"{dtype} {shape} {size} {rate} {threads} threads"
            check.same_bits(forward(check, op, x, **run), np.where(inside, x.dtype.type(0.3), x), f"y {label}")
            check.same_bits(backward(check, op, dy, **run), np.where(inside, dy.dtype.type(0), dy), f"dx {label}")
        check.count("cutout", dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_inference_is_the_identity(check, dtype):
    rng = np.random.default_rng(0)
    op = CutoutOp((3, 5, 4), (3, 3), dtype=dtype)
    for n in BATCHES:
        x = check.input(rng.choice([*SPECIAL, *rng.standard_normal(20)], (n, 3, 5, 4)), dtype)
        for threads in THREADS:
            y = check.output(x.shape, dtype)
            forward_batch(op, x, y, num_threads=threads, seed=3, step=4)
            check.same_bits(y, x, f"{n} {threads}")


def boxes(n, rate=1.0, **run):
    """Returns the mask of boxes of 3 x 3 in images of 9 x 7."""
    y = np.empty((n, 1, 9, 7), "f4")
    forward_batch(CutoutOp((1, 9, 7), (3, 3), 1.0, rate), np.zeros_like(y), y, training=True, **run)
    return y[:, 0] == 1


def test_all_centres_are_equally_likely():
    """Chi squared of the centres, found from a box's rows and columns, is within 4 standard deviations of its mean."""
    n = 2**16
    inside = boxes(n)
    assert (inside.any(axis=2).sum(axis=1) >= 2).all() and inside.sum(axis=(1, 2)).max() == 9
    counts = np.zeros((9, 7))
    for axis, size in ((2, 9), (1, 7)):
        lines = inside.any(axis=axis)
        first, last = lines.argmax(axis=1), size - 1 - lines[:, ::-1].argmax(axis=1)
        centre = np.where(first == 0, last - 1, first + 1)
        if axis == 2:
            rows = centre
    np.add.at(counts, (rows, centre), 1)
    chi = ((counts - n / 63) ** 2 / (n / 63)).sum()
    assert abs(chi - 62) <= 4 * np.sqrt(2 * 62)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_the_fraction_of_boxes_matches_the_rate(rate):
    n = 2**16
    assert abs(boxes(n, rate).any(axis=(1, 2)).mean() - rate) <= 4 * np.sqrt(rate * (1 - rate) / n)
    assert not boxes(1000, 0.0).any() and boxes(1000, 1.0).any(axis=(1, 2)).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_and_batch_neighbours_change_no_bit(check, dtype):
    rng = np.random.default_rng(1)
    x, dy = (rng.standard_normal((277, 3, 9, 8)).astype(dtype) for _ in range(2))
    op = CutoutOp((3, 9, 8), (4, 5), 0.5, 0.7, dtype=dtype)
    y, dx = forward(check, op, x), backward(check, op, dy)
    for threads in (2, 3, 8):
        check.same_bits(forward(check, op, x, num_threads=threads), y, f"y {threads} threads")
        check.same_bits(backward(check, op, dy, num_threads=threads), dx, f"dx {threads} threads")
    for i in range(40):
        row, numbers = slice(i, i + 1), np.array([i])
        check.same_bits(forward(check, op, x[row], example_ids=numbers), y[row], f"y row {i}")
        check.same_bits(backward(check, op, dy[row], example_ids=numbers), dx[row], f"dx row {i}")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": (0, 2)}, "size: expected numbers from 1"),
        ({"size": (2**24 + 1, 2)}, "size: expected at most 16777216 pixels"),
        ({"size": 3}, "size: expected 2 whole numbers"),
        ({"in_shape": (1, 2**13, 2**12)}, "input shape: expected at most 16777216 pixels"),
        ({"in_shape": (2**40, 4, 4)}, "input shape: expected at most"),
        ({"in_shape": (4, 4)}, "input shape: expected 3 whole numbers"),
        ({"rate": 1.5}, "rate: expected a number from 0 to 1, got 1.5"),
        ({"rate": -0.1}, "rate.*got -0.1"),
        ({"rate": np.nan}, "rate.*got nan"),
        ({"value": None}, None),
        ({"path": 3}, "path: expected a string, got 3"),
        ({"dtype": "float16"}, "dtype"),
    ],
    ids=str,
)
def test_invalid_arguments_are_refused(changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        CutoutOp(**{"in_shape": (2, 4, 5), "size": (3, 3)} | changes)
