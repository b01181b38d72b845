"""maxpool2d: thousands of geometries compared with the reference; ties, NaN, -inf, ceil mode, same bits, errors."""

from dataclasses import replace

import numpy as np
import pytest
import reference as ref
from geometries import Pool, pool_cases
from slow_marks import slow_after

from minidl_c.functional import maxpool2d_backward, maxpool2d_forward

DTYPES = ("float32", "float64")
THREADS = (1, 1, 2, 1, 3)  # thread counts that the random geometries cycle through
OVERLAPPING = Pool(33, 3, 7, 6, (3, 2), (2, 1), (1, 1), ceil_mode=True)
HALVES = Pool(277, 5, 8, 10, (2, 2), (2, 2))


def normal(rng, shape):
    return rng.standard_normal(shape, "f4")


def ties(rng, shape):
    return rng.integers(-1, 2, shape).astype("f4")


def signed_zeros(rng, shape):
    return rng.choice(np.array([0.0, -0.0], "f4"), shape)


def negative(rng, shape):
    return -1 - rng.random(shape, "f4")


def some_nan(rng, shape):
    return np.where(rng.random(shape) < 0.15, np.float32(np.nan), ties(rng, shape))


def mostly_infinite(rng, shape):
    return rng.choice(np.array([-np.inf, -np.inf, -np.inf, -3e38, np.inf], "f4"), shape)


def only_infinite(rng, shape):
    return np.full(shape, -np.inf, "f4")


def only_nan(rng, shape):
    return np.full(shape, np.nan, "f4")


def anything(rng, shape):
    return rng.choice(np.array([-np.inf, np.nan, 0, -0.0, 1, -3e38, np.inf], "f4"), shape)


CONTENTS = (normal, ties, signed_zeros, negative, some_nan, mostly_infinite, only_infinite, anything)


def forward(check, case, x, **options):
    y = check.output(case.y_shape, x.dtype)
    maxpool2d_forward(x, y, **case.options, **options)
    return y


def backward(check, case, dy, x, **options):
    dx = check.output(case.x_shape, x.dtype)
    maxpool2d_backward(dy, x, dx, **case.options, **options)
    return dx


def compare(check, case, x, dy, dtypes, bound_terms, what, threads=1):
    """Compares y exactly, and dx within the rounding of overlapping windows (exactly if there are none)."""
    y, winner = ref.maxpool2d_forward(x, case)
    dx = ref.maxpool2d_backward(dy, winner, case)
    size = ref.maxpool2d_backward(np.abs(dy), winner, case)
    for dtype in dtypes:
        x, dy = check.input(x, dtype), check.input(dy, dtype)
        label = f"{dtype} {what} {threads} threads {case}"
        check.equal(forward(check, case, x, num_threads=threads), y, f"y {label}")
        bound = ref.rounding(bound_terms, dtype) * size
        got = backward(check, case, dy, x, num_threads=threads)
        check.close(got, dx, bound, f"dx {label}")
        check.count("maxpool2d", dtype)


@pytest.mark.parametrize("seed", slow_after(8, range(30)))
def test_random_geometries(check, seed):
    rng = np.random.default_rng(seed)
    for index, case in enumerate(pool_cases(seed, 50)):
        content = CONTENTS[rng.integers(len(CONTENTS))]
        x, dy = content(rng, case.x_shape), normal(rng, case.y_shape)
        terms = int(np.prod(case.kernel))
        compare(check, case, x, dy, DTYPES, terms, content.__name__, THREADS[index % 5])


def test_random_geometries_reach_every_corner():
    cases = [case for seed in range(30) for case in pool_cases(seed, 50)]
    corners = {
        "gap between windows": lambda c: c.stride[0] > c.kernel[0] and c.stride[1] > c.kernel[1],
        "overlapping": lambda c: c.stride[0] < c.kernel[0] and c.stride[1] < c.kernel[1],
        "pixels left over": lambda c: not c.ceil_mode and c.spare[0] % c.stride[0],
        "rounded up": lambda c: c.out_size != replace(c, ceil_mode=False).out_size,
        "not rounded up into the padding": lambda c: (
            c.ceil_mode and c.spare[0] % c.stride[0] and c.out_size[0] == replace(c, ceil_mode=False).out_size[0]
        ),
        "beyond the padding": lambda c: min(c.spare) < 0,
        "one output pixel": lambda c: c.out_size == (1, 1),
        "not square": lambda c: c.kernel[0] != c.kernel[1] and c.sides[0][0] != c.sides[1][0],
        "dilated": lambda c: max(c.dilation) > 1 and min(c.kernel) > 1,
        "dilated and clipped": lambda c: max(c.dilation) > 1 and max(c.sides[0]) > 0 and c.kernel[0] > 1,
        "sides differ": lambda c: c.sides[0][0] != c.sides[0][1] or c.sides[1][0] != c.sides[1][1],
        "more than 256 cells": lambda c: np.prod(c.kernel) > 256,
        "one row": lambda c: c.height == 1 and c.width > 1,
        **{f"batch {n}": lambda c, n=n: c.batch == n for n in (0, 1, 15, 16, 17, 33)},
    }
    for name, matches in corners.items():
        assert sum(bool(matches(case)) for case in cases) >= 30, name


def test_reference_matches_the_definition():
    rng = np.random.default_rng(0)
    cells = {case: np.prod(case.y_shape) * np.prod(case.kernel) for case in pool_cases(1, 600)}
    small = [case for case, count in cells.items() if count < 1500]
    assert len(small) > 200
    for index, case in enumerate(small):
        x = CONTENTS[index % len(CONTENTS)](rng, case.x_shape)
        dy = rng.integers(-9, 10, case.y_shape)
        y, winner = ref.maxpool2d_forward(x, case)
        y_loops, dx_loops = ref.maxpool2d_loops(x, dy, case)
        assert np.array_equal(y, y_loops, equal_nan=True), case
        assert np.array_equal(ref.maxpool2d_backward(dy, winner, case), dx_loops), case


@pytest.mark.parametrize("batch", [0, 1, 15, 16, 17, 31, 32, 33, 48, 256, 257, 277])
@pytest.mark.parametrize("content", CONTENTS, ids=lambda content: content.__name__)
def test_every_batch_size(check, content, batch):
    rng = np.random.default_rng(batch)
    for case in (replace(OVERLAPPING, batch=batch), replace(HALVES, batch=batch)):
        dy = rng.integers(-9, 10, case.y_shape).astype("f4")
        compare(check, case, content(rng, case.x_shape), dy, DTYPES, 0, content.__name__)


# ---- the semantics, line by line -----------------------------------------------------------------
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_first_maximum_in_row_major_order_takes_the_whole_gradient(check, dtype):
    """Puts the maximum at each pair of positions in a 3x3 window, one pair per example."""
    pairs = [(a, b) for a in range(9) for b in range(a, 9)]
    x = np.zeros((len(pairs), 1, 3, 3), dtype)
    for row, pair in zip(x.reshape(-1, 9), pairs, strict=True):
        row[list(pair)] = 2
    case = Pool(len(pairs), 1, 3, 3, (3, 3), (1, 1))
    dx = backward(check, case, np.full(case.y_shape, 5, dtype), x).reshape(-1, 9)
    check.equal(dx, 5 * np.eye(9)[[a for a, _ in pairs]], "dx of two equal maxima")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("other", [-np.inf, 0.0, np.inf, np.nan])
def test_the_first_nan_wins(check, dtype, other):
    """Puts a NaN at each position of the window and the other value at each later one."""
    pairs = [(a, b) for a in range(9) for b in range(9)]
    x = np.ones((len(pairs), 1, 3, 3), dtype)
    for row, (place, later) in zip(x.reshape(-1, 9), pairs, strict=True):
        row[later] = other
        row[place] = np.nan
    case = Pool(len(pairs), 1, 3, 3, (3, 3), (1, 1))
    assert np.isnan(forward(check, case, x)).all()
    firsts = [min(a, b) if np.isnan(other) else a for a, b in pairs]
    dx = backward(check, case, np.full(case.y_shape, 5, dtype), x).reshape(-1, 9)
    check.equal(dx, 5 * np.eye(9)[firsts], f"dx of a NaN beside {other}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("content", [only_infinite, only_nan, negative, mostly_infinite])
def test_padding_never_wins(check, dtype, content):
    """In a window of only -inf the first cell inside the image gets the gradient."""
    rng = np.random.default_rng(0)
    for kernel, stride, ceil_mode in [((2, 2), 1, False), ((3, 5), 2, True), ((4, 4), 3, True)]:
        padding = (kernel[0] // 2, kernel[1] // 2)
        case = Pool(17, 2, 5, 6, kernel, (stride, stride), padding, ceil_mode)
        x = content(rng, case.x_shape)
        compare(check, case, x, np.ones(case.y_shape, "f4"), [dtype], 0, content.__name__)
        y = forward(check, case, x.astype(dtype))
        assert np.isin(y[~np.isnan(y)], x).all(), case


@pytest.mark.parametrize("dtype", DTYPES)
def test_overlapping_windows_accumulate(check, dtype):
    x = np.zeros((17, 1, 5, 5), dtype)
    x[:, 0, 2, 2] = 1
    case = Pool(17, 1, 5, 5, (3, 3), (1, 1))
    dy = np.arange(17 * 9, dtype=dtype).reshape(case.y_shape)
    expected = np.zeros(x.shape)
    expected[:, 0, 2, 2] = dy.sum(axis=(1, 2, 3))
    check.equal(backward(check, case, dy, x), expected, "dx of nine windows over one maximum")


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_sum_of_the_gradient_is_preserved(check, dtype):
    rng = np.random.default_rng(7)
    for case in pool_cases(99, 45):
        x = anything(rng, case.x_shape).astype(dtype)
        dy = rng.integers(-9, 10, case.y_shape).astype(dtype)
        total = backward(check, case, dy, x).sum(axis=(2, 3))
        check.equal(total, dy.sum(axis=(2, 3)), f"sum of dx in each plane {case}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("nonfinite", [np.nan, np.inf])
def test_losing_cells_get_a_zero_gradient_even_if_dy_is_not_finite(check, dtype, nonfinite):
    for case in (replace(HALVES, batch=17), OVERLAPPING):
        x = normal(np.random.default_rng(8), case.x_shape).astype(dtype)
        winner = ref.maxpool2d_forward(x, case)[1].reshape(case.batch, case.channels, -1)
        dx = backward(check, case, np.full(case.y_shape, nonfinite, dtype), x)
        won = np.zeros((case.batch, case.channels, case.height * case.width), bool)
        np.put_along_axis(won, winner, True, axis=2)
        check.equal(dx, np.where(won, nonfinite, 0).reshape(dx.shape), f"dx {case}")


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding", "windows"),
    [
        *((5, 2, 2, 0, 3), (4, 2, 2, 0, 2), (5, 2, 2, 1, 3), (4, 3, 3, 1, 2), (6, 2, 4, 1, 2)),
        *((5, 3, 4, 1, 2), (4, 2, 3, 1, 2), (3, 2, 3, 1, 2), (2, 2, 3, 1, 1), (1, 2, 2, 1, 1)),
    ],
)
def test_ceil_mode_drops_windows_in_the_padding(check, size, kernel, stride, padding, windows):
    case = Pool(1, 1, size, size, (kernel,) * 2, (stride,) * 2, (padding,) * 2, ceil_mode=True)
    assert case.out_size == (windows, windows)
    x = np.arange(size * size, dtype="f4").reshape(case.x_shape)
    compare(check, case, x, np.ones(case.y_shape, "f4"), DTYPES, 0, "rising")
    for other in (windows - 1, windows + 1):
        y = np.full((1, 1, other, other), 7, "f4")
        call = check.call(maxpool2d_forward, ("y",), x=x, y=y, **case.options)
        check.refused(call, {}, match=r"\by\b")


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding"),
    [(1, 5, 5, 0), (1, 2, 2, 0), (4, 5, 2, 0), (4, 9, 6, 0), (3, 7, 3, 1), (2, 8, 3, 2), (3, 8, 9, 2)],
)
def test_ceil_mode_allows_a_window_larger_than_the_padded_input(check, size, kernel, stride, padding):
    """As in PyTorch, one window if it exceeds the padded input by less than a stride."""
    upright = Pool(17, 2, size, 9, (kernel, 1), (stride, 1), (padding, 0), ceil_mode=True)
    lying = Pool(17, 2, 9, size, (1, kernel), (1, stride), (0, padding), ceil_mode=True)
    assert (upright.out_size, lying.out_size) == ((1, 9), (9, 1))
    rng = np.random.default_rng(size)
    for case in (upright, lying):
        for content in CONTENTS:
            dy = rng.integers(-9, 10, case.y_shape).astype("f4")
            compare(check, case, content(rng, case.x_shape), dy, DTYPES, 0, content.__name__)


@pytest.mark.parametrize("case", [OVERLAPPING, Pool(17, 2, 4, 5, (2, 3), (2, 1))])
def test_gradients_match_finite_differences(check, case):
    """Differentiates sum(y * dy) by every entry of every row; half a step never changes the maximum's position."""
    rng = np.random.default_rng(9)
    case = replace(case, batch=17)
    x = rng.permutation(int(np.prod(case.x_shape))).astype("f8").reshape(case.x_shape)
    dy, y = rng.integers(-9, 10, case.y_shape).astype("f8"), np.empty(case.y_shape)

    def value():
        maxpool2d_forward(x, y, **case.options)
        return np.sum(y * dy)

    dx = backward(check, case, dy, x)
    check.equal(dx, ref.finite_differences(value, x, step=0.25), f"dx {case}")


@pytest.mark.parametrize("stride", [9, 1000, 2**31, 2**40, 2**62])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_a_stride_beyond_the_input_leaves_one_window(check, stride, ceil_mode):
    case = replace(OVERLAPPING, stride=(stride, stride), ceil_mode=ceil_mode)
    assert case.out_size == (1, 1)
    rng = np.random.default_rng(5)
    dy = rng.integers(-9, 10, case.y_shape).astype("f4")
    compare(check, case, ties(rng, case.x_shape), dy, DTYPES, 0, "ties")


# ---- bits ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("case", [OVERLAPPING, HALVES])
@pytest.mark.parametrize("dtype", DTYPES)
def test_thread_count_changes_no_bit(check, dtype, case):
    rng = np.random.default_rng(10)
    x, dy = check.input(ties(rng, case.x_shape), dtype), normal(rng, case.y_shape).astype(dtype)
    y, dx = forward(check, case, x), backward(check, case, dy, x)
    for threads in (2, 3, 8):
        again = forward(check, case, x, num_threads=threads)
        check.same_bits(again, y, f"y {threads} threads {case}")
        again = backward(check, case, dy, x, num_threads=threads)
        check.same_bits(again, dx, f"dx {threads} threads {case}")


@pytest.mark.parametrize("dtype", DTYPES)
def test_results_do_not_depend_on_the_rest_of_the_batch(check, dtype):
    rng = np.random.default_rng(11)
    for case in (OVERLAPPING, replace(HALVES, batch=19)):
        x = anything(rng, case.x_shape).astype(dtype)
        dy = normal(rng, case.y_shape).astype(dtype)
        y, dx, one = forward(check, case, x), backward(check, case, dy, x), replace(case, batch=1)
        for i in range(case.batch):
            row = slice(i, i + 1)
            check.same_bits(forward(check, one, x[row]), y[row], f"y row {i} {case}")
            check.same_bits(backward(check, one, dy[row], x[row]), dx[row], f"dx row {i} {case}")


# ---- what is refused -----------------------------------------------------------------------------
ARRAYS = [("forward", "x"), ("forward", "y"), *(("backward", name) for name in ("dy", "x", "dx"))]
NUMBERS = [
    *({"pool_size": pair} for pair in ((0, 2), (2, 0), (-1, 2))),
    *({"stride": pair} for pair in ((0, 2), (2, 0), (2, -1))),
    *({"padding": pair} for pair in ((-1, 0), (0, -1), (2, 0), (0, 2))),
    *({"num_threads": threads} for threads in (0, -1)),
]
NON_NUMBERS = [
    {name: value}
    for name in ("pool_size", "stride", "padding")
    for value in ((), (1,), (1, 1, 1), (1.5, 1), None, "ab")
]


@pytest.fixture(params=["forward", "backward"])
def call(request, check):
    return valid_call(check, request.param)


def valid_call(check, kernel):
    case = Pool(17, 2, 6, 5, (3, 2), (1, 1), (1, 1))
    rng = np.random.default_rng(12)
    x, y = normal(rng, case.x_shape), normal(rng, case.y_shape)
    if kernel == "forward":
        return check.call(maxpool2d_forward, ("y",), x=x, y=y, **case.options)
    return check.call(maxpool2d_backward, ("dx",), dy=y, x=x, dx=x.copy(), **case.options)


@pytest.mark.parametrize(("kernel", "name"), ARRAYS)
def test_invalid_arrays_are_refused(check, kernel, name):
    check.refuses_invalid_shapes(valid_call(check, kernel), name)
    check.refuses_invalid_arrays(valid_call(check, kernel), name)


@pytest.mark.parametrize("changes", NUMBERS, ids=str)
def test_invalid_numbers_are_refused_by_name(check, call, changes):
    check.refused(call, changes, match="|".join(changes))


@pytest.mark.parametrize("changes", NON_NUMBERS, ids=str)
def test_non_numbers_are_refused(check, call, changes):
    check.refused(call, changes)


@pytest.mark.parametrize("name", ["pool_size", "stride", "padding"])
@pytest.mark.parametrize("huge", [2**31, 2**32, 2**40, 2**62, 2**63 - 1, 2**64])
def test_numbers_that_overflow_are_refused(check, call, name, huge):
    check.refused(call, {name: (huge, 1)})
    check.refused(call, {name: (1, huge)})


@pytest.mark.parametrize("ceil_mode", [False, True])
def test_a_kernel_larger_than_the_padded_input_is_refused(check, call, ceil_mode):
    """In ceil mode if it exceeds the input by a stride or more."""
    case = Pool(17, 2, *call.arguments["x"].shape[2:], (9, 2), (1, 1), (1, 1), ceil_mode)
    assert case.spare[0] < 0 and case.out_size[0] < 1
    for stride in ((1, 1), (-case.spare[0] if ceil_mode else 20, 1)):
        wrong = {"pool_size": (9, 2), "stride": stride, "padding": (1, 1), "ceil_mode": ceil_mode}
        check.refused(call, wrong, match="pool_size: a window of 9 does not fit into . of height with padding 1")
        for rows in (0, 1):
            y = np.full((17, 2, rows, 6), 7, "f4")
            check.refused(call, {**wrong, "dy" if "dy" in call.arguments else "y": y}, match="pool_size")
