"""depthwise_conv2d: geometries compared with the reference and a grouped convolution, edges, special values."""

from dataclasses import replace

import numpy as np
import pytest
import reference as ref
from geometries import Conv, depthwise_cases
from slow_marks import slow_after

from minidl_c.kernels.conv2d import Conv2DOp
from minidl_c.kernels.depthwise_conv2d import DepthwiseConv2DOp
from minidl_c.runtime.single_op import backward_batch, forward_batch

DTYPES = ("float32", "float64")
BATCHES = (0, 1, 4, 5, 15, 16, 17, 33, 277)  # 277: slots of two tiles
THREADS = (1, 2, 3)


def case_of(height, width, kernel=(3, 3), stride=(1, 1), padding=(1, 1, 1, 1), dilation=(1, 1), multiplier=1):
    return Conv(17, 3, height, width, 3 * multiplier, kernel, stride, padding, dilation, groups=3)


MOBILE = case_of(9, 11)
STRIDED = replace(case_of(10, 9, stride=(2, 2), multiplier=2), batch=33)
ODD = case_of(7, 6, (2, 5), (1, 3), (1, 0, 3, 2), (2, 1))


def draw(rng, case, whole=False):
    """Draws x, w, b and dy, exact in float32; integers if `whole`, whose sums are exact in any order."""
    shapes = (case.x_shape, case.w_shape, (case.filters,), case.y_shape)
    if whole:
        return [rng.integers(-4, 5, shape).astype("f4") for shape in shapes]
    return [rng.standard_normal(shape, "f4") for shape in shapes]


def run(check, op, case, x, w, b, dy, **options):
    """Returns y, dx, dw and, with a bias, db."""
    params = [w] if b is None else [w, b]
    y, dx, *grads = (check.output(shape, x.dtype) for shape in (case.y_shape, x.shape, *(p.shape for p in params)))
    forward_batch(op, x, y, params, **options)
    backward_batch(op, dy, x, dx, params, grads, **options)
    return y, dx, *grads


def both(check, case, x, w, b, dy, **options):
    window = (case.kernel, case.stride, case.padding, case.dilation, case.filters // case.channels)
    op = DepthwiseConv2DOp(case.x_shape[1:], *window, x.dtype.name, use_bias=b is not None)
    return run(check, op, case, x, w, b, dy, **options)


def oracle(case, x, w, b, dy):
    return ref.conv2d_forward(x, w, b, case), *ref.conv2d_backward(dy, x, w, case)


def compare(check, case, whole, number, biased=True):
    values = draw(np.random.default_rng(number), case, whole)
    if not biased:
        values[2][:] = 0
    exact = oracle(case, *values)
    magnitude = exact if whole else oracle(case, *(np.abs(v) for v in values))
    pixels = int(np.prod(case.y_shape)) // case.filters
    terms = (case.terms + 1, case.terms * case.filters, pixels, pixels)
    for dtype in DTYPES:
        x, w, b, dy = (check.input(v, dtype) for v in values)
        got = both(check, case, x, w, b if biased else None, dy, num_threads=THREADS[number % 3])
        for name, a, e, m, n in zip(("y", "dx", "dw", "db"), got, exact, magnitude, terms, strict=False):
            check.close(a, e, 0 if whole else ref.rounding(n, dtype) * m, f"{name} {dtype} {case}")
        check.count("depthwise_conv2d", dtype)


@pytest.mark.parametrize("seed", slow_after(3, range(10)))
def test_random_geometries(check, seed):
    for number, case in enumerate(depthwise_cases(seed, 50)):
        compare(check, case, whole=number % 2 == 0, number=number, biased=number % 3 > 0)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", [4, 5, 6])
def test_three_columns_use_three_taps_of_wider_kernels(check, kernel, stride):
    """A column with two taps is no edge of one with three taps unless its taps are among those three."""
    for padding in range(kernel + 2):
        for dilation in (1, 2):
            case = case_of(4, 3, (2, kernel), (1, stride), (0, 0, padding, padding), (1, dilation))
            if min(case.spare) >= 0:
                compare(check, case, whole=True, number=padding)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("padding", [(0, 0, 0, 0), (1, 1, 1, 1), (0, 1, 0, 1), (1, 0, 1, 0), (2, 2, 2, 2)], ids=str)
def test_kernels_of_3_for_every_width_and_padding(check, stride, padding):
    """Covers all pixel counts of a register tile, with and without edges."""
    for size in range(1, 21):
        for height, width in ((size, 5), (4, size)):
            case = case_of(height, width, stride=(stride, stride), padding=padding)
            if min(case.spare) >= 0:
                compare(check, replace(case, batch=5), whole=True, number=size)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("case", [MOBILE, STRIDED, ODD], ids=str)
def test_every_batch_size(check, case, batch):
    compare(check, replace(case, batch=batch), whole=True, number=batch)


@pytest.mark.parametrize("dtype", DTYPES)
def test_y_and_dx_have_the_bits_of_a_grouped_convolution(check, dtype):
    for number, case in enumerate([MOBILE, STRIDED, ODD, *depthwise_cases(7, 60)]):
        x, w, b, dy = (v.astype(dtype) for v in draw(np.random.default_rng(number), case))
        op = Conv2DOp(case.x_shape[1:], case.filters, case.kernel, **case.options, dtype=dtype)
        found, grouped = both(check, case, x, w, b, dy), run(check, op, case, x, w, b, dy)
        for name, a, e in zip(("y", "dx"), found, grouped, strict=False):
            check.same_bits(a, e, f"{name} {case}")


@pytest.mark.parametrize("case", [MOBILE, STRIDED, ODD], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_and_batch_neighbours_change_no_bit(check, dtype, case):
    x, w, b, dy = (v.astype(dtype) for v in draw(np.random.default_rng(2), case))
    first = both(check, case, x, w, b, dy)
    for threads in (2, 3, 8):
        again = both(check, case, x, w, b, dy, num_threads=threads)
        for name, a, e in zip(("y", "dx", "dw", "db"), again, first, strict=True):
            check.same_bits(a, e, f"{name} {threads} threads")
    for i in range(case.batch):
        row = slice(i, i + 1)
        y, dx, *_ = both(check, replace(case, batch=1), x[row], w, b, dy[row])
        check.same_bits(y, first[0][row], f"y row {i}")
        check.same_bits(dx, first[1][row], f"dx row {i}")


@pytest.mark.parametrize("extreme", [np.nan, np.inf, 3e38])
def test_extreme_values_stay_in_their_row(check, extreme):
    x, w, b, dy = draw(np.random.default_rng(3), STRIDED)
    y, dx, *_ = both(check, STRIDED, x, w, b, dy)
    for i in (0, 16, 32):
        xi, dyi = x.copy(), dy.copy()
        xi[i], dyi[i] = extreme, extreme
        others = np.arange(STRIDED.batch) != i
        yi, dxi, *_ = both(check, STRIDED, xi, w, b, dyi)
        check.same_bits(yi[others], y[others], f"y beside row {i}")
        check.same_bits(dxi[others], dx[others], f"dx beside row {i}")


@pytest.mark.parametrize("dtype", DTYPES)
def test_padding_is_skipped_and_not_multiplied(check, dtype):
    """An infinite weight or gradient times a zero of the padding would be NaN."""
    case = replace(MOBILE, batch=1)
    x, w, b, dy = (np.ones(shape, dtype) for shape in (case.x_shape, case.w_shape, (3,), case.y_shape))
    y, dx, dw, db = both(check, case, x, w * np.inf, b, dy * np.inf)
    for name, array in (("y", y), ("dx", dx), ("dw", dw), ("db", db)):
        assert np.isposinf(array).all(), name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel_size": (7, 3)}, "kernel_size: a window of 7 x 3 does not fit"),
        ({"multiplier": 0}, "multiplier: expected numbers from 1"),
        ({"multiplier": 1.5}, "multiplier: expected 1 whole numbers"),
        ({"stride": (0, 1)}, "stride: expected numbers from 1"),
    ],
    ids=str,
)
def test_invalid_arguments_are_refused(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        DepthwiseConv2DOp((6, 4, 4), **{"kernel_size": (3, 3)} | options)
