"""Plan: a ReLU fused into the following pool has the bits of two kernels; parameters, updates and steps."""

import numpy as np
import pytest
from geometries import pool_cases
from plans import IN, OUT, SIZE, train, training

from minidl_c.functional import maxpool2d_backward, maxpool2d_forward
from minidl_c.kernels.dense import DenseOp
from minidl_c.kernels.maxpool2d import MaxPool2DOp
from minidl_c.kernels.relu import ReLUOp
from minidl_c.losses.elementwise_losses import ElementwiseLossOp
from minidl_c.losses.softmax_cross_entropy import SoftmaxCrossEntropyOp
from minidl_c.optimizers.adaptive import AdagradUpdate, AdamUpdate
from minidl_c.optimizers.sgd import SGDUpdate
from minidl_c.optimizers.update import ParamRanges
from minidl_c.runtime.plan import Plan
from minidl_c.runtime.single_op import backward_batch, forward_batch

NOTHING = np.empty(0, "f4")


def numbers(rng, shape):
    """Draws values with ties, signed zeros, NaN and infinities."""
    return rng.choice(np.array([-np.inf, np.nan, 0, -0.0, 1, 1, -1, np.inf], "f4"), shape)


def relu_then_pool(case, x, dy):
    """Returns y and dx of the two kernels called in turn."""
    relu, positive = ReLUOp(x.shape[1:]), np.empty_like(x)
    forward_batch(relu, x, positive)
    y, dpositive, dx = np.empty(case.y_shape, "f4"), np.empty_like(x), np.empty_like(x)
    maxpool2d_forward(positive, y, **case.options)
    maxpool2d_backward(dy, positive, dpositive, **case.options)
    backward_batch(relu, dpositive, x, dx)
    return y, dx


def in_one_plan(case, ops, x, dy, threads):
    plan, flat = Plan(ops, [0] * len(ops)), x.reshape(len(x), -1)
    y, dx = np.empty(case.y_shape, "f4"), np.empty_like(x)
    kept = plan.forward(flat, NOTHING, y.reshape(len(x), -1), threads)
    plan.backward(kept, dy.reshape(len(x), -1), dx.reshape(flat.shape), NOTHING, NOTHING)
    return y, dx


@pytest.mark.parametrize("seed", range(4))
def test_a_relu_fused_into_a_pool_changes_no_bit(seed):
    rng = np.random.default_rng(seed)
    for index, case in enumerate(pool_cases(seed, 50)):
        if 0 in case.x_shape:
            continue
        x, dy = numbers(rng, case.x_shape), rng.standard_normal(case.y_shape, "f4")
        shape = case.x_shape[1:]
        ops = [ReLUOp(shape), MaxPool2DOp(shape, **case.options)]
        expected, found = relu_then_pool(case, x, dy), in_one_plan(case, ops, x, dy, 1 + index % 3)
        for name, a, b in zip(("y", "dx"), expected, found, strict=True):
            assert a.tobytes() == b.tobytes(), f"{name}: {case}"


def test_a_relu_is_not_fused_into_other_ops():
    x, shape = numbers(np.random.default_rng(0), (5, 1, 4, 4)), (1, 4, 4)
    plan, y = Plan([MaxPool2DOp(shape, (2, 2), (2, 2)), ReLUOp((1, 2, 2))], [0, 0]), np.empty((5, 4), "f4")
    plan.predict(x.reshape(5, -1), np.arange(5), NOTHING, y, 1)
    pooled = np.empty((5, 1, 2, 2), "f4")
    maxpool2d_forward(x, pooled, (2, 2), (2, 2))
    forward_batch(ReLUOp((1, 2, 2)), pooled, expected := np.empty_like(pooled))
    assert y.tobytes() == expected.tobytes()


@pytest.mark.parametrize(("late", "steps"), [((4,), 3), ((1,), 0), ((2**61,), 5)])
def test_an_update_that_missed_steps_is_refused(late, steps):
    given = training()
    given["update"] = update = AdamUpdate(SIZE, "float32")
    update.steps = steps
    ops = [DenseOp((IN,), OUT), SoftmaxCrossEntropyOp((OUT,))]
    plan, ranges = Plan(ops, [0, 0], True), ParamRanges([(0, SIZE, 1, 1, *late)])
    with pytest.raises(ValueError, match=f"ranges: expected at most the {steps} steps .* got {late[0]}"):
        train(plan, **given, ranges=ranges)
    with pytest.raises(ValueError, match=f"ranges: expected ranges of {SIZE} parameters, got an end of {SIZE + 1}"):
        train(plan, **given, ranges=ParamRanges([(0, SIZE + 1, 1, 1, 0)]))
    assert (update.steps, given["step_counter"][0]) == (steps, 0) and not given["param"].any()


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_a_step_changes_the_ranges_alone(threads):
    """Wherever the tasks of the threads begin: in a range, between two, or where there is none."""
    ops = [DenseOp((40,), 30), DenseOp((30,), 3), SoftmaxCrossEntropyOp((3,))]
    size, rng = 41 * 30 + 31 * 3, np.random.default_rng(0)
    edges = np.sort(rng.choice(size, 22, replace=False)).reshape(11, 2)
    ranges = [(*edge, float(rng.integers(4)), float(rng.integers(3)), 0) for edge in edges]
    param = rng.standard_normal(size, "f4")
    first, grad, x = param.copy(), np.empty_like(param), rng.standard_normal((50, 40), "f4")
    done = train(
        Plan(ops, [0, 41 * 30, 0], True), x, None, 50, rng.integers(0, 3, 50), None, np.empty(50, "f4"), None,
        np.full(1, 50.0), np.full(1, 0.1), param, grad, SGDUpdate(size, "float32", weight_decay=0.5), threads, 0,
        np.zeros(1, "i8"), ranges=ParamRanges(ranges),
    )  # fmt: skip
    expected, f4 = first.copy(), np.float32
    for start, end, lr, decay, _ in ranges:
        w = first[start:end]
        expected[start:end] = w - f4(0.1 * lr) * (grad[start:end] + f4(0.5 * decay) * w)
    assert done == 1 and param.tobytes() == expected.tobytes() and (param != first).any()


@pytest.mark.parametrize("name", ["divisors", "lrs", "losses", "targets", "weights", "grad"])
def test_an_array_that_is_refused_is_named(name):
    plan = Plan([DenseOp((IN,), OUT), SoftmaxCrossEntropyOp((OUT,))], [0, 0], True)
    with pytest.raises((TypeError, ValueError), match=f"^{name}: "):
        train(plan, **training() | {name: np.zeros(2, "f2")})


@pytest.mark.parametrize("offsets", [(0, 0), (0, 14), (7, 0), (1, 0), (100, 93), (0, 3)])
def test_overlapping_parameters_are_refused_at_any_offset(offsets):
    """Each layer has 15; the offsets of the ops between them, which have no parameters, are ignored."""
    first, second = DenseOp((IN,), OUT), DenseOp((OUT,), 2)
    ops = [first, ReLUOp((OUT,)), ReLUOp((OUT,)), second]
    with pytest.raises(ValueError, match=r"op [03], DenseOp: its parameters, \d+ to \d+, overlap those of op [03]"):
        Plan(ops, [offsets[0], 0, 5, offsets[1]])
    assert Plan(ops, [0, 5, 15, 15]).sources == tuple(ops)
    assert Plan(ops, [8, 0, 5, 0]).sources == tuple(ops)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("batch", [1, 16, 17, 33, 64, 100, 200, 300])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_gradient_of_a_step_matches_the_formula(dtype, batch, threads):
    """Values are integers, so sums are exact. A step keeps less of each tile than `forward` does."""
    rng = np.random.default_rng(batch)
    x, targets = rng.integers(1, 5, (batch, 7)), rng.integers(1, 5, (batch, 4))
    loss = ElementwiseLossOp((4,), "mean_squared_error", dtype=dtype)
    plan = Plan([DenseOp((7,), 4, dtype), loss], [0, 0], has_loss=True)
    param, grad, losses = np.zeros(32, dtype), np.empty(32, dtype), np.empty(batch, dtype)
    given = x.astype(dtype), None, batch, targets.astype(dtype), None, losses, None, np.ones(1), np.ones(1)
    assert train(plan, *given, param, grad, None, threads, 0, np.zeros(1, "i8")) == 1
    dy = -targets / 2  # the derivative of a mean of 4 squares
    assert np.array_equal(grad[:28].reshape(7, 4), x.T @ dy) and np.array_equal(grad[28:], dy.sum(axis=0))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_each_step_has_a_divisor_of_its_own(dtype):
    """Values are integers, and divisors powers of 2, so results are exact."""
    rng, steps = np.random.default_rng(0), 3
    x, targets = (rng.integers(1, 5, (16 * steps, size)).astype(dtype) for size in (7, 4))
    loss = ElementwiseLossOp((4,), "mean_squared_error", dtype=dtype)
    plan = Plan([DenseOp((7,), 4, dtype), loss], [0, 0], has_loss=True)
    param, grad, losses = np.zeros(32, dtype), np.empty(32, dtype), np.empty(len(x), dtype)
    given = x, None, 16, targets, None, losses, None, np.array([1.0, 2.0, 8.0]), np.ones(steps)
    assert train(plan, *given, param, grad, None, 2, 0, np.zeros(1, "i8")) == steps
    dy = -targets[-16:] / 2  # the derivative of a mean of 4 squares
    assert np.array_equal(grad[:28].reshape(7, 4), x[-16:].T @ dy / 8)
    assert np.array_equal(grad[28:], dy.sum(axis=0) / 8)


@pytest.mark.parametrize("kind", [AdamUpdate, AdagradUpdate])
def test_steps_in_one_call_equal_single_steps(kind):
    """Each step uses its own step count, which bias corrections and decaying rates depend on."""
    options = {"lr_decay": 0.3} if kind is AdagradUpdate else {}
    ops = [DenseOp((IN,), OUT), SoftmaxCrossEntropyOp((OUT,))]
    together, apart = training(), training()
    for given in (together, apart):
        given["x"] = np.random.default_rng(0).standard_normal(given["x"].shape).astype("f4")
        given["update"] = kind(SIZE, "float32", **options)
    steps = len(together["lrs"])
    assert train(Plan(ops, [0, 0], True), **together) == steps
    by_position = ("rows", "losses", "scores", "example_ids")
    for k in range(steps):
        part = {name: apart[name][8 * k : 8 * k + 8] for name in by_position}
        one = apart | part | {name: apart[name][k : k + 1] for name in ("divisors", "lrs")}
        assert train(Plan(ops, [0, 0], True), **one) == 1
    for given in (together, apart):
        assert (given["step_counter"][0], given["update"].steps) == (steps, steps)
    for name in ("param", "grad", "losses", "scores"):
        assert together[name].tobytes() == apart[name].tobytes(), name
