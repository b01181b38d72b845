"""rescale: y = scale * x + offset for random sizes, bitwise reproducibility."""

import numpy as np
import pytest
import reference as ref

from minidl_c.kernels.rescale import RescaleOp
from minidl_c.runtime.single_op import backward_batch, forward_batch

DTYPES = ("float32", "float64")
NUMBERS = [(1 / 255, 0.0), (2.0, -1.0), (-0.3, 1e3), (0.0, 5.0), (1.0, 0.0), (1e-3, -7)]


def op_for(x, *numbers):
    return RescaleOp(x.shape[1:], *numbers, dtype=x.dtype.name)


def forward(check, x, scale, offset, **options):
    y = check.output(x.shape, x.dtype)
    forward_batch(op_for(x, scale, offset), x, y, **options)
    return y


def backward(check, dy, scale, **options):
    dx = check.output(dy.shape, dy.dtype)
    backward_batch(op_for(dy, scale, 7.0), dy, dy, dx, **options)
    return dx


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 33, 257])
@pytest.mark.parametrize(("scale", "offset"), NUMBERS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_random_sizes(check, dtype, scale, offset, n):
    rng = np.random.default_rng(n)
    for size in (1, 3, 15, 16, 17, 64, int(rng.integers(65, 500))):
        x, dy = (check.input(rng.standard_normal((n, size)), dtype) for _ in range(2))
        what = f"{dtype} n={n} size={size} {scale} x + {offset}"
        wide, dwide = x.astype("f8"), dy.astype("f8")
        # scale and offset are rounded to the dtype, then the product and the sum
        bound = ref.rounding(3, dtype) * (np.abs(wide * scale) + abs(offset))
        check.close(forward(check, x, scale, offset), wide * scale + offset, bound, f"y {what}")
        bound = ref.rounding(2, dtype) * np.abs(dwide * scale)
        check.close(backward(check, dy, scale), dwide * scale, bound, f"dx {what}")
        check.count("rescale", dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_scale_one_and_offset_zero_are_the_identity(check, dtype):
    x = np.tile(np.array([0, 1, -2.5, 200, np.inf, -np.inf, np.nan], dtype), (17, 1))
    check.equal(forward(check, x, 1.0, 0.0), x, "y")
    check.equal(backward(check, x, 1.0), x, "dx")
    finite = x[:, :4].copy()
    check.equal(forward(check, finite, 0.5, 0.25), finite * 0.5 + 0.25, "y, exact")


@pytest.mark.parametrize("dtype", DTYPES)
def test_offset_defaults_to_zero(check, dtype):
    x, y = np.arange(34, dtype=dtype).reshape(17, 2), check.output((17, 2), dtype)
    forward_batch(op_for(x, 0.5), x, y)
    check.equal(y, x / 2, "y")


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_and_batch_neighbours_change_no_bit(check, dtype):
    x = np.random.default_rng(1).standard_normal((277, 37)).astype(dtype)
    y, dx = forward(check, x, 0.3, 0.7), backward(check, x, 0.3)
    for threads in (2, 3, 8):
        again = forward(check, x, 0.3, 0.7, num_threads=threads)
        check.same_bits(again, y, f"y {threads} threads")
        check.same_bits(backward(check, x, 0.3, num_threads=threads), dx, f"dx {threads} threads")
    for i in range(40):
        row = slice(i, i + 1)
        check.same_bits(forward(check, x[row], 0.3, 0.7), y[row], f"y row {i}")
        check.same_bits(backward(check, x[row], 0.3), dx[row], f"dx row {i}")


@pytest.mark.parametrize("numbers", [(None,), ("2",), (1.0, None)], ids=str)
def test_invalid_numbers_are_refused(numbers):
    with pytest.raises(TypeError):
        RescaleOp((5,), *numbers)
