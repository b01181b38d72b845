"""conv2d: thousands of geometries compared with the reference; properties of a convolution, reproducibility, errors."""

from dataclasses import replace

import numpy as np
import pytest
import reference as ref
from geometries import Conv, conv_cases
from slow_marks import slow_after

from minidl_c.functional import conv2d_backward, conv2d_forward

DTYPES = ("float32", "float64")
THREADS = (1, 1, 2, 1, 3)  # thread counts that the random geometries cycle through
OUTPUTS = ("dx", "dw", "db")
SMALL = Conv(17, 2, 5, 4, 3, (3, 2), stride=(2, 1), padding=(1, 0, 2, 1))
GROUPED = Conv(33, 6, 7, 9, 9, (3, 3), (2, 1), (2, 1, 0, 3), (1, 2), groups=3)
WIDE = Conv(277, 5, 9, 11, 10, (3, 5), padding=(1, 1, 2, 2))


def draw(rng, case, whole=False):
    """Draws x, w, b and dy, exact in float32; integers if `whole`, whose sums are exact in any order."""
    shapes = (case.x_shape, case.w_shape, (case.filters,), case.y_shape)
    if whole:
        return [rng.integers(-4, 5, shape).astype("f4") for shape in shapes]
    return [rng.standard_normal(shape, "f4") for shape in shapes]


def forward(check, case, x, w, b, **options):
    y = check.output(case.y_shape, x.dtype)
    conv2d_forward(x, w, b, y, **case.options, **options)
    return y


def backward(check, case, dy, x, w, **options):
    shapes = (case.x_shape, case.w_shape, (case.filters,))
    dx, dw, db = (check.output(shape, x.dtype) for shape in shapes)
    conv2d_backward(dy, x, w, dx, dw, db, **case.options, **options)
    return dx, dw, db


def compare(check, case, values, dtype, exact, magnitude, whole, threads=1):
    """Compares y, dx, dw and db with the reference; `magnitude` is the reference of |x|, |w|, ..."""
    x, w, b, dy = (check.input(v, dtype) for v in values)
    y = forward(check, case, x, w, b, num_threads=threads)
    got = (y, *backward(check, case, dy, x, w, num_threads=threads))
    pixels = int(np.prod(case.y_shape)) // case.filters
    terms = (case.terms + 1, case.terms * case.filters, pixels, pixels)
    for name, a, e, m, n in zip(("y", *OUTPUTS), got, exact, magnitude, terms, strict=True):
        bound = 0 if whole else ref.rounding(n, dtype) * m
        check.close(a, e, bound, f"{name} {dtype} {threads} threads {case}")
    check.count("conv2d", dtype)


def oracle(values, case):
    x, w, b, dy = values
    return ref.conv2d_forward(x, w, b, case), *ref.conv2d_backward(dy, x, w, case)


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("groups", [1, 3])
def test_many_weights_are_packed_by_all_threads(check, groups, threads):
    case = Conv(5, 69, 4, 5, 66, (3, 3), padding=(1, 0, 1, 1), groups=groups)
    values = draw(np.random.default_rng(threads), case, whole=True)
    for dtype in DTYPES:
        compare(check, case, values, dtype, oracle(values, case), oracle(values, case), True, threads)


@pytest.mark.parametrize("seed", slow_after(8, range(30)))
def test_random_geometries(check, seed):
    rng = np.random.default_rng(seed)
    for index, case in enumerate(conv_cases(seed, 50)):
        whole = index % 2 == 0
        values = draw(rng, case, whole)
        exact = oracle(values, case)
        magnitude = exact if whole else oracle([np.abs(v) for v in values], case)
        for dtype in DTYPES:
            compare(check, case, values, dtype, exact, magnitude, whole, THREADS[index % 5])


def test_random_geometries_reach_every_corner():
    cases = [case for seed in range(30) for case in conv_cases(seed, 50)]
    corners = {
        "gap between windows": lambda c: c.stride[0] > c.kernel[0] and c.stride[1] > c.kernel[1],
        "pixels left over": lambda c: c.spare[0] % c.stride[0] and c.spare[1] % c.stride[1],
        "asymmetric padding": lambda c: len(set(c.padding)) > 2,
        "padding beyond the kernel": lambda c: c.padding[0] > c.kernel[0],
        "one output pixel": lambda c: c.out_size == (1, 1),
        "dilated and strided": lambda c: max(c.dilation) > 1 and max(c.stride) > 1,
        "grouped": lambda c: 1 < c.groups < c.channels,
        "depthwise": lambda c: c.groups == c.channels > 1,
        "one row": lambda c: c.height == 1 and c.width > 1,
        **{f"batch {n}": lambda c, n=n: c.batch == n for n in (0, 1, 15, 16, 17, 33)},
    }
    for name, matches in corners.items():
        assert sum(bool(matches(case)) for case in cases) >= 30, name


@pytest.mark.parametrize("batch", [0, 1, 15, 16, 17, 31, 32, 33, 48, 255, 256, 257, 272, 531])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_batch_size(check, dtype, batch):
    case = replace(GROUPED, batch=batch)
    values = draw(np.random.default_rng(batch), case, whole=True)
    exact = oracle(values, case)
    compare(check, case, values, dtype, exact, exact, whole=True)


def test_reference_matches_the_definition():
    rng = np.random.default_rng(0)
    small = [case for case in conv_cases(1, 600) if np.prod(case.y_shape) * case.terms < 1500]
    assert len(small) > 100
    for case in small:
        x, w, b, dy = draw(rng, case, whole=True)
        loops = ref.conv2d_loops(x, w, b, dy, case)
        for fast, slow in zip(oracle((x, w, b, dy), case), loops, strict=True):
            assert np.array_equal(fast, slow), case


@pytest.mark.parametrize("dtype", DTYPES)
def test_conv2d_is_a_cross_correlation_with_zero_padding(dtype):
    x = np.arange(1, 10, dtype=dtype).reshape(1, 1, 3, 3)
    w = np.array([[[[1, 2], [3, 4]]]], dtype)
    y = np.empty((1, 1, 2, 3), dtype)
    conv2d_forward(x, w, np.array([100], dtype), y, padding=(0, 0, 1, 0))
    assert y.tolist() == [[[[118, 137, 147], [136, 167, 177]]]]


@pytest.mark.parametrize("case", [SMALL, GROUPED, Conv(17, 3, 4, 5, 3, (2, 2), groups=3)])
def test_gradients_match_finite_differences(check, case):
    """Differentiates sum(y * dy) by every entry of every row; a convolution is linear, so the step may be 1."""
    case = replace(case, height=4, width=5, padding=(1, 2, 0, 1), dilation=(1, 1))
    x, w, b, dy = (v.astype("f8") for v in draw(np.random.default_rng(1), case))
    y = np.empty(case.y_shape)

    def value():
        conv2d_forward(x, w, b, y, **case.options)
        return np.sum(y * dy)

    largest = ref.conv2d_forward(*(np.abs(v) + 1 for v in (x, w, b)), case)
    bound = ref.rounding(case.terms + 2 + y.size, "f8") * np.sum(largest * np.abs(dy))
    gradients = backward(check, case, dy, x, w)
    for name, gradient, array in zip(OUTPUTS, gradients, (x, w, b), strict=True):
        expected = ref.finite_differences(value, array, step=1.0)
        check.close(gradient, expected, bound, f"{name} {case}")


@pytest.mark.parametrize("case", [SMALL, GROUPED, WIDE, replace(WIDE, batch=16)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_thread_count_changes_no_bit(check, dtype, case):
    values = draw(np.random.default_rng(2), case)
    x, w, b, dy = (check.input(v, dtype) for v in values)
    first = forward(check, case, x, w, b), *backward(check, case, dy, x, w)
    for threads in (2, 3, 8):
        options = {"num_threads": threads}
        again = (
            forward(check, case, x, w, b, **options),
            *backward(check, case, dy, x, w, **options),
        )
        for name, a, e in zip(("y", *OUTPUTS), again, first, strict=True):
            check.same_bits(a, e, f"{name} {dtype} {threads} threads {case}")


@pytest.mark.parametrize(("dtype", "tiny"), [("float32", 1e-20), ("float64", 1e-155)])
def test_threads_agree_on_subnormal_numbers(check, dtype, tiny):
    """All threads flush them in the same way, and the caller's floating-point mode is restored."""
    values = draw(np.random.default_rng(2), WIDE)
    x, w, b, dy = (v.astype(dtype) * tiny for v in values)
    b *= tiny
    first = forward(check, WIDE, x, w, b), *backward(check, WIDE, dy, x, w)
    for threads in (1, 2, 3, 8):
        again = (
            forward(check, WIDE, x, w, b, num_threads=threads),
            *backward(check, WIDE, dy, x, w, num_threads=threads),
        )
        for name, a, e in zip(("y", *OUTPUTS), again, first, strict=True):
            check.same_bits(a, e, f"{name} {dtype} {threads} threads")
        subnormal = np.finfo(dtype).tiny / np.ones(3, dtype) / 2
        assert (subnormal > 0).all(), "flush-to-zero outlived the call"


@pytest.mark.parametrize("dtype", DTYPES)
def test_results_do_not_depend_on_the_rest_of_the_batch(check, dtype):
    for seed, case in enumerate((SMALL, GROUPED, replace(WIDE, batch=19))):
        values = draw(np.random.default_rng(seed), case)
        x, w, b, dy = (check.input(v, dtype) for v in values)
        y, dx = forward(check, case, x, w, b), backward(check, case, dy, x, w)[0]
        one = replace(case, batch=1)
        for i in range(case.batch):
            row = slice(i, i + 1)
            alone = forward(check, one, x[row], w, b)
            check.same_bits(alone, y[row], f"y row {i} {dtype} {case}")
            alone = backward(check, one, dy[row], x[row], w)[0]
            check.same_bits(alone, dx[row], f"dx row {i} {dtype} {case}")


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_of_nan_stays_in_its_row(check, dtype):
    values = draw(np.random.default_rng(3), GROUPED)
    x, w, b, dy = (v.astype(dtype) for v in values)
    y, dx = forward(check, GROUPED, x, w, b), backward(check, GROUPED, dy, x, w)[0]
    for i in (0, 15, 16, 32):
        xi, dyi = x.copy(), dy.copy()
        xi[i], dyi[i] = np.nan, np.inf
        others = np.arange(GROUPED.batch) != i
        alike = forward(check, GROUPED, xi, w, b)
        check.same_bits(alike[others], y[others], f"y beside row {i}")
        alike = backward(check, GROUPED, dyi, x, w)[0]
        check.same_bits(alike[others], dx[others], f"dx beside row {i}")


@pytest.mark.parametrize("case", [SMALL, GROUPED])
@pytest.mark.parametrize("dtype", DTYPES)
def test_dx_can_be_left_out(check, dtype, case):
    x, w, _, dy = (v.astype(dtype) for v in draw(np.random.default_rng(4), case))
    _, dw, db = backward(check, case, dy, x, w)
    dw_alone, db_alone = (check.output(shape, dtype) for shape in (dw.shape, db.shape))
    conv2d_backward(dy, x, w, None, dw_alone, db_alone, **case.options)
    check.same_bits(dw_alone, dw, "dw without dx")
    check.same_bits(db_alone, db, "db without dx")


@pytest.mark.parametrize("tiles", [1, 2, 3, 5, 11, 16, 32, 48])
@pytest.mark.parametrize("dtype", DTYPES)
def test_weight_gradient_is_the_tree_sum_of_its_slots(check, dtype, tiles):
    """With one used lane per tile, a slot is the sum of whole examples: of one example up to 16 tiles."""
    case = replace(GROUPED, batch=16 * tiles)
    x, w, _, dy = (v.astype(dtype) for v in draw(np.random.default_rng(tiles), case))
    dy[np.arange(case.batch) % 16 != 3] = 0
    rows = [slice(row, row + 1) for row in range(3, case.batch, 16)]
    one = replace(case, batch=1)
    level = [backward(check, one, dy[row], x[row], w)[1:] for row in rows]
    run = max(1, tiles // 16)  # the tiles of a slot are added in order, then slots in pairs
    while len(level) > 1:
        groups = [level[k : k + run] for k in range(0, len(level), run)]
        level = [tuple(sum(terms) for terms in zip(*group, strict=True)) for group in groups]
        run = 2
    _, dw, db = backward(check, case, dy, x, w)
    check.equal(dw, level[0][0], f"dw of {tiles} tiles {dtype}")
    check.equal(db, level[0][1], f"db of {tiles} tiles {dtype}")


@pytest.mark.parametrize("stride", [7, 1000, 2**31, 2**40, 2**62])
def test_a_stride_beyond_the_input_leaves_one_window(check, stride):
    case = replace(SMALL, stride=(stride, stride))
    values = draw(np.random.default_rng(5), case, whole=True)
    exact = oracle(values, case)
    for dtype in DTYPES:
        compare(check, case, values, dtype, exact, exact, whole=True)


def test_gradients_of_an_empty_batch_are_zero(check):
    case = replace(SMALL, batch=0)
    x, w, _, dy = draw(np.random.default_rng(5), case)
    _, dw, db = backward(check, case, dy, x, w)
    assert not dw.any() and not db.any()


# ---- what is refused -----------------------------------------------------------------------------
ARRAYS = {"forward": ("x", "w", "b", "y"), "backward": ("dy", "x", "w", "dx", "dw", "db")}
PAIRS = [(kernel, name) for kernel, names in ARRAYS.items() for name in names]
NUMBERS = [
    *({name: pair} for name in ("stride", "dilation") for pair in ((0, 1), (1, 0), (1, -1))),
    *({"padding": padding} for padding in ((-1, 0, 0, 0), (1, 0, 2, -1))),
    *({"groups": groups} for groups in (0, -1, 2, 3)),
    *({"num_threads": threads} for threads in (0, -1)),
]
NON_NUMBERS = [
    *({"stride": value} for value in ((1,), (1, 1, 1), None, (1.5, 1), "ab")),
    *({"dilation": value} for value in ((), (1, 1, 1), None, (1, 1.5), "ab")),
    *({"padding": value} for value in ((1, 1), (1, 0, 2, 1, 0), None, (1.0, 0, 2, 1), "same")),
    *({"groups": value} for value in (None, 1.5, "1", (1, 1))),
    *({"num_threads": value} for value in ("2", 1.5, (1,))),
]
HUGE = (2**31, 2**32, 2**40, 2**62, 2**63 - 1, 2**64)


@pytest.fixture(params=["forward", "backward"])
def call(request, check):
    return valid_call(check, request.param)


def valid_call(check, kernel):
    case = replace(SMALL, stride=(1, 1))  # so that every wrong size gives another output size
    x, w, b, dy = draw(np.random.default_rng(6), case)
    if kernel == "forward":
        return check.call(conv2d_forward, ("y",), x=x, w=w, b=b, y=dy, **case.options)
    gradients = {"dx": x.copy(), "dw": w.copy(), "db": b}
    return check.call(conv2d_backward, OUTPUTS, dy=dy, x=x, w=w, **gradients, **case.options)


@pytest.mark.parametrize(("kernel", "name"), PAIRS)
def test_invalid_shapes_are_refused(check, kernel, name):
    check.refuses_invalid_shapes(valid_call(check, kernel), name)


@pytest.mark.parametrize(("kernel", "name"), PAIRS)
def test_invalid_arrays_are_refused(check, kernel, name):
    check.refuses_invalid_arrays(valid_call(check, kernel), name, optional=name == "dx")


@pytest.mark.parametrize("changes", NUMBERS, ids=str)
def test_invalid_numbers_are_refused_by_name(check, call, changes):
    check.refused(call, changes, match="|".join(changes))


@pytest.mark.parametrize("changes", NON_NUMBERS, ids=str)
def test_non_numbers_are_refused(check, call, changes):
    check.refused(call, changes)


@pytest.mark.parametrize("name", ["stride", "padding", "dilation"])
@pytest.mark.parametrize("huge", HUGE)
def test_numbers_that_overflow_are_refused(check, call, name, huge):
    given = call.arguments[name]
    check.refused(call, {name: (huge, *given[1:])})
    check.refused(call, {name: (*given[:-1], huge)})


def test_a_kernel_larger_than_the_padded_input_is_refused(check, call):
    check.refused(call, {"padding": (0, 0, 0, 0), "dilation": (4, 4)})


@pytest.mark.parametrize("stride", [1, 2])
def test_a_kernel_one_row_too_large_is_refused(check, stride):
    """Also with the output size of the formula, which is 0."""
    case = replace(SMALL, kernel=(SMALL.height + 2, 2), stride=(stride, 1))
    assert case.out_size[0] == 0
    x, w, b, y = draw(np.random.default_rng(7), case)
    call = check.call(conv2d_forward, ("y",), x=x, w=w, b=b, y=y, **case.options)
    check.refused(call, {}, match="kernel_size")
