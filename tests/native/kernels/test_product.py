"""product: two branches that are multiplied, in plans, compared with NumPy; gates of one number per channel."""

import math

import numpy as np
import pytest
import reference as ref

from minidl_c.kernels.activations import ActivationOp
from minidl_c.kernels.avgpool2d import AvgPool2DOp
from minidl_c.kernels.branches import RecallOp, SplitOp
from minidl_c.kernels.flatten import FlattenOp
from minidl_c.kernels.product import MultiplyOp
from minidl_c.runtime.plan import Plan

NOTHING = {dtype: np.empty(0, dtype) for dtype in ("float32", "float64")}
SHAPES = [(3, 2, 2), (17, 1, 5), (4,), (1, 1, 1), (20, 3, 7)]


def run(ops, x, dy, threads):
    """Returns y and dx of a plan without parameters."""
    plan, nothing = Plan(ops, [0] * len(ops)), NOTHING[x.dtype.name]
    y, dx = np.empty(dy.shape, x.dtype), np.empty_like(x)
    rows = [a.reshape(len(a), math.prod(a.shape[1:])) for a in (x, y, dy, dx)]
    kept = plan.forward(rows[0], nothing, rows[1], threads)
    plan.backward(kept, rows[2], rows[3], nothing, nothing)
    return y, dx


def mean_ops(shape, dtype):
    """Returns ops for the mean of each channel, as (c, 1, 1)."""
    pool = AvgPool2DOp(shape, shape[1:], (1, 1), dtype=dtype)
    return [pool, FlattenOp(pool.out_shape, dtype, out_shape=(shape[0], 1, 1))]


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 33])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_equal_shapes(check, shape, dtype, n):
    """tanh(x) times a second branch: the identity, or a sigmoid."""
    rng, size = np.random.default_rng(n), int(np.prod(shape))
    x, dy = (rng.standard_normal((n, *shape)).astype(dtype) for _ in range(2))
    tanh, sigmoid = (ActivationOp(shape, kind, dtype=dtype) for kind in ("tanh", "sigmoid"))
    wide = x.astype("f8")
    a, slope_a = np.tanh(wide), 1 - np.tanh(wide) ** 2
    b, slope_b = 1 / (1 + np.exp(-wide)), np.exp(-wide) / (1 + np.exp(-wide)) ** 2
    product = {"product_size": size, "factor": 2, "factor_size": size}
    identity = [SplitOp(shape, 3, dtype, **product), tanh, MultiplyOp(shape, shape, 1, dtype)]
    recall = RecallOp(shape, shape, 1, 5, size, dtype, factor=4, factor_size=size)
    both = [SplitOp(shape, 3, dtype), tanh, recall, sigmoid, MultiplyOp(shape, shape, 2, dtype)]
    for ops, other, slope in ((identity, wide, 1.0), (both, b, slope_b)):
        first = None
        for threads in (1, 2, 3, 8):
            y, dx = run(ops, x, dy, threads)
            check.close(y, a * other, 9 * ref.rounding(1, dtype) * np.abs(a * other), "y")
            bound = 20 * ref.rounding(1, dtype) * (np.abs(dy) * (1 + np.abs(wide)))
            check.close(dx, dy * (slope_a * other + a * slope), bound, "dx")
            first = dx if first is None else first
            check.same_bits(dx, first, f"{threads} threads")


@pytest.mark.parametrize("n", [1, 16, 33])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("gate_is_first", [False, True])
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if len(shape) == 3], ids=str)
def test_a_gate(check, shape, gate_is_first, dtype, n):
    """tanh(x) times the means of the channels of x, as the second factor and as the first."""
    rng, (c, size) = np.random.default_rng(n), (shape[0], int(np.prod(shape)))
    x, dy = (rng.standard_normal((n, *shape)).astype(dtype) for _ in range(2))
    tanh, gate, pixels = ActivationOp(shape, "tanh", dtype=dtype), mean_ops(shape, dtype), size // c
    if gate_is_first:
        recall = RecallOp((c, 1, 1), shape, 1, 6, size, dtype, factor=5, factor_size=size)
        ops = [SplitOp(shape, 4, dtype), *gate, recall, tanh, MultiplyOp((c, 1, 1), shape, 3, dtype)]
    else:
        recall = RecallOp(shape, shape, 1, 6, size, dtype, factor=5, factor_size=c)
        ops = [SplitOp(shape, 3, dtype), tanh, recall, *gate, MultiplyOp(shape, (c, 1, 1), 2, dtype)]
    wide, grad = x.astype("f8"), dy.astype("f8")
    mean, y = wide.mean((2, 3), keepdims=True), np.tanh(wide)
    expected = grad * mean * (1 - y**2) + (grad * y).sum((2, 3), keepdims=True) / pixels
    bound = 20 * ref.rounding(pixels + 4, dtype) * (np.abs(grad) + np.abs(grad).sum((2, 3), keepdims=True))
    first = None
    for threads in (1, 2, 3, 8):
        got, dx = run(ops, x, dy, threads)
        check.close(got, y * mean, 20 * ref.rounding(pixels, dtype) * np.abs(wide).sum((2, 3), keepdims=True), "y")
        check.close(dx, expected, bound, "dx")
        first = dx if first is None else first
        check.same_bits(dx, first, f"{threads} threads")


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((2, 3), (2, 4)), r"expected equal shapes, or one of them \(channels, 1 ...\), got \(2, 3\) and \(2, 4\)"),
        (((2, 3), (3, 1)), "expected equal shapes"),
        (((2, 3), (2,)), "expected equal shapes"),
        (((2, 3, 3), (2, 1, 3)), "expected equal shapes"),
    ],
    ids=str,
)
def test_other_shapes_are_refused(shapes, message):
    for first, second in (shapes, shapes[::-1]):
        with pytest.raises(ValueError, match=message if first == shapes[0] else "expected equal shapes"):
            MultiplyOp(first, second, 0)


def test_a_plan_refuses_factors_of_other_sizes():
    product = {"product_size": 4, "factor": 2, "factor_size": 3}
    tanh, multiply = ActivationOp((4,), "tanh"), MultiplyOp((4,), (4,), 1)
    with pytest.raises(ValueError, match="factor: expected 3 elements per example, value 2 has 4"):
        Plan([SplitOp((4,), 3, **product), tanh, multiply], [0] * 3)
    with pytest.raises(ValueError, match="factor: expected a value up to 3, got 4"):
        Plan([SplitOp((4,), 3, **product | {"factor": 4, "factor_size": 4}), tanh, multiply], [0] * 3)
