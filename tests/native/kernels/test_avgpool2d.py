"""avgpool2d: hundreds of geometries compared with the reference; divisors, ceil mode, reproducibility, errors."""

from dataclasses import replace

import numpy as np
import pytest
import reference as ref
import reference_images as images
from geometries import Pool, pool_cases
from slow_marks import slow_after

from minidl_c.kernels.avgpool2d import AvgPool2DOp
from minidl_c.runtime.single_op import backward_batch, forward_batch

DTYPES = ("float32", "float64")
OVERLAPPING = Pool(33, 3, 7, 6, (3, 2), (2, 1), (1, 1), ceil_mode=True)
THREES = Pool(33, 2, 9, 8, (3, 3), (2, 1), (1, 1))
HALVES = Pool(277, 5, 8, 10, (2, 2), (2, 2))
EXTREMES = (0.0, -0.0, 1.0, -1e4, 1e4, 3e38, -3e38)


def op_for(case, dtype, count_include_pad=True):
    return AvgPool2DOp(case.x_shape[1:], **case.options, count_include_pad=count_include_pad, dtype=str(dtype))


def forward(check, case, x, count_include_pad=True, **options):
    y = check.output(case.y_shape, x.dtype)
    forward_batch(op_for(case, x.dtype, count_include_pad), x, y, **options)
    return y


def backward(check, case, dy, count_include_pad=True, **options):
    x, dx = np.zeros(case.x_shape, dy.dtype), check.output(case.x_shape, dy.dtype)
    backward_batch(op_for(case, dy.dtype, count_include_pad), dy, x, dx, **options)
    return dx


def compare(check, case, x, dy, count, what="", threads=1):
    """Compares within the rounding of a sum and a division; integers are summed exactly."""
    terms = int(np.prod(case.kernel)) + 2
    y, y_magnitude = (images.avgpool2d_forward(v, case, count) for v in (x.astype("f8"), np.abs(x.astype("f8"))))
    dx, dx_magnitude = (images.avgpool2d_backward(v, case, count) for v in (dy.astype("f8"), np.abs(dy.astype("f8"))))
    for dtype in DTYPES:
        label, rounding = f"{dtype} {what} counting padding: {count} {case}", ref.rounding(terms, dtype)
        found = forward(check, case, check.input(x, dtype), count, num_threads=threads)
        check.close(found, y, rounding * y_magnitude, f"y {label}")
        found = backward(check, case, check.input(dy, dtype), count, num_threads=threads)
        check.close(found, dx, rounding * dx_magnitude, f"dx {label}")
        check.count("avgpool2d", dtype)


@pytest.mark.parametrize("seed", slow_after(3, range(10)))
def test_random_geometries(check, seed):
    rng = np.random.default_rng(seed)
    for index, case in enumerate(pool_cases(seed + 300, 54)):
        x, dy = rng.standard_normal(case.x_shape, "f4"), rng.standard_normal(case.y_shape, "f4")
        compare(check, case, x, dy, bool(rng.integers(2)), "normal", (1, 1, 2, 1, 3)[index % 5])


@pytest.mark.parametrize("batch", [0, 1, 15, 16, 17, 33])
@pytest.mark.parametrize("count", [True, False])
def test_every_batch_size(check, count, batch):
    rng = np.random.default_rng(batch)
    for case in (OVERLAPPING, THREES, HALVES):
        case = replace(case, batch=batch)
        x, dy = rng.standard_normal(case.x_shape, "f4"), rng.standard_normal(case.y_shape, "f4")
        compare(check, case, x, dy, count)


def naive(x, dy, case, count):
    """Returns (y, dx) by loops over every cell, from PyTorch's definition."""
    y, dx = np.zeros(case.y_shape), np.zeros(case.x_shape)
    for n, c, p, q in np.ndindex(case.y_shape):
        h0, w0 = p * case.stride[0] - case.sides[0][0], q * case.stride[1] - case.sides[1][0]
        h1 = min(h0 + case.reach[0], case.height + case.sides[0][1])
        w1 = min(w0 + case.reach[1], case.width + case.sides[1][1])
        rows, columns = range(h0, h1, case.dilation[0]), range(w0, w1, case.dilation[1])
        whole = len(rows) * len(columns)
        cells = [(n, c, h, w) for h in rows for w in columns if 0 <= h < case.height and 0 <= w < case.width]
        divisor = whole if count else len(cells)
        y[n, c, p, q] = sum(x[cell] for cell in cells) / divisor
        for cell in cells:
            dx[cell] += dy[n, c, p, q] / divisor
    return y, dx


def test_reference_matches_the_definition():
    rng = np.random.default_rng(0)
    small = [c for c in pool_cases(1, 400) if np.prod(c.y_shape) * np.prod(c.kernel) < 1500]
    assert len(small) > 100
    for index, case in enumerate(small):
        x, dy, count = rng.standard_normal(case.x_shape), rng.standard_normal(case.y_shape), bool(index % 2)
        y, dx = naive(x, dy, case, count)
        np.testing.assert_allclose(images.avgpool2d_forward(x, case, count), y, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(images.avgpool2d_backward(dy, case, count), dx, rtol=1e-12, atol=1e-13)


# ---- the semantics, line by line -----------------------------------------------------------------
def test_a_last_window_that_would_start_in_the_padding_is_dropped(check):
    """From the ONNX backend test averagepool_2d_ceil_last_window_starts_on_pad."""
    x = [[0.8580, 0.0786, 0.2692, 0.1537], [0.8816, 0.4353, 0.5772, 0.6623], [0.9067, 0.9483, 0.5970, 0.7630]]
    case = Pool(1, 3, 2, 2, (3, 3), (3, 3), (1, 1), ceil_mode=True)
    y = forward(check, case, np.array(x, "f4").reshape(1, 3, 2, 2))
    check.close(y, np.array([0.1511, 0.2841, 0.3572]).reshape(1, 3, 1, 1), 1e-4, "y")


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding", "counted", "inside"),
    [
        (5, 2, 2, 0, [2, 2, 1], [2, 2, 1]),  # cells beyond the end are never counted
        (5, 3, 2, 1, [3, 3, 3], [2, 3, 2]),
        (6, 3, 2, 1, [3, 3, 3, 2], [2, 3, 3, 1]),  # only one of the cells beyond the end is padding
        (4, 2, 3, 1, [2, 2], [1, 2]),
        (1, 2, 2, 1, [2], [1]),
        (1, 5, 5, 0, [1], [1]),  # the window is larger than the input
        (3, 7, 3, 1, [5], [3]),
        (2, 8, 3, 2, [6], [2]),
    ],
)
def test_divisors_of_windows(check, size, kernel, stride, padding, counted, inside):
    case = Pool(17, 1, size, 1, (kernel, 1), (stride, 1), (padding, 0), ceil_mode=True)
    x = np.ones(case.x_shape)
    for count, divisors in ((True, counted), (False, inside)):
        y = forward(check, case, x, count)
        check.equal(y, np.tile((np.array(inside) / divisors)[:, None], (17, 1, 1, 1)), f"y {case}")
        compare(check, case, x, np.ones(case.y_shape), count)


@pytest.mark.parametrize("dtype", DTYPES)
def test_integers_are_summed_exactly_and_divided_once(check, dtype):
    rng = np.random.default_rng(3)
    for case in (OVERLAPPING, THREES, HALVES, Pool(17, 2, 6, 6, (6, 6), (1, 1))):
        x = rng.integers(-99, 100, case.x_shape).astype(dtype)
        divisors = images.avgpool2d_divisors(case, True)
        total = np.rint(images.avgpool2d_forward(x, case, True) * divisors).astype(dtype)
        check.same_bits(forward(check, case, x) + 0, total / divisors.astype(dtype) + 0, f"y {case}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("nonfinite", [np.nan, np.inf, -np.inf])
def test_non_finite_values_affect_only_their_own_windows(check, dtype, nonfinite):
    for case in (OVERLAPPING, THREES, replace(HALVES, batch=17)):
        x, dy = np.ones(case.x_shape, dtype), np.ones(case.y_shape, dtype)
        x[3, 1, 2, 3], dy[3, 1, 1, 2] = nonfinite, nonfinite
        check.close(forward(check, case, x), images.avgpool2d_forward(x, case, True), 1e-6, "y")
        check.close(backward(check, case, dy), images.avgpool2d_backward(dy, case, True), 1e-6, "dx")


def test_extreme_values(check):
    rng = np.random.default_rng(4)
    case = replace(HALVES, batch=17)
    x = rng.choice(EXTREMES, case.x_shape)
    with np.errstate(over="ignore"):
        compare(check, case, x[:, :, :, ::-1] * 0.25, rng.choice(EXTREMES, case.y_shape), True)


@pytest.mark.parametrize("dilation", [8, 2**31, 2**62])
def test_a_dilation_beyond_the_input_leaves_one_cell(check, dilation):
    """In ceil mode, where a window may end beyond the padding."""
    case = Pool(17, 2, 6, 5, (2, 2), (2**62, 2**62), ceil_mode=True, dilation=(dilation, dilation))
    x = np.random.default_rng(0).standard_normal(case.x_shape)
    check.equal(forward(check, case, x), x[:, :, :1, :1], "y")
    expected = np.zeros(x.shape)
    expected[:, :, 0, 0] = 1
    check.equal(backward(check, case, np.ones(case.y_shape)), expected, "dx")


# ---- bits ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("case", [OVERLAPPING, THREES, HALVES], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_and_batch_neighbours_change_no_bit(check, dtype, case):
    rng = np.random.default_rng(10)
    x, dy = rng.standard_normal(case.x_shape).astype(dtype), rng.standard_normal(case.y_shape).astype(dtype)
    y, dx = forward(check, case, x), backward(check, case, dy)
    for threads in (2, 3, 8):
        check.same_bits(forward(check, case, x, num_threads=threads), y, f"y {threads} threads")
        check.same_bits(backward(check, case, dy, num_threads=threads), dx, f"dx {threads} threads")
    one = replace(case, batch=1)
    for i in range(20):
        row = slice(i, i + 1)
        check.same_bits(forward(check, one, x[row]), y[row], f"y row {i}")
        check.same_bits(backward(check, one, dy[row]), dx[row], f"dx row {i}")


# ---- what is refused -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pool_size": (0, 2)}, "pool_size: expected numbers from 1"),
        ({"pool_size": (9, 2)}, "pool_size: a window of 9 does not fit into 6 of height with padding 1"),
        ({"pool_size": (9, 2), "ceil_mode": True}, "padding 1 and ceil_mode, which adds less than the stride of 1"),
        ({"pool_size": (2**16, 2**15)}, r"pool_size: expected fewer than 2\*\*31 cells"),
        ({"stride": (1, 0)}, "stride: expected numbers from 1"),
        ({"padding": (2, 0)}, "padding .height.: expected at most half the pool_size of 3, got 2"),
        ({"padding": (0, -1)}, "padding: expected numbers from 0"),
        ({"in_shape": (2, 6)}, "input shape: expected 3 whole numbers"),
        ({"in_shape": (2**62, 2**62, 2**62)}, "input shape: expected at most"),
        ({"padding": (1, 2, 0, 0)}, "padding .height.: expected at most half the pool_size of 3, got 2"),
        ({"padding": (1, 1, 1)}, "padding: expected 2 whole numbers"),
        ({"dilation": (0, 1)}, "dilation: expected numbers from 1"),
        ({"dilation": (1, 7)}, "a window of 2 with a dilation of 7 does not fit into 5 of width with padding 1"),
        (
            {"in_shape": (1, 1, 5), "pool_size": (2, 2), "padding": (1, 1, 0, 0), "dilation": (2, 1)},
            "padding: window 0 of 2 with a dilation of 2 has no cell inside the input of 1, only padding",
        ),
        ({"in_shape": (1, 2**24 + 2, 2)}, "output shape: expected at most 16777216 windows along an axis"),
        ({"dtype": "float16"}, "dtype"),
    ],
    ids=str,
)
def test_invalid_arguments_are_refused(changes, message):
    right = {"in_shape": (2, 6, 5), "pool_size": (3, 2), "stride": (1, 1), "padding": (1, 1)}
    with pytest.raises((ValueError, TypeError), match=message):
        AvgPool2DOp(**right | changes)
