"""reduction: for every number of slots, a batch's gradient is the sum over its examples, each counted once.

Inputs, gradients and parameters are small integers, so that the sums of linear kernels are exact in any order and a
lost or repeated example is noticed. Norms divide, and are compared with their formulas within rounding.
"""

from functools import partial

import numpy as np
import pytest
import reference as ref
from in_turn import in_turn

from minidl_c.kernels.batchnorm import BatchNormOp
from minidl_c.kernels.batchnorm_statistics import BatchStatisticsOp
from minidl_c.kernels.conv2d import Conv2DOp
from minidl_c.kernels.conv_transpose2d import ConvTranspose2DOp
from minidl_c.kernels.dense import DenseOp
from minidl_c.kernels.depthwise_conv2d import DepthwiseConv2DOp
from minidl_c.kernels.embedding import EmbeddingOp
from minidl_c.kernels.groupnorm import GroupNormOp
from minidl_c.kernels.layernorm import LayerNormOp
from minidl_c.kernels.prelu import PReLUOp
from minidl_c.kernels.scale import ScaleOp
from minidl_c.runtime.per_example import batch_sum
from minidl_c.runtime.plan import Plan
from minidl_c.runtime.single_op import backward_batch

# Up to 16 slots of one tile, the last one full, nearly empty or in between; then slots of 1 or 2, 2, 2 or 3 tiles.
BATCHES = [n for slots in range(1, 17) for n in (16 * slots - 15, 16 * slots - 8, 16 * slots)] + [257, 400, 512, 600]
each_dtype = pytest.mark.parametrize("dtype", ["float32", "float64"])
each_batch = in_turn("n", BATCHES)


def whole(rng, shape, dtype):
    """Draws integers from 1 to 4, so that no two examples cancel."""
    return rng.integers(1, 5, shape).astype(dtype)


def dense(x, dy):
    return x.T @ dy, dy.sum(axis=0)


def conv2d(x, dy):
    """Returns dw and db of a 2 x 2 convolution without padding."""
    windows = np.lib.stride_tricks.sliding_window_view(x, (2, 2), axis=(2, 3))
    return np.einsum("nkhw,nchwrs->kcrs", dy, windows), dy.sum(axis=(0, 2, 3))


def depthwise(x, dy):
    windows = np.lib.stride_tricks.sliding_window_view(x, (2, 2), axis=(2, 3))
    return np.einsum("nchw,nchwrs->crs", dy, windows)[:, None], dy.sum(axis=(0, 2, 3))


def transposed(x, dy):
    """Returns dw and db of a transposed convolution."""
    windows = np.lib.stride_tricks.sliding_window_view(dy, (2, 2), axis=(2, 3))
    return np.einsum("nchw,nkhwrs->ckrs", x, windows), dy.sum(axis=(0, 2, 3))


def prelu(x, dy):
    """Returns the gradient of the slopes for negative inputs."""
    return ((x * dy).sum(axis=(0, 2)),)


def scale(x, dy):
    """Returns the gradients of factors and offsets."""
    return (x * dy).sum(axis=(0, 2)), dy.sum(axis=(0, 2))


def embedding(x, dy):
    """Returns the gradient of the vectors of 5 categories."""
    return (np.einsum("nic,ndi->cd", x[:, :, None] == np.arange(5), dy),)


LINEAR = {
    "dense": (partial(DenseOp, (3,), 5), dense, ((3, 5), (5,))),
    "dense, wide": (partial(DenseOp, (33,), 18), dense, ((33, 18), (18,))),
    "conv2d": (partial(Conv2DOp, (2, 4, 3), 3, (2, 2)), conv2d, ((3, 2, 2, 2), (3,))),
    "depthwise": (partial(DepthwiseConv2DOp, (3, 4, 3), (2, 2)), depthwise, ((3, 1, 2, 2), (3,))),
    "transposed": (partial(ConvTranspose2DOp, (2, 3, 2), 3, (2, 2)), transposed, None),
    "embedding": (partial(EmbeddingOp, (3,), 5, 18), embedding, ((5, 18),)),
    "prelu": (partial(PReLUOp, (5, 3)), prelu, ((5,),)),
    "scale": (partial(ScaleOp, (5, 3), True), scale, ((5,), (5,))),
}


@each_dtype
@pytest.mark.parametrize("kernel", LINEAR)
@each_batch
def test_linear_kernels_sum_every_example_once(check, kernel, dtype, n):
    make, formula, shapes = LINEAR[kernel]
    op, rng = make(dtype=dtype), np.random.default_rng(n)
    x, dy = whole(rng, (n, *op.in_shape), dtype), whole(rng, (n, *op.out_shape), dtype)
    x = -x if kernel == "prelu" else x
    expected = formula(x.astype("f8"), dy.astype("f8"))
    params = [np.ones(e.shape, dtype) for e in expected]
    assert shapes is None or [p.shape for p in params] == list(shapes)
    for threads in (1, 3):
        grads = [check.output(p.shape, dtype) for p in params]
        backward_batch(op, dy, x, np.empty_like(x), params, grads, threads)
        for got, e in zip(grads, expected, strict=True):
            check.equal(got, e, f"{kernel} {dtype} batch {n}, {threads} threads")


@each_dtype
@each_batch
def test_batch_sum_counts_every_example_once(check, dtype, n):
    for size in (1, 16, 19):
        rows, total = whole(np.random.default_rng(n), (n, size), dtype), check.output((size,), dtype)
        batch_sum(rows, total)
        check.equal(total, rows.sum(axis=0, dtype="f8"), f"batch {n}")


@each_dtype
@each_batch
def test_norms_sum_every_example_once(check, dtype, n):
    rng = np.random.default_rng(n)
    x, dy = (rng.standard_normal((n, 6, 4)).astype(dtype) for _ in range(2))
    for op, xhat in (
        (GroupNormOp((6, 4), 2, 6, dtype=dtype), ref.normalized(x, 2, 1e-5)[0]),
        (LayerNormOp((6, 4), 6, dtype=dtype), ref.pixels_normalized(x, 1e-5)[0]),
    ):
        grads = [check.output((6,), dtype) for _ in range(2)]
        backward_batch(op, dy, x, None, [np.ones(6, dtype), np.zeros(6, dtype)], grads)
        for got, terms in zip(grads, (dy * xhat, dy), strict=True):
            bound = 40 * np.finfo(dtype).eps * np.abs(terms).sum(axis=(0, 2))
            check.close(got, terms.sum(axis=(0, 2), dtype="f8"), bound, f"batch {n}")


@each_dtype
@each_batch
def test_batch_norm_sees_every_example_once(check, dtype, n):
    """Mean and variance combine the partial results of the slots, and the gradients are sums."""
    rng, arguments = np.random.default_rng(n), ((3, 2), 1e-5, 1.0, True, dtype)
    plan = Plan([BatchStatisticsOp(*arguments), BatchNormOp(*arguments)], [0, 0])
    x, dy = (rng.standard_normal((n, 3, 2)).astype(dtype) for _ in range(2))
    param = np.concatenate([np.ones(3), np.zeros(6), np.ones(3), [0]]).astype(dtype)
    grad, y = np.zeros_like(param), np.empty((n, 6), dtype)
    kept = plan.forward(x.reshape(n, 6), param, y)
    plan.backward(kept, dy.reshape(n, 6), None, param, grad)
    values = x.astype("f8")
    mean, variance = values.mean(axis=(0, 2)), values.var(axis=(0, 2))
    xhat = (values - mean[:, None]) / np.sqrt(variance + 1e-5)[:, None]
    eps = 100 * np.finfo(dtype).eps
    check.close(param[6:9], mean, eps, f"mean, batch {n}")
    check.close(param[9:12], variance * 2 * n / max(2 * n - 1, 1), eps * 10, f"variance, batch {n}")
    check.close(y, xhat.reshape(n, 6), eps * (1 + np.abs(xhat.reshape(n, 6))) * 20, f"y, batch {n}")
    for got, terms in ((grad[:3], dy * xhat), (grad[3:6], dy)):
        check.close(got, terms.sum(axis=(0, 2), dtype="f8"), eps * np.abs(terms).sum(axis=(0, 2)) * 4, f"batch {n}")
