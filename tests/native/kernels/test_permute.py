"""permute and columns: only copies, so that every result has the bits of NumPy's."""

import numpy as np
import pytest

from minidl_c.kernels.columns import ColumnsOp
from minidl_c.kernels.permute import ChannelShuffleOp, PermuteOp
from minidl_c.runtime.single_op import backward_batch, forward_batch

SPECIAL = (-np.inf, -0.0, 0.0, np.inf, np.nan, 3e38)


def check_moves(check, op, forward, backward, n, rng):
    """Compares an op with functions of arrays that move the same numbers."""
    x, dy = (
        check.input(rng.choice([*SPECIAL, *rng.standard_normal(9)], (n, *shape)), op.dtype)
        for shape in (op.in_shape, op.out_shape)
    )
    for threads in (1, 2, 3, 8):
        y, dx = check.output((n, *op.out_shape), op.dtype), check.output((n, *op.in_shape), op.dtype)
        forward_batch(op, x, y, num_threads=threads)
        backward_batch(op, dy, x, dx, num_threads=threads)
        check.same_bits(y, forward(x), f"y, {threads} threads")
        check.same_bits(dx, backward(dy), f"dx, {threads} threads")


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 33])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_permute(check, dtype, n):
    rng = np.random.default_rng(n)
    for axes in [(0,), (1, 0), (2, 0, 1), (0, 2, 1), (1, 2, 0), (3, 1, 0, 2), (0, 1, 2, 3, 4, 5, 7, 6)]:
        shape = tuple(int(v) for v in rng.integers(1, 6 if len(axes) < 8 else 3, len(axes)))
        order = (0, *(axis + 1 for axis in axes))
        inverse = np.argsort(order)
        op = PermuteOp(shape, axes, dtype)
        assert op.out_shape == tuple(shape[axis] for axis in axes)
        check_moves(check, op, lambda x, o=order: x.transpose(o), lambda dy, o=inverse: dy.transpose(o), n, rng)


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 33])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_channel_shuffle(check, dtype, n):
    rng = np.random.default_rng(n)
    for groups, shape in [(1, (3,)), (2, (58, 3, 2)), (3, (6, 4)), (4, (4, 2, 5)), (29, (58, 1, 1))]:
        new = np.arange(shape[0]).reshape(groups, -1).T.ravel()
        op = ChannelShuffleOp(shape, groups, dtype)
        old = np.argsort(new)
        check_moves(check, op, lambda x, i=new: x[:, i], lambda dy, i=old: dy[:, i], n, rng)


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 33])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_columns(check, dtype, n):
    rng = np.random.default_rng(n)
    for start, stop, shape in [(0, 1, (1,)), (2, 5, (9,)), (16, 48, (64, 2, 3)), (29, 58, (58, 3, 2)), (0, 7, (20, 4))]:
        rest = ((0, 0), (start, shape[0] - stop), *[(0, 0)] * (len(shape) - 1))
        op = ColumnsOp(shape, start, stop, dtype)
        check_moves(check, op, lambda x, a=start, b=stop: x[:, a:b], lambda dy, r=rest: np.pad(dy, r), n, rng)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PermuteOp((2, 3), (0, 2)), "axes: expected a permutation of the axes 0 to 1"),
        (lambda: PermuteOp((2, 3), (1,)), "axes: expected 2 whole numbers"),
        (lambda: PermuteOp((1,) * 9, tuple(range(9))), "at most 8"),
        (lambda: ChannelShuffleOp((5, 2), 2), "groups: expected a divisor of 5 channels, got 2"),
        (lambda: ChannelShuffleOp((4, 2), 0), "groups: expected numbers from 1"),
        (lambda: ColumnsOp((4,), 2, 2), "start, stop, step: expected a range of columns from 0 to 3, got 2, 2, 1"),
        (lambda: ColumnsOp((4,), 2, 5), "start, stop, step: expected a range of columns from 0 to 3, got 2, 5, 1"),
        (lambda: ColumnsOp((4,), -1, 2), "start, axis: expected numbers from 0"),
        (lambda: ColumnsOp((4, 2), 0, 2, "float16"), "dtype"),
    ],
)
def test_invalid_arguments_are_refused(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()
