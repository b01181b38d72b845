"""branches: plans that fork and join, compared with the same ops called in turn; frozen ops and rate factors."""

import numpy as np
import pytest
from plans import train

from minidl_c.kernels.activations import ActivationOp
from minidl_c.kernels.branches import AddOp, ConcatOp, RecallOp, SplitOp
from minidl_c.kernels.dense import DenseOp
from minidl_c.losses.softmax_cross_entropy import SoftmaxCrossEntropyOp
from minidl_c.optimizers.sgd import SGDUpdate
from minidl_c.runtime.plan import Plan
from minidl_c.runtime.single_op import backward_batch, forward_batch

SHAPE = (3, 2, 2)
NOTHING = {dtype: np.empty(0, dtype) for dtype in ("float32", "float64")}


def run(ops, x, dy, threads):
    """Returns y and dx of a plan without parameters."""
    plan, nothing = Plan(ops, [0] * len(ops)), NOTHING[x.dtype.name]
    y, dx = np.empty(dy.shape, x.dtype), np.empty_like(x)
    kept = plan.forward(x.reshape(len(x), -1), nothing, y.reshape(len(x), -1), threads)
    plan.backward(kept, dy.reshape(len(x), -1), dx.reshape(len(x), -1), nothing, nothing)
    return y, dx


def alone(kind, x, dy, dtype):
    op, y, dx = ActivationOp(SHAPE, kind, dtype=dtype), np.empty_like(x), np.empty_like(x)
    forward_batch(op, x, y)
    backward_batch(op, np.ascontiguousarray(dy), x, dx)
    return y, dx


@pytest.mark.parametrize("n", [1, 16, 17, 300])
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_two_branches_equal_two_ops(check, dtype, threads, n):
    rng = np.random.default_rng(n)
    x, dy = (rng.standard_normal((n, *SHAPE)).astype(dtype) for _ in range(2))
    wide = rng.standard_normal((n, 6, 2, 2)).astype(dtype)
    tanh, sigmoid = (ActivationOp(SHAPE, kind, dtype=dtype) for kind in ("tanh", "sigmoid"))
    for join, gradient in (("add", dy), ("concat", wide)):
        # values: 0 x, 1 split, 2 tanh, 3 recall, 4 sigmoid, 5 the join
        meet = AddOp(SHAPE, 2, dtype) if join == "add" else ConcatOp(SHAPE, SHAPE, 2, dtype)
        size = 12 if join == "add" else 24
        ops = [SplitOp(SHAPE, 3, dtype), tanh, RecallOp(SHAPE, SHAPE, 1, 5, size, dtype), sigmoid, meet]
        y, dx = run(ops, x, gradient, threads)
        shares = (gradient, gradient) if join == "add" else (gradient[:, :3], gradient[:, 3:])
        (y1, dx1), (y2, dx2) = alone("tanh", x, shares[0], dtype), alone("sigmoid", x, shares[1], dtype)
        check.same_bits(y, y1 + y2 if join == "add" else np.concatenate([y1, y2], axis=1), f"y {join}")
        check.same_bits(dx, dx1 + dx2, f"dx {join}")


@pytest.mark.parametrize("n", [5, 33])
def test_a_skip_connection_past_a_branch(check, n):
    rng = np.random.default_rng(n)
    x, dy = (rng.standard_normal((n, *SHAPE), "f4") for _ in range(2))
    y, dx = run([SplitOp(SHAPE, 3), ActivationOp(SHAPE, "tanh"), AddOp(SHAPE, 1)], x, dy, 2)
    y1, dx1 = alone("tanh", x, dy, "float32")
    check.same_bits(y, x + y1, "y")
    check.same_bits(dx, dx1 + dy, "dx")


def test_branches_of_unequal_shapes_are_refused():
    with pytest.raises(ValueError, match="differ along axis 0 alone"):
        ConcatOp((3, 2, 2), (3, 2, 3), 0)
    with pytest.raises(ValueError, match="skip: expected 12 elements"):
        Plan([ActivationOp((6,), "tanh"), DenseOp((6,), 12), AddOp((12,), 0)], [0, 0, 0])
    for wrong in (-1, "a", 1.5):
        with pytest.raises((TypeError, ValueError)):
            SplitOp((3,), wrong)


def trained(**options):
    """Returns the changes of the parameters of two dense layers in two steps."""
    rng, sizes = np.random.default_rng(0), (5 * 4, 5 * 3)
    ops = [DenseOp((4,), 4), DenseOp((4,), 3), SoftmaxCrossEntropyOp((3,))]
    plan = Plan(ops, [0, sizes[0], 0], True, **options)
    param, x = rng.standard_normal(sum(sizes), "f4"), rng.standard_normal((40, 4), "f4")
    grad, labels, first = np.full(sum(sizes), 7, "f4"), rng.integers(0, 3, 40), param.copy()
    train(
        plan, x, None, 20, labels, None, np.empty(40, "f4"), None, np.full(2, 20.0), np.full(2, 0.1), param, grad,
        SGDUpdate(sum(sizes), "float32"), 2, 0, np.zeros(1, "i8"),
    )  # fmt: skip
    return (param - first)[: sizes[0]], (param - first)[sizes[0] :]


def test_frozen_ops():
    usual, frozen = trained(), trained(frozen=[False, True, False])
    assert usual[0].any() and usual[1].any()
    assert frozen[0].any() and not frozen[1].any()
    with pytest.raises(ValueError, match="frozen: expected one for each of 3 ops, got 1"):
        trained(frozen=[True])
