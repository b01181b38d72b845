"""single_op: calling an op on its own has the bits of its dedicated functions, and checks every argument."""

import numpy as np
import pytest

from minidl_c.functional import conv2d_backward, conv2d_forward
from minidl_c.kernels.conv2d import Conv2DOp
from minidl_c.kernels.dropout import DropoutOp
from minidl_c.losses.softmax_cross_entropy import SoftmaxCrossEntropyOp
from minidl_c.op import Op
from minidl_c.runtime.plan import Plan
from minidl_c.runtime.single_op import backward_batch, forward_batch

SHAPE, OUT = (3, 6, 5), (4, 4, 3)


def op(dtype="float32"):
    return Conv2DOp(SHAPE, 4, (3, 3), dtype=dtype)


def arrays(n, dtype="float32"):
    """Returns x, dy, w and b."""
    rng = np.random.default_rng(n)
    return [rng.standard_normal(shape).astype(dtype) for shape in ((n, *SHAPE), (n, *OUT), (4, 3, 3, 3), (4,))]


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 33])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_matches_the_functions_of_the_kernel(check, dtype, n):
    x, dy, w, b = arrays(n, dtype)
    shapes = (dy.shape, x.shape, w.shape, b.shape)
    y, dx, dw, db = (check.output(shape, dtype) for shape in shapes)
    expected_y, expected_dx, expected_dw, expected_db = (np.empty(shape, dtype) for shape in shapes)
    conv2d_forward(x, w, b, expected_y)
    conv2d_backward(dy, x, w, expected_dx, expected_dw, expected_db)
    forward_batch(op(dtype), x, y, (w, b), num_threads=2)
    backward_batch(op(dtype), dy, x, dx, (w, b), (dw, db), num_threads=2)
    for name, a, e in (("y", y, expected_y), ("dx", dx, expected_dx), ("dw", dw, expected_dw), ("db", db, expected_db)):
        check.same_bits(a, e, name)
    again = check.output(w.shape, dtype)
    backward_batch(op(dtype), dy, x, None, (w, b), (again, db))
    check.same_bits(again, expected_dw, "dw without dx")


def test_random_numbers_match_those_of_a_plan(check):
    x, numbers, nothing = np.ones((40, 7), "f4"), np.arange(40)[::-1].copy(), np.empty(0, "f4")
    op = DropoutOp((7,), 0.5)
    for seed, step, given in ((0, 0, None), (3, 5, numbers)):
        y, dx, expected, expected_dx = (np.empty_like(x) for _ in range(4))
        options = {"seed": seed, "step": step, "example_ids": given}
        forward_batch(op, x, y, training=True, **options)
        backward_batch(op, x, x, dx, **options)
        plan = Plan([op], [0])
        plan.backward(plan.forward(x, nothing, expected, 1, seed, step, given), x, expected_dx, nothing, nothing)
        check.same_bits(y, expected, "y")
        check.same_bits(dx, expected_dx, "dx")
        assert 0 < np.sum(y == 0) < y.size
    forward_batch(op, x, y)
    check.same_bits(y, x, "y in inference")


def valid_call(check, kernel):
    x, dy, w, b = arrays(17)
    if kernel == "forward":
        return check.call(
            lambda weight, bias, **rest: forward_batch(op(), params=(weight, bias), **rest),
            ("y",), x=x, y=dy, weight=w, bias=b,
        )  # fmt: skip
    return check.call(
        lambda weight, bias, dw, db, **rest: backward_batch(op(), params=(weight, bias), grads=(dw, db), **rest),
        ("dx", "dw", "db"), dy=dy, x=x, weight=w, bias=b, dx=x.copy(), dw=w.copy(), db=b.copy(),
    )  # fmt: skip


ARRAYS = [*(("forward", n) for n in ("x", "y")), *(("backward", n) for n in ("dy", "x", "dx"))]
PARAMETERS = [*(("forward", n) for n in ("weight", "bias")), *(("backward", n) for n in ("weight", "bias", "dw", "db"))]


@pytest.mark.parametrize(("kernel", "name"), ARRAYS)
def test_invalid_shapes_are_refused(check, kernel, name):
    call = valid_call(check, kernel)
    array = call.arguments[name]
    for axis, length in enumerate(array.shape):
        for size in (0, length - 1, length + 1):
            shape = (*array.shape[:axis], size, *array.shape[axis + 1 :])
            check.refused(call, {name: np.ones(shape, "f4")}, match=r"\b(x|y|dx|dy)\b: expected")
    check.refused(call, {name: array.reshape(17, -1)}, match=rf"{name}: expected shape")


@pytest.mark.parametrize(("kernel", "name"), ARRAYS + PARAMETERS)
def test_invalid_arrays_are_refused(check, kernel, name):
    check.refuses_invalid_arrays(valid_call(check, kernel), name, optional=name == "dx")


@pytest.mark.parametrize(("kernel", "name"), PARAMETERS)
def test_a_wrong_number_of_parameters_is_refused(check, kernel, name):
    message = r"params: expected 112 numbers" if name in ("weight", "bias") else r"grads: expected 112 numbers"
    for size in (0, 1, 113):
        check.refused(valid_call(check, kernel), {name: np.ones(size, "f4")}, match=message)


@pytest.mark.parametrize("kernel", ["forward", "backward"])
@pytest.mark.parametrize("threads", [0, -1, 1.5, "2"])
def test_invalid_thread_counts_are_refused(check, kernel, threads):
    check.refused(valid_call(check, kernel), {"num_threads": threads})


@pytest.mark.parametrize("wrong", [None, 3, "relu", Op(), SoftmaxCrossEntropyOp((3,))])
def test_objects_other_than_layer_ops_are_refused(wrong):
    x = np.ones((5, 3), "f4")
    with pytest.raises((TypeError, ValueError)):
        forward_batch(wrong, x, x.copy())
    with pytest.raises((TypeError, ValueError)):
        backward_batch(wrong, x.copy(), x, x.copy())


def test_too_many_arrays_are_refused():
    x, dy, *_ = arrays(5)
    pieces = [np.ones(1, "f4")] * 112
    with pytest.raises(ValueError, match=r"params\[22\]: expected at most 24 arrays"):
        forward_batch(op(), x, dy, pieces)


def test_overlapping_arrays_are_refused():
    x, dy, w, b = arrays(5)
    with pytest.raises(ValueError, match=r"dx: expected memory of its own, .* belongs to x"):
        backward_batch(op(), dy, x, x, (w, b), (w.copy(), b.copy()))
    with pytest.raises(ValueError, match=r"grads\[0\]: expected memory of its own, .* belongs to params\[0\]"):
        backward_batch(op(), dy, x, x.copy(), (w, b), (w, b.copy()))
