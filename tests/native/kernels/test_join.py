"""join: functions of two branches, in plans, compared with NumPy; gates and other values that are broadcast."""

import math

import numpy as np
import pytest
import reference as ref

import minidl_c
from minidl_c.kernels.activations import ActivationOp
from minidl_c.kernels.avgpool2d import AvgPool2DOp
from minidl_c.kernels.branches import RecallOp, SplitOp
from minidl_c.kernels.columns import ColumnsOp
from minidl_c.kernels.flatten import FlattenOp
from minidl_c.kernels.join import JOINS, JoinOp
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
    product = {"factor": 2, "factor_shape": shape}
    identity = [SplitOp(shape, 3, dtype, **product), tanh, JoinOp("multiply", shape, shape, 1, dtype)]
    recall = RecallOp(shape, shape, 1, 5, size, dtype, join="multiply", factor=4, factor_shape=shape)
    both = [SplitOp(shape, 3, dtype), tanh, recall, sigmoid, JoinOp("multiply", shape, shape, 2, dtype)]
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
        recall = RecallOp((c, 1, 1), shape, 1, 6, size, dtype, join="multiply", factor=5, factor_shape=shape)
        ops = [SplitOp(shape, 4, dtype), *gate, recall, tanh, JoinOp("multiply", (c, 1, 1), shape, 3, dtype)]
    else:
        recall = RecallOp(shape, shape, 1, 6, size, dtype, join="multiply", factor=5, factor_shape=(c, 1, 1))
        ops = [SplitOp(shape, 3, dtype), tanh, recall, *gate, JoinOp("multiply", shape, (c, 1, 1), 2, dtype)]
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


@pytest.mark.parametrize("shapes", [((2, 3), (2, 4)), ((2, 3), (3, 3)), ((2, 3), (2,)), ((1,) * 9,) * 2], ids=str)
def test_other_shapes_are_refused(shapes):
    for first, second in (shapes, shapes[::-1]):
        with pytest.raises(ValueError, match="multiply: expected shapes that are equal or 1 along each axis, got"):
            JoinOp("multiply", first, second, 0)
    with pytest.raises(ValueError, match="join: expected one of"):
        JoinOp("subtract", (2,), (2,), 0)


def test_a_plan_refuses_factors_of_other_sizes():
    tanh, multiply = ActivationOp((4,), "tanh"), JoinOp("multiply", (4,), (4,), 1)
    with pytest.raises(ValueError, match="factor: expected 1 elements per example, value 2 has 4"):
        Plan([SplitOp((4,), 3, factor=2, factor_shape=(1,)), tanh, multiply], [0] * 3)
    with pytest.raises(ValueError, match="factor: expected a value up to 3, got 4"):
        Plan([SplitOp((4,), 3, factor=4, factor_shape=(4,)), tanh, multiply], [0] * 3)


BROADCASTS = [[(5,), (1,)], [(2, 3, 4), (1, 3, 4)], [(2, 3, 4), (2, 1, 4)], [(2, 1, 4), (1, 3, 1)], [(3, 1), (1, 5)]]
BROADCASTS += [[(17, 2, 3), (17, 1, 1)], [(3, 20, 20), (1, 1, 1)], [(4, 2, 1, 3), (1, 1, 5, 3)], [(1, 1), (1, 1)]]
FUNCTIONS = {"add": np.add, "multiply": np.multiply, "divide": np.divide, "maximum": np.maximum, "minimum": np.minimum}
FUNCTIONS["power"] = np.power


def slopes(join, a, b):
    """Returns the derivatives by a and b, for numbers that differ."""
    one = np.ones(np.broadcast_shapes(a.shape, b.shape))
    larger, smaller = one * (a > b), one * (a < b)
    return {
        "add": (one, one), "multiply": (one * b, one * a), "divide": (one / b, -one * a / b**2),
        "maximum": (larger, smaller), "minimum": (smaller, larger),
        "power": (b * np.power(a, b - 1), np.power(a, b) * np.log(a)) if join == "power" else (),
    }[join]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("shapes", [*BROADCASTS, [(5, 3), (5, 3)]], ids=str)
def test_broadcasts(check, shapes, join, dtype):
    """A table whose columns become both values: the dead lanes of the tile hold 0 / 0."""
    for n, (a_shape, b_shape) in ((3, shapes), (17, shapes[::-1])):
        rng, full = np.random.default_rng(n), np.broadcast_shapes(a_shape, b_shape)
        sizes = math.prod(a_shape), math.prod(b_shape)
        x = (rng.choice([-1, 1], (n, sum(sizes))) * rng.uniform(1, 2, (n, sum(sizes)))).astype(dtype)
        if join == "power":
            x = np.abs(x)
        dy = rng.standard_normal((n, *full)).astype(dtype)
        columns = [ColumnsOp((sum(sizes),), 0, sizes[0], dtype), ColumnsOp((sum(sizes),), sizes[0], sum(sizes), dtype)]
        shaped = [
            FlattenOp(op.out_shape, dtype, out_shape=s) for op, s in zip(columns, (a_shape, b_shape), strict=True)
        ]
        size = math.prod(full)
        recall = RecallOp(a_shape, x.shape[1:], 1, 7, size, dtype, join=join, factor=6, factor_shape=b_shape)
        ops = [SplitOp(x.shape[1:], 4, dtype), columns[0], shaped[0], recall, columns[1], shaped[1]]
        ops.append(JoinOp(join, a_shape, b_shape, 3, dtype))
        a, b = (
            part.reshape(n, *s) for part, s in zip(np.split(x, [sizes[0]], axis=1), (a_shape, b_shape), strict=True)
        )
        parts = []
        for slope, operand in zip(slopes(join, a.astype("f8"), b.astype("f8")), (a, b), strict=True):
            axes = tuple(
                i for i, (size, whole) in enumerate(zip(operand.shape, dy.shape, strict=True)) if size != whole
            )
            parts.append((dy * slope).sum(axes, keepdims=True).reshape(n, operand[0].size))
        expected, first = np.concatenate(parts, axis=1), None
        for threads in (1, 2, 3):
            y, dx = run(ops, x, dy, threads)
            if join == "power":
                check.close(y, a.astype("f8") ** b, 8 * ref.rounding(1, dtype) * a.astype("f8") ** b, "y")
            else:
                check.same_bits(y, FUNCTIONS[join](a, b), "y")
            check.close(dx, expected, 40 * ref.rounding(size, dtype) * np.abs(dy).sum(), "dx")
            first = dx if first is None else first
            check.same_bits(dx, first, f"{threads} threads")


WITHOUT_FMA = 30 if minidl_c.isa == "v2" else 1  # v2 cannot correct the rounding of products: y log(x) for one


def powers(a, b, dy):
    """Returns a ** b, and the gradients of a and b, all of shape (n,)."""
    dtype, (x, dy) = a.dtype.name, (np.stack([a, b], axis=1), dy[:, np.newaxis])
    columns = [ColumnsOp((2,), i, i + 1, dtype) for i in (0, 1)]
    recall = RecallOp((1,), (2,), 1, 5, 1, dtype, join="power", factor=4, factor_shape=(1,))
    ops = [SplitOp((2,), 3, dtype), columns[0], recall, columns[1], JoinOp("power", (1,), (1,), 2, dtype)]
    y, dx = run(ops, x, dy, 1)
    return y[:, 0], dx[:, 0], dx[:, 1]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_powers_of_special_numbers_are_those_of_ieee_754(dtype):
    top = 2.0 ** {"float32": 24, "float64": 53}[dtype]  # from here on all integers are even
    numbers = [0.0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, 7, 1e30, -1e30, np.inf, -np.inf, np.nan]
    numbers += [top - 1, 1 - top, top, top / 2 - 0.5, np.nextafter(1, 2, dtype=dtype)]
    a, b = (part.ravel().astype(dtype) for part in np.meshgrid(numbers, numbers))
    with np.errstate(all="ignore"):
        expected = np.power(a, b)
    y, _, _ = powers(a, b, np.ones_like(a))
    np.testing.assert_allclose(y, expected, 40 * WITHOUT_FMA * np.finfo(dtype).eps, np.finfo(dtype).tiny)
    zero = expected == 0
    assert np.array_equal(np.signbit(y[zero]), np.signbit(expected[zero]))


@pytest.mark.parametrize(("dtype", "ulps"), [("float32", 6), ("float64", 40)])
def test_powers_up_to_the_largest_number(dtype, ulps):
    """exp(y log x) of a logarithm rounded to the dtype would be wrong by 260 units in the last place, and 1,100."""
    rng, wide = np.random.default_rng(0), {"float32": np.float64, "float64": np.longdouble}[dtype]
    logs, end = rng.uniform(-5, 5, 50_000), {"float32": 87, "float64": 708}[dtype]
    a, b = np.exp(logs).astype(dtype), (rng.uniform(-end, end, 50_000) / logs).astype(dtype)
    expected = np.power(a.astype(wide), b.astype(wide))
    known = (expected > 2 * np.finfo(dtype).tiny) & (expected < np.finfo(dtype).max / 2)
    y, _, _ = powers(a[known], b[known], np.ones_like(a[known]))
    assert np.max(np.abs(y - expected[known]) / np.spacing(expected[known].astype(dtype))) < ulps * WITHOUT_FMA


@pytest.mark.oracle("torch")
def test_gradients_of_powers_are_those_of_pytorch():
    import torch

    numbers = [0.0, 1.0, -1.0, 2.0, -2.0, 0.5, 3.0, -3.0, 2.5]
    a, b = (part.ravel() for part in np.meshgrid(numbers, numbers))
    dy = np.random.default_rng(0).standard_normal(a.size)
    inputs = [torch.tensor(part, requires_grad=True) for part in (a, b)]
    torch.pow(*inputs).backward(torch.tensor(dy))
    for found, given in zip(powers(a, b, dy)[1:], inputs, strict=True):
        np.testing.assert_allclose(found, given.grad.numpy(), 1e-13)


def test_equal_numbers_share_the_gradient_of_a_maximum():
    x, dy = np.array([[3.0, 3.0], [np.nan, 1.0], [2.0, np.nan]]), np.array([[8.0], [2.0], [4.0]])
    columns = [ColumnsOp((2,), i, i + 1, "float64") for i in (0, 1)]
    for join in ("maximum", "minimum"):
        recall = RecallOp((1,), (2,), 1, 5, 1, "float64", join=join, factor=4, factor_shape=(1,))
        ops = [SplitOp((2,), 3, "float64"), columns[0], recall, columns[1], JoinOp(join, (1,), (1,), 2, "float64")]
        y, dx = run(ops, x, dy, 1)
        assert y[0] == 3 and np.isnan(y[1:]).all()
        assert dx.tolist() == [[4.0, 4.0], [2.0, 2.0], [4.0, 4.0]]
