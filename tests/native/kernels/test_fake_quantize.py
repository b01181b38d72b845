"""fake_quantize: rounding and straight-through gradients bit for bit, ties, bounds, threads."""

import numpy as np
import pytest

from minidl import Sequential
from minidl.quantization import FakeQuantize
from minidl_c.kernels.fake_quantize import FakeQuantizeOp
from minidl_c.runtime.single_op import backward_batch, forward_batch

DTYPES = ("float32", "float64")
NUMBERS = [(0.25, 0), (0.01, -128), (1.7, 127), (3e-5, 13)]


def steps(x, scale, zero_point):
    """Returns q before it is clipped, with the roundings of the kernel: each once, to the dtype."""
    real = x.dtype.type
    return np.floor(x * real(1 / scale) + real(zero_point + 0.5))


def expected(x, scale, zero_point):
    real = x.dtype.type
    return (np.clip(steps(x, scale, zero_point), -128, 127) - real(zero_point)) * real(scale)


def op_for(x, *numbers):
    return FakeQuantizeOp(x.shape[1:], *numbers, dtype=x.dtype.name)


def forward(check, x, *numbers, **options):
    y = check.output(x.shape, x.dtype)
    forward_batch(op_for(x, *numbers), x, y, **options)
    return y


def backward(check, dy, x, *numbers, **options):
    dx = check.output(dy.shape, dy.dtype)
    backward_batch(op_for(dy, *numbers), dy, x, dx, **options)
    return dx


@pytest.mark.parametrize("numbers", NUMBERS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_random_sizes(check, dtype, numbers):
    rng = np.random.default_rng(0)
    for n in (0, 1, 15, 16, 17, 33, 257):
        x = check.input(rng.standard_normal((n, 37)) * 150 * numbers[0], dtype)
        dy = check.input(rng.standard_normal((n, 37)), dtype)
        what = f"{dtype} n={n} {numbers}"
        check.equal(forward(check, x, *numbers), expected(x, *numbers), f"y {what}")
        q = steps(x, *numbers)
        check.equal(backward(check, dy, x, *numbers), np.where((q >= -128) & (q <= 127), dy, 0), f"dx {what}")
        check.count("fake_quantize", dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_halves_bounds_and_numbers_without_a_place(check, dtype):
    x = np.array([[0.25, -0.25, 0.75, -64.25, -64.26, 63.74, 63.75, np.inf, -np.inf, np.nan]], dtype)
    y = [[0.5, 0.0, 1.0, -64.0, -64.0, 63.5, 63.5, 63.5, -64.0, np.nan]]
    check.equal(forward(check, x, 0.5, 0), np.array(y, dtype), "halves are rounded up")
    inside = [[1, 1, 1, 1, 0, 1, 0, 0, 0, 0]]
    check.equal(backward(check, np.ones_like(x), x, 0.5, 0), np.array(inside, dtype), "dx")


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_and_layouts_change_no_bit(check, dtype):
    rng = np.random.default_rng(1)
    x, dy = (rng.standard_normal((277, 3, 5, 4)).astype(dtype) for _ in range(2))
    y, dx = forward(check, x, 0.01, 3), backward(check, dy, x, 0.01, 3)
    for threads in (2, 3, 8):
        check.same_bits(forward(check, x, 0.01, 3, num_threads=threads), y, f"y {threads} threads")
        check.same_bits(backward(check, dy, x, 0.01, 3, num_threads=threads), dx, f"dx {threads} threads")
    model = Sequential([FakeQuantize(0.01, 3)], input_shape=(3, 5, 4), dtype=dtype)
    for n in (1, 2, 5, 40):  # few examples are blocked
        check.same_bits(model.predict(x[:n]), y[:n], f"y of {n}")
        check.same_bits(model.forward(x[:n], training=True), y[:n], f"y of {n} in training")
        check.same_bits(model.backward(dy[:n]), dx[:n], f"dx of {n}")


@pytest.mark.parametrize(
    ("numbers", "error", "message"),
    [
        ((0.0, 0), ValueError, "scale: expected a positive number"),
        ((-1.0, 0), ValueError, "scale: expected a positive number"),
        ((1e-39, 0), ValueError, "scale: expected a positive number"),
        ((1e37, 0), ValueError, "scale: expected a positive number"),
        ((np.nan, 0), ValueError, "scale: expected a"),
        (("1", 0), TypeError, "scale: expected a number"),
        ((1.0, 128), ValueError, "zero_point: expected .* 127"),
        ((1.0, -129), ValueError, "zero_point: expected .* -128"),
    ],
    ids=str,
)
def test_invalid_numbers_are_refused(numbers, error, message):
    with pytest.raises(error, match=message):
        Sequential([FakeQuantize(*numbers)], input_shape=(3,))
    with pytest.raises((TypeError, ValueError)):
        FakeQuantizeOp((3,), *numbers)


def test_a_zero_point_between_integers_is_refused():
    with pytest.raises(TypeError, match="zero_point: expected an integer"):
        Sequential([FakeQuantize(1.0, 0.5)], input_shape=(3,))
