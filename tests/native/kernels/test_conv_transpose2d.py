"""conv_transpose2d: geometries compared with the reference, the definition and the gradient of a convolution."""

from dataclasses import replace

import numpy as np
import pytest
import reference as ref
from geometries import Conv, Transposed, cropped_cases, transposed_cases
from slow_marks import slow_after

from minidl_c.kernels.conv2d import Conv2DOp
from minidl_c.kernels.conv_transpose2d import ConvTranspose2DOp
from minidl_c.runtime.single_op import backward_batch, forward_batch

DTYPES = ("float32", "float64")
BATCHES = (0, 1, 4, 5, 15, 16, 17, 33, 277)  # 277: slots of two tiles
THREADS = (1, 2, 3)
SMALL = Transposed(17, 3, 5, 4, 2, (3, 2), (2, 1), (1, 0), (1, 0))
GROUPED = Transposed(33, 6, 4, 5, 9, (3, 3), (2, 3), (2, 1), (1, 2), (1, 2), groups=3)
DILATED = Transposed(16, 2, 4, 3, 3, (2, 3), (1, 1), (0, 1), (1, 2), (2, 3))  # output_padding as large as the stride
WIDE = Transposed(21, 32, 5, 6, 16, (4, 4), (2, 2), (1, 1))  # a small batch: channels in the lanes


def draw(rng, case, whole=False):
    """Draws x, w, b and dy, exact in float32; integers if `whole`, whose sums are exact in any order."""
    shapes = (case.x_shape, case.w_shape, (case.filters,), case.y_shape)
    if whole:
        return [rng.integers(-4, 5, shape).astype("f4") for shape in shapes]
    return [rng.standard_normal(shape, "f4") for shape in shapes]


def both(check, case, x, w, b, dy, **options):
    """Returns y, dx, dw and, with a bias, db."""
    params = [w] if b is None else [w, b]
    op = ConvTranspose2DOp(
        case.x_shape[1:], case.filters, case.kernel, **case.options, dtype=x.dtype.name, use_bias=b is not None
    )
    y, dx, *grads = (check.output(shape, x.dtype) for shape in (case.y_shape, x.shape, *(p.shape for p in params)))
    forward_batch(op, x, y, params, **options)
    backward_batch(op, dy, x, dx, params, grads, **options)
    return y, dx, *grads


def oracle(case, x, w, b, dy):
    return ref.conv_transpose2d_forward(x, w, b, case), *ref.conv_transpose2d_backward(dy, x, w, case)


def compare(check, case, whole, number, biased=True):
    values = draw(np.random.default_rng(number), case, whole)
    if not biased:
        values[2][:] = 0
    exact = oracle(case, *values)
    magnitude = exact if whole else oracle(case, *(np.abs(v) for v in values))
    pixels = int(np.prod(case.y_shape)) // case.filters
    terms = (values[1].size + 1, values[1].size, pixels, pixels)
    for dtype in DTYPES:
        x, w, b, dy = (check.input(v, dtype) for v in values)
        got = both(check, case, x, w, b if biased else None, dy, num_threads=THREADS[number % 3])
        for name, a, e, m, n in zip(("y", "dx", "dw", "db"), got, exact, magnitude, terms, strict=False):
            check.close(a, e, 0 if whole else ref.rounding(n, dtype) * m, f"{name} {dtype} {case}")
        check.count("conv_transpose2d", dtype)


@pytest.mark.parametrize("seed", slow_after(3, range(6)))
def test_random_geometries(check, seed):
    for number, case in enumerate([*transposed_cases(seed, 50), *cropped_cases(seed, 20)]):
        compare(check, case, whole=number % 2 == 0, number=number, biased=number % 3 > 0)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("case", [SMALL, GROUPED, DILATED, WIDE], ids=str)
def test_every_batch_size(check, case, batch):
    compare(check, replace(case, batch=batch), whole=True, number=batch)


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("groups", [1, 3])
def test_many_weights_are_packed_by_all_threads(check, groups, number):
    compare(check, Transposed(5, 66, 3, 4, 69, (3, 3), padding=(1, 0), groups=groups), whole=True, number=number)


def test_every_input_contributes_to_the_outputs_of_the_definition():
    x = np.array([[[[1, 2], [3, 4]]]], "f8")
    w = np.array([[[[1, 10], [100, 1000]]]], "f8")
    y = np.empty((1, 1, 3, 3))
    forward_batch(ConvTranspose2DOp((1, 2, 2), 1, (2, 2), dtype="float64"), x, y, (w, np.array([0.5])))
    assert y[0, 0].tolist() == [[1.5, 12.5, 20.5], [103.5, 1234.5, 2040.5], [300.5, 3400.5, 4000.5]]


@pytest.mark.parametrize("n", [3, 17])
@pytest.mark.parametrize("dtype", DTYPES)
def test_forward_is_the_gradient_of_a_convolution(check, dtype, n):
    """Bit for bit, forward and backward, including the weights' gradient."""
    case = Conv(n, 18, 8, 7, 20, (3, 3), (2, 2), (1, 1, 1, 1))
    rng = np.random.default_rng(n)
    x, dy = (rng.standard_normal(shape).astype(dtype) for shape in (case.x_shape, case.y_shape))
    w = rng.standard_normal(case.w_shape).astype(dtype)
    conv = Conv2DOp(case.x_shape[1:], 20, (3, 3), (2, 2), case.padding, dtype=dtype, use_bias=False)
    y, dx, dw = (np.empty_like(a) for a in (dy, x, w))
    forward_batch(conv, x, y, [w])
    backward_batch(conv, dy, x, dx, [w], [dw])
    back = Transposed(n, 20, 4, 4, 18, (3, 3), (2, 2), (1, 1), (1, 0))
    found = both(check, back, dy, w, None, x)
    for name, a, e in zip(("y", "dx", "dw"), found, (dx, y, dw), strict=True):
        check.same_bits(a, e, name)


@pytest.mark.parametrize("case", [SMALL, GROUPED, DILATED, WIDE, replace(WIDE, batch=3)], ids=str)
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
    x, w, b, dy = draw(np.random.default_rng(3), GROUPED)
    y, dx, *_ = both(check, GROUPED, x, w, b, dy)
    for i in (0, 16, 32):
        xi, dyi = x.copy(), dy.copy()
        xi[i], dyi[i] = extreme, extreme
        others = np.arange(GROUPED.batch) != i
        yi, dxi, *_ = both(check, GROUPED, xi, w, b, dyi)
        check.same_bits(yi[others], y[others], f"y beside row {i}")
        check.same_bits(dxi[others], dx[others], f"dx beside row {i}")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"padding": (5, 0)}, r"padding: expected to keep at least 1 x 1, got \(5, 0\), which keeps -1 x 6"),
        ({"output_padding": (2, 0)}, r"output_padding: expected less than the stride .*, got \(2, 0\)"),
        ({"output_padding": (-1, 0)}, "output_padding: expected numbers from 0"),
        ({"groups": 4}, "groups: expected a divisor of 6 input channels and 9 filters, got 4"),
        ({"stride": (0, 1)}, "stride: expected numbers from 1"),
        ({"padding": (1, 1, 1)}, "padding: expected 2 whole numbers"),
        (
            {"padding": (0, 9, 1, 1)},
            r"padding: expected to keep at least 1 x 1, got \(\(0, 9\), 1\), which keeps 0 x 4",
        ),
    ],
    ids=str,
)
def test_invalid_arguments_are_refused(changes, message):
    options = {"stride": (2, 1), "output_padding": (0, 0)} | changes
    with pytest.raises((TypeError, ValueError), match=message):
        ConvTranspose2DOp((6, 4, 4), 9, (3, 3), **options)
