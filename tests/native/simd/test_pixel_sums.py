"""pixel_sums: sums over pixels have one order in every op and layout, and an error that hardly grows with the image."""

from functools import partial

import numpy as np
import pytest
from per_example_checks import check_alone, sum_of

from minidl_c.kernels.batchnorm import BatchNormOp
from minidl_c.kernels.batchnorm_statistics import BatchStatisticsOp
from minidl_c.kernels.conv2d import Conv2DOp
from minidl_c.kernels.conv_transpose2d import ConvTranspose2DOp
from minidl_c.kernels.depthwise_conv2d import DepthwiseConv2DOp
from minidl_c.kernels.groupnorm import GroupNormOp
from minidl_c.kernels.prelu import PReLUOp
from minidl_c.kernels.scale import ScaleOp
from minidl_c.runtime.plan import Plan
from minidl_c.runtime.single_op import backward_batch

C = 3  # channels
OPS = {  # and the shapes of their parameters; the gradient of the last one is the sum of dy, or of x dy
    "conv2d": (partial(Conv2DOp, filters=C, kernel_size=(1, 1)), [(C, C, 1, 1), (C,)]),
    "conv_transpose2d": (partial(ConvTranspose2DOp, filters=C, kernel_size=(1, 1)), [(C, C, 1, 1), (C,)]),
    "depthwise_conv2d": (partial(DepthwiseConv2DOp, kernel_size=(1, 1)), [(C, 1, 1, 1), (C,)]),
    "groupnorm": (partial(GroupNormOp, groups=1, channels=C), [(C,), (C,)]),
    "prelu": (PReLUOp, [(C,)]),
    "prelu, shared": (partial(PReLUOp, shared=True), [(1,)]),
    "scale": (ScaleOp, [(C,)]),
    "scale, with bias": (partial(ScaleOp, use_bias=True), [(C,), (C,)]),
}
PRODUCTS = ("prelu", "prelu, shared", "scale")  # sums of x dy
IMAGES = [(1, 1), (1, 3), (5, 1), (16, 8), (129, 1), (23, 29), (33, 32), (45, 46)]  # up to 17 runs of 128 pixels


def pixel_sum(terms):
    """Sums the last axis: in runs of 128 pixels, each of four chains; the runs in pairs."""
    nodes = []
    for run in np.split(terms, range(128, terms.shape[-1], 128), axis=-1):
        chains = [np.add.accumulate(run[..., k::4], axis=-1)[..., -1:].sum(-1) for k in range(4)]  # 0 if it is empty
        nodes.append((chains[0] + chains[1]) + (chains[2] + chains[3]))
    while len(nodes) > 1:
        pairs = [a + b for a, b in zip(nodes[::2], nodes[1::2], strict=False)]
        nodes = pairs + nodes[2 * len(pairs) :]
    return nodes[0]


def run(name, x, dy):
    make, shapes = OPS[name]
    params = [np.ones(shape, x.dtype) for shape in shapes]
    grads = [np.empty_like(p) for p in params]
    op = make(x.shape[1:], dtype=x.dtype.name)
    backward_batch(op, dy, x, None, params, grads)
    return op, params, grads[-1]


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_order_is_the_same_in_all_ops(name, dtype):
    """Few examples and a full tile: convolutions have a kernel for each."""
    rng, (*_, shape) = np.random.default_rng(1), OPS[name][1]
    for image in IMAGES:
        for n in (1, 3, 17):
            dy = rng.standard_normal((n, C, *image)).astype(dtype)
            x = np.full_like(dy, -1)  # so that products are exact
            op, params, grad = run(name, x, dy)
            terms = (-dy if name in PRODUCTS else dy).reshape(n, *shape, -1)
            assert grad.tobytes() == sum_of(pixel_sum(terms)).tobytes(), (image, n)
            check_alone(op, dy, x, params)


def test_the_order_in_batch_norm():
    for image in IMAGES[1:]:
        ops = [op((C, *image)) for op in (BatchStatisticsOp, BatchNormOp)]
        plan, rng = Plan(ops, [0, 0]), np.random.default_rng(2)
        param = np.ones(4 * C + 1, "f4")
        x, dy = (rng.standard_normal((1, C * image[0] * image[1]), "f4") for _ in range(2))
        grad, y = np.zeros_like(param), np.empty_like(x)
        plan.backward(plan.forward(x, param, y), dy, None, param, grad)
        assert grad[C : 2 * C].tobytes() == pixel_sum(dy.reshape(C, -1)).tobytes(), image


@pytest.mark.parametrize("name", OPS)
def test_the_error_of_a_large_image_is_a_few_roundings(name):
    """One chain of as many terms of one sign is off by ten times as much."""
    rng, size = np.random.default_rng(3), 300
    dy, x = rng.random((1, C, size, size), "f4"), np.full((1, C, size, size), -1, "f4")
    exact = dy.astype("f8").reshape(*OPS[name][1][-1], -1).sum(-1)
    np.testing.assert_allclose(np.abs(run(name, x, dy)[-1]), exact, rtol=4 * np.finfo("f4").eps)
