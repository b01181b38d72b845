"""finite: an infinite or NaN gradient or loss, at any position and batch weight, stops a step before its update.

The net is a PReLU with slopes of zero: a huge negative input leaves score and loss finite and overflows only the
gradient of its slope. The flat buffer consists of these slopes, so that any of its positions can be made non-finite.
"""

import numpy as np
import pytest
from in_turn import in_turn
from plans import train

from minidl_c.kernels.prelu import PReLUOp
from minidl_c.losses.elementwise_losses import ElementwiseLossOp
from minidl_c.optimizers.sgd import SGDUpdate
from minidl_c.runtime.plan import Plan

NONFINITE = ("inf", "-inf", "nan")
WEIGHTS = (*range(1, 34), 63, 64, 65, 128, 200, 256, 1024, 0.5, 0.25, 0.375, 2.0**-20, 3.7)
each_dtype = pytest.mark.parametrize("dtype", ["float32", "float64"])


def step(dtype, batch, size, weight=None, place=None, nonfinite=None, target=0.0, threads=1):
    """Runs one step of `size` slopes with a non-finite gradient at `place`; returns (steps done, slopes, gradient)."""
    op = PReLUOp((size, 2), dtype=dtype)
    plan = Plan([op, ElementwiseLossOp((size * 2,), "mean_squared_error", dtype=dtype)], [0, 0], has_loss=True)
    x, targets = np.zeros((batch, size, 2), dtype), np.full((batch, size, 2), target, dtype)
    if place is not None:
        x[batch // 2, place] = -0.9 * np.finfo(dtype).max
        targets[batch // 2, place] = -1e12 if nonfinite == "-inf" else 1e12
    if nonfinite == "nan":  # opposite infinities of two examples
        x[0, place], targets[0, place] = x[batch // 2, place], -1e12
    param, grad, count = np.zeros(size, dtype), np.full(size, 7, dtype), np.zeros(1, "i8")
    totals = np.array([batch if weight is None else weight], "f8")
    losses, update = np.empty(batch, dtype), SGDUpdate(size, dtype)
    done = train(
        plan, x.reshape(batch, -1), None, batch, targets.reshape(batch, -1), None, losses, None, totals,
        np.full(1, 0.1), param, grad, update, threads, 0, count,
    )  # fmt: skip
    assert place is None or np.isfinite(losses).all()
    assert update.steps == count[0] == done
    return done, param, grad


def check_stopped(dtype, batch, size, weight=None, place=None, nonfinite=None, threads=1):
    done, param, grad = step(dtype, batch, size, weight, place, nonfinite, threads=threads)
    assert str(grad[place]) == nonfinite, f"the gradient at {place} is {grad[place]}"
    assert np.count_nonzero(np.isfinite(grad)) == size - 1
    where = f"{nonfinite} at {place} of {size}, batch {batch} of weight {weight}"
    assert (done, np.count_nonzero(param)) == (0, 0), where


@each_dtype
@pytest.mark.parametrize("nonfinite", NONFINITE)
@in_turn("batch", [*range(1, 36), 48, 60, 63, 64, 65, 100, 128, 200, 256, 300, 512])
def test_a_step_stops_for_any_batch_size(dtype, nonfinite, batch):
    assert step(dtype, batch, 21)[0] == 1
    for place in (0, 10, 20) if batch > 1 or nonfinite != "nan" else ():
        check_stopped(dtype, batch, 21, None, place, nonfinite, threads=1 + batch % 3)


@each_dtype
@in_turn("weight", WEIGHTS)
def test_a_step_stops_for_any_batch_weight(dtype, weight):
    for nonfinite in NONFINITE:
        check_stopped(dtype, 5, 3, weight, 1, nonfinite)


@each_dtype
@pytest.mark.parametrize("weight", [64, 60])
@pytest.mark.parametrize("size", [1, 2, 3, 15, 16, 17, 31, 33, 67, 129, 515])
def test_a_step_stops_for_any_position(dtype, weight, size):
    """Positions cover the ranges of all threads and the remainders of the vector loops."""
    for place in range(size):
        check_stopped(dtype, 2, size, weight, place, NONFINITE[place % 3])


@each_dtype
@pytest.mark.parametrize("weight", [0.25, 0.3])
def test_a_sum_that_overflows_when_divided_stops_the_step(dtype, weight):
    """The losses and the sum of the gradients are finite."""
    op, half = PReLUOp((3, 1), dtype=dtype), 0.5 * float(np.finfo(dtype).max)
    plan = Plan([op, ElementwiseLossOp((3,), "mean_absolute_error", dtype=dtype)], [0, 0], has_loss=True)
    x, param, grad, count = np.zeros((1, 3), dtype), np.zeros(3, dtype), np.empty(3, dtype), np.zeros(1, "i8")
    x[0, 2] = -half
    arguments = x, None, 1, np.ones((1, 3), dtype), None, np.empty(1, dtype), None
    for totals, done in ((1.0, 1), (weight / 2, 0)):
        assert train(plan, *arguments, np.array([totals]), np.ones(1), param, grad, None, 1, 0, count) == done
        assert np.isfinite(grad[2]) == (done == 1)


@each_dtype
@pytest.mark.parametrize("batch", [1, 15, 16, 17, 37, 64])
def test_an_infinite_loss_of_any_example_stops_the_step(dtype, batch):
    """The gradients are finite."""
    loss = ElementwiseLossOp((1,), "mean_squared_error", dtype=dtype)
    plan = Plan([PReLUOp((1,), dtype=dtype), loss], [0, 0], has_loss=True)
    for row in range(batch):
        targets = np.ones((batch, 1), dtype)
        targets[row] = 0.1 * np.finfo(dtype).max
        param, grad, losses = np.zeros(1, dtype), np.empty(1, dtype), np.empty(batch, dtype)
        done = train(
            plan, np.zeros((batch, 1), dtype), None, batch, targets, None, losses, None, np.full(1, float(batch)),
            np.ones(1), param, grad, SGDUpdate(1, dtype), 1, 0, np.zeros(1, "i8"),
        )  # fmt: skip
        assert list(np.flatnonzero(~np.isfinite(losses))) == [row]
        assert done == 0 and np.isfinite(grad).all()
