"""What a plan makes of its ops: a ReLU that the op behind it does on its way gives the bits of the two alone."""

import numpy as np
import pytest
from geometries import pool_cases

from minidl_c.batch import backward_batch, forward_batch
from minidl_c.maxpool2d import MaxPool2DOp, maxpool2d_backward, maxpool2d_forward
from minidl_c.plan import Plan
from minidl_c.relu import ReLUOp

NOTHING = np.empty(0, "f4")


def numbers(rng, shape):
    """Ties, both zeros, NaN and infinities."""
    return rng.choice(np.array([-np.inf, np.nan, 0, -0.0, 1, 1, -1, np.inf], "f4"), shape)


def relu_then_pool(case, x, dy):
    """The two kernels one after the other: y and dx."""
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
def test_relu_in_front_of_a_pool(seed):
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


def test_a_relu_stays_where_nothing_is_behind_it_that_could_do_it():
    x, shape = numbers(np.random.default_rng(0), (5, 1, 4, 4)), (1, 4, 4)
    plan, y = Plan([MaxPool2DOp(shape, (2, 2), (2, 2)), ReLUOp((1, 2, 2))], [0, 0]), np.empty((5, 4), "f4")
    plan.predict(x.reshape(5, -1), np.arange(5), NOTHING, y, 1)
    pooled = np.empty((5, 1, 2, 2), "f4")
    maxpool2d_forward(x, pooled, (2, 2), (2, 2))
    forward_batch(ReLUOp((1, 2, 2)), pooled, expected := np.empty_like(pooled))
    assert y.tobytes() == expected.tobytes()
