"""Per-example gradients of every kernel with parameters: equal to batches of one, summed, and as norms."""

from functools import partial

import numpy as np
import pytest
from geometries import conv_cases, depthwise_cases, transposed_cases
from per_example_checks import check_alone, check_sums, examples_of, sum_of

from minidl_c.kernels.batchnorm import BatchNormOp
from minidl_c.kernels.conv2d import Conv2DOp
from minidl_c.kernels.conv_transpose2d import ConvTranspose2DOp
from minidl_c.kernels.dense import DenseOp
from minidl_c.kernels.depthwise_conv2d import DepthwiseConv2DOp
from minidl_c.kernels.groupnorm import GroupNormOp
from minidl_c.kernels.layernorm import LayerNormOp
from minidl_c.kernels.prelu import PReLUOp
from minidl_c.kernels.relu import ReLUOp
from minidl_c.kernels.scale import ScaleOp
from minidl_c.runtime.plan import Plan
from minidl_c.runtime.single_op import backward_batch


def convolutions(seed, count=6):
    for case in conv_cases(seed, count):
        weights = case.w_shape, (case.filters,)
        yield f"conv2d {case}", partial(Conv2DOp, case.x_shape[1:], case.filters, case.kernel, **case.options), weights
    for case in depthwise_cases(seed, count):
        window = (case.kernel, case.stride, case.padding, case.dilation, case.filters // case.channels)
        make = partial(DepthwiseConv2DOp, case.x_shape[1:], *window)
        yield f"depthwise {case}", make, (case.w_shape, (case.filters,))
    for case in transposed_cases(seed, count):
        make = partial(ConvTranspose2DOp, case.x_shape[1:], case.filters, case.kernel, **case.options)
        yield f"transposed {case}", make, (case.w_shape, (case.filters,))


def others():
    for inputs, outputs in ((1, 1), (3, 70), (33, 7), (64, 16), (65, 32)):
        yield f"dense {inputs} {outputs}", partial(DenseOp, (inputs,), outputs), ((inputs, outputs), (outputs,))
    yield "dense without bias", partial(DenseOp, (9,), 5, use_bias=False), ((9, 5),)
    yield "group norm", partial(GroupNormOp, (6, 4, 3), 2, 6), ((6,), (6,))
    yield "layer norm", partial(LayerNormOp, (36,), 36), ((36,), (36,))
    yield "layer norm over channels", partial(LayerNormOp, (6, 4, 5), 6), ((6,), (6,))
    yield "RMS norm", partial(LayerNormOp, (6, 4, 5), 6, 1e-5, False), ((6,),)
    yield "prelu", partial(PReLUOp, (5, 7)), ((5,),)
    yield "prelu, shared", partial(PReLUOp, (5, 7), True), ((1,),)
    yield "scale", partial(ScaleOp, (5, 7)), ((5,),)
    yield "scale, with bias", partial(ScaleOp, (5, 3, 7), True), ((5,), (5,))


def drawn(make, shapes, dtype, n, seed):
    rng = np.random.default_rng(seed)
    op = make(dtype=dtype)
    x, dy = (rng.standard_normal((n, *shape)).astype(dtype) for shape in (op.in_shape, op.out_shape))
    params = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    return op, dy, x, params


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", [1])
def test_per_example_gradients_equal_batches_of_one_and_sum_to_the_batch(dtype, seed):
    compared = 0
    for about, make, shapes in (*convolutions(seed), *others()):
        for n, threads in ((1, 1), (5, 3), (19, 2)):
            op, dy, x, params = drawn(make, shapes, dtype, n, seed)
            grads, dx = [np.empty_like(p) for p in params], np.empty_like(x)
            backward_batch(op, dy, x, dx, params, grads, threads)
            try:
                check_sums(op, dy, x, dx, params, grads, threads)
                check_alone(op, dy, x, params)
            except AssertionError as error:
                raise AssertionError(f"{about}, {n} examples: {error}") from error
            compared += 1
    assert compared > 70


@pytest.mark.parametrize("n", [1, 16, 17, 100, 256, 257, 700])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_dense_bias_is_summed_in_the_common_order(n, threads):
    """Norms and PReLU use the same order, also in slots of several tiles."""
    for make, shapes, which in (
        (partial(DenseOp, (3,), 21), ((3, 21), (21,)), 1),
        (partial(GroupNormOp, (6, 4, 3), 2, 6), ((6,), (6,)), 0),
        (partial(LayerNormOp, (6, 4, 5), 6), ((6,), (6,)), 0),
        (partial(PReLUOp, (5, 7)), ((5,),), 0),
        (partial(ScaleOp, (5, 7)), ((5,),), 0),
        (partial(Conv2DOp, (2, 5, 5), 3, (3, 3)), ((3, 2, 3, 3), (3,)), 0),
    ):
        op, dy, x, params = drawn(make, shapes, "float32", n, 3)
        grads = [np.empty_like(p) for p in params]
        backward_batch(op, dy, x, None, params, grads, threads)
        rows = examples_of(op, dy, x, None, params, threads)[which]
        assert np.array_equal(sum_of(rows), grads[which].reshape(-1))


def naive_batch_sum(rows):
    """Sums tiles of 16 by halving, runs of tiles into slots, and slots pairwise in a tree."""
    n = len(rows)
    tiles = -(-n // 16)
    padded = np.concatenate([rows, np.zeros((16 * tiles - n, *rows.shape[1:]), rows.dtype)])
    sums = []
    for tile in padded.reshape(tiles, 16, *rows.shape[1:]):
        while len(tile) > 1:
            tile = tile[: len(tile) // 2] + tile[len(tile) // 2 :]
        sums.append(tile[0])
    slots = min(tiles, 16)
    nodes = []
    for slot in range(slots):
        node = np.zeros_like(sums[0])
        for one in sums[tiles * slot // slots : tiles * (slot + 1) // slots]:
            node = node + one
        nodes.append(node)
    while len(nodes) > 1:
        pairs = [a + b for a, b in zip(nodes[::2], nodes[1::2], strict=False)]
        nodes = pairs + nodes[2 * len(pairs) :]
    return nodes[0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [*range(1, 36), 63, 64, 65, 200, 256, 257, 511, 1000])
def test_batch_sum_matches_the_naive_sum(dtype, n):
    rows = np.random.default_rng(n).standard_normal((n, 37)).astype(dtype)
    assert np.array_equal(sum_of(rows), naive_batch_sum(rows))


def test_batch_sum_of_no_examples_is_zero():
    assert np.array_equal(sum_of(np.empty((0, 3), "f4")), np.zeros(3))
    assert sum_of(np.empty((4, 0))).size == 0


def test_gradients_that_are_not_requested_are_not_computed():
    """Only the last layer's gradient is requested: backpropagation stops there, and no other gradient is written."""
    ops = [DenseOp((4,), 5), ReLUOp((5,)), DenseOp((5,), 3)]
    plan, rng = Plan(ops, [0, 0, 25]), np.random.default_rng(0)
    x, param = rng.standard_normal((20, 4)).astype("f4"), rng.standard_normal(43).astype("f4")
    dy, grad = rng.standard_normal((20, 3)).astype("f4"), np.full(43, 7, "f4")
    kept = plan.forward(x, param, np.empty((20, 3), "f4"), 2)
    rows = np.empty((20, 3), "f4")
    plan.backward_examples(kept, dy, None, param, [(40, 3, rows, None)])
    assert np.array_equal(rows, dy)
    plan.backward(kept, dy, None, param, grad)  # the same execution context then gives the sums
    assert np.array_equal(grad[40:], sum_of(rows))


def test_ops_declare_whether_they_have_per_example_gradients():
    assert all(make().has_per_example_grad for _, make, _ in (*convolutions(0), *others()))
    assert ReLUOp((3,)).has_per_example_grad
    assert not BatchNormOp((3, 2)).has_per_example_grad  # the gradient is defined for the whole batch only


def test_outputs_that_share_memory_are_refused():
    plan, x, param = Plan([DenseOp((4,), 3)], [0]), np.ones((20, 4), "f4"), np.ones(15, "f4")
    kept, dy, dx = plan.forward(x, param, np.empty((20, 3), "f4"), 2), np.ones((20, 3), "f4"), np.empty((20, 4), "f4")
    rows = np.empty((20, 12), "f4")
    for outputs in ([(12, 3, dy, None)], [(0, 12, rows, None), (12, 3, rows.reshape(-1)[:60].reshape(20, 3), None)]):
        with pytest.raises(ValueError, match="grads: expected memory of its own"):
            plan.backward_examples(kept, dy, dx, param, outputs)
    assert (dy == 1).all()


def test_offsets_that_are_not_parameters_are_refused():
    plan, x, param = Plan([DenseOp((4,), 3)], [2]), np.ones((20, 4), "f4"), np.ones(20, "f4")
    kept, dy = plan.forward(x, param, np.empty((20, 3), "f4"), 2), np.ones((20, 3), "f4")
    for place, size in ((0, 12), (2, 16), (3, 3), (2, 4), (2, 0), (2, -3), (-1, 3), (17, 3), (2**62, 3), (2, 2**62)):
        with pytest.raises(ValueError, match=r"outputs: (expected parameters of a trained op|offset and size)"):
            rows = np.empty((20, max(min(size, 99), 0)), "f4")
            plan.backward_examples(kept, dy, None, param, [(place, size, rows, None)])
    frozen = Plan([DenseOp((4,), 3)], [0], frozen=[True])
    kept = frozen.forward(x, param, np.empty((20, 3), "f4"), 2)
    with pytest.raises(ValueError, match="expected parameters of a trained op"):
        frozen.backward_examples(kept, dy, None, param, [(0, 12, np.empty((20, 12), "f4"), None)])
