"""Checks of an op's per-example gradients against the batch gradient and against batches of one example."""

import numpy as np

from minidl_c.kernels.dense import DenseOp
from minidl_c.kernels.embedding import EmbeddingOp
from minidl_c.runtime.per_example import batch_sum
from minidl_c.runtime.plan import Plan
from minidl_c.runtime.single_op import backward_batch


def examples_of(op, dy, x, dx, params, threads=1, norms=False):
    """Returns the gradients (n, size) of each parameter and, with `norms`, their squared norms. Writes dx."""
    n, dtype = len(x), x.dtype
    first = params[0] if op.weight_order is None else params[0].transpose(op.weight_order)
    flat = np.concatenate([p.reshape(-1) for p in (first, *params[1:])])
    plan, starts = Plan([op], [0]), np.cumsum([0] + [p.size for p in params])
    grads = [np.full((n, p.size), 7, dtype) for p in params]
    squares = [np.full(n, 7.0) if norms else None for _ in params]
    outputs = [(int(start), p.size, g, s) for start, p, g, s in zip(starts, params, grads, squares, strict=False)]
    kept = plan.forward(x.reshape(n, -1), flat, np.empty((n, dy[0].size), dtype), threads)
    plan.backward_examples(kept, dy.reshape(n, -1), None if dx is None else dx.reshape(n, -1), flat, outputs)
    if op.weight_order is not None:
        back = (0, *(1 + axis for axis in np.argsort(op.weight_order)))
        grads[0] = grads[0].reshape(n, *first.shape).transpose(back).reshape(n, -1)
    return (grads, squares) if norms else grads


def sum_of(rows):
    total = np.empty(rows.shape[1], rows.dtype)
    batch_sum(rows, total)
    return total


def check_sums(op, dy, x, dx, params, grads, threads):
    """Checks that per-example gradients sum to the batch's; dx must be equal.

    The sums are bit for bit equal except for weights of dense layers and embeddings.
    """
    if not len(x):
        return
    result = np.full_like(dx, 7)
    for i, (rows, grad) in enumerate(zip(examples_of(op, dy, x, result, params, threads), grads, strict=True)):
        total = sum_of(rows).reshape(grad.shape)
        if i > 0 or not isinstance(op, (DenseOp, EmbeddingOp)):
            assert np.array_equal(total, grad, equal_nan=True), "examples do not add up to the batch"
        elif np.isfinite(grad).all():
            size = np.abs(rows).sum(axis=0).reshape(grad.shape)
            assert (np.abs(total - grad) <= 100 * np.finfo(x.dtype).eps * size).all(), "examples do not add up"
    assert np.array_equal(result, dx, equal_nan=True), "dx differs when per-example gradients are computed"


def check_alone(op, dy, x, params):
    """Checks that each example's gradient has the bits of a batch of one, and that its norm agrees to rounding."""
    grads, squares = examples_of(op, dy, x, None, params, norms=True)
    for i in range(len(x)):
        alone = [np.empty_like(p) for p in params]
        backward_batch(op, dy[i : i + 1], x[i : i + 1], None, params, alone)
        for rows, one, square in zip(grads, alone, squares, strict=True):
            assert rows[i].tobytes() == one.tobytes(), f"example {i} alone has a different gradient"  # -0 is not 0
            assert np.isclose(square[i], np.square(one, dtype="f8").sum(), 1e-5 if x.dtype == "f4" else 1e-13, 0)
