"""Kernels compared with their counterparts in PyTorch, over random geometries."""

import numpy as np
import pytest
import reference as ref
from geometries import conv_cases, pool_cases

from minidl_c.functional import (
    conv2d_backward,
    conv2d_forward,
    dense_backward,
    dense_forward,
    maxpool2d_backward,
    maxpool2d_forward,
)
from minidl_c.kernels.avgpool2d import AvgPool2DOp
from minidl_c.kernels.maxpool2d import MaxPool2DOp
from minidl_c.kernels.relu import ReLUOp
from minidl_c.losses.softmax_cross_entropy import SoftmaxCrossEntropyOp
from minidl_c.runtime.single_op import backward_batch, forward_batch, loss_batch

torch = pytest.importorskip("torch")
functional = torch.nn.functional
pytestmark = pytest.mark.oracle
DTYPES = ("float32", "float64")


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Limits PyTorch to one thread: its idle threads spin between small calls and slow down other processes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def leaf(array):
    return torch.tensor(array, dtype=torch.float64, requires_grad=True)


def numbers(*tensors):
    return [tensor.detach().numpy() for tensor in tensors]


def outputs(check, dtype, *shapes):
    return [check.output(tuple(shape), dtype) for shape in shapes]


def torch_conv2d(values, case):
    """Returns PyTorch's y, dx, dw and db in float64."""
    x, w, b, dy = (leaf(v) for v in values)
    top, bottom, left, right = case.padding
    padded = functional.pad(x, (left, right, top, bottom))
    y = functional.conv2d(padded, w, b, case.stride, 0, case.dilation, case.groups)
    y.backward(dy.detach())
    return numbers(y, x.grad, w.grad, b.grad)


@pytest.mark.parametrize("seed", range(100, 110))
def test_conv2d(check, seed):
    rng = np.random.default_rng(seed)
    for case in conv_cases(seed, 56):
        shapes = (case.x_shape, case.w_shape, (case.filters,), case.y_shape)
        values = [rng.standard_normal(shape, "f4") for shape in shapes]
        exact = torch_conv2d(values, case)
        size = torch_conv2d([np.abs(v) for v in values], case)
        pixels = int(np.prod(case.y_shape)) // case.filters
        terms = (case.terms + 1, case.terms * case.filters, pixels, pixels)
        for dtype in DTYPES:
            x, w, b, dy = (check.input(v, dtype) for v in values)
            y, dx, dw, db = got = outputs(check, dtype, dy.shape, *shapes[:3])
            conv2d_forward(x, w, b, y, **case.options)
            conv2d_backward(dy, x, w, dx, dw, db, **case.options)
            names = ("y", "dx", "dw", "db")
            for name, a, e, s, n in zip(names, got, exact, size, terms, strict=True):
                check.close(a, e, ref.rounding(n, dtype) * s, f"{name} {dtype} {case}")
            check.count("conv2d beside PyTorch", dtype)


def is_torchs(case):
    """Whether PyTorch has this pooling: its padding is the same on both sides."""
    return all(before == after for before, after in case.sides)


@pytest.mark.parametrize("content", ["normal", "ties", "-inf", "one nan"])
@pytest.mark.parametrize("seed", range(100, 103))
def test_maxpool2d(check, seed, content):
    """With at most one NaN per image: of several in a window PyTorch takes the last, minidl the first."""
    rng = np.random.default_rng(seed)
    for case in filter(is_torchs, pool_cases(seed, 64)):
        x = rng.integers(-2, 3, case.x_shape).astype("f4")
        if content == "normal":
            x = rng.standard_normal(case.x_shape, "f4")
        elif content == "-inf":
            x[rng.random(x.shape) < 0.8] = -np.inf
        elif content == "one nan":
            x[:, :, rng.integers(case.height), rng.integers(case.width)] = np.nan
        dy = rng.integers(-9, 10, case.y_shape).astype("f4")  # exact sums
        tx = leaf(x)
        options = (case.kernel, case.stride, tuple(before for before, _ in case.sides))
        ty = functional.max_pool2d(tx, *options, case.dilation, case.ceil_mode)
        ty.backward(torch.tensor(dy, dtype=torch.float64))
        for dtype in DTYPES:
            y, dx = outputs(check, dtype, ty.shape, x.shape)
            maxpool2d_forward(x.astype(dtype), y, **case.options)
            maxpool2d_backward(dy.astype(dtype), x.astype(dtype), dx, **case.options)
            check.equal(y, *numbers(ty), f"y {dtype} {content} {case}")
            check.equal(dx, *numbers(tx.grad), f"dx {dtype} {content} {case}")
            check.count("maxpool2d beside PyTorch", dtype)


@pytest.mark.parametrize("count", [True, False])
@pytest.mark.parametrize("seed", range(100, 103))
def test_avgpool2d(check, seed, count):
    rng = np.random.default_rng(seed)
    for case in filter(is_torchs, pool_cases(seed, 84)):
        if case.dilation != (1, 1):
            continue
        x, dy = (rng.integers(-9, 10, shape).astype("f4") for shape in (case.x_shape, case.y_shape))
        tx = leaf(x)
        ty = functional.avg_pool2d(
            tx, case.kernel, case.stride, tuple(before for before, _ in case.sides), case.ceil_mode, count
        )
        ty.backward(torch.tensor(dy, dtype=torch.float64))
        for dtype in DTYPES:
            op = AvgPool2DOp(case.x_shape[1:], **case.options, count_include_pad=count, dtype=dtype)
            y, dx = outputs(check, dtype, ty.shape, x.shape)
            forward_batch(op, x.astype(dtype), y)
            backward_batch(op, dy.astype(dtype), x.astype(dtype), dx)
            bound = 500 * np.finfo(dtype).eps
            check.close(y, *numbers(ty), bound, f"y {dtype} {case}")
            check.close(dx, *numbers(tx.grad), 9 * bound, f"dx {dtype} {case}")
            check.count("avgpool2d beside PyTorch", dtype)


@pytest.mark.parametrize("size", range(1, 7))
@pytest.mark.parametrize("stride", range(1, 7))
def test_pools_of_every_size_in_ceil_mode(stride, size):
    """Both have the same number of windows, or both refuse the geometry."""
    for kernel in range(1, 13):
        for padding in range(kernel // 2 + 1):
            window = (kernel, 1), (stride, 1), (padding, 0)
            try:
                pooled = functional.max_pool2d(torch.zeros(1, 1, size, 1), *window, ceil_mode=True)
            except RuntimeError:
                with pytest.raises(ValueError, match="does not fit"):
                    MaxPool2DOp((1, size, 1), *window, True)
                continue
            assert MaxPool2DOp((1, size, 1), *window, True).out_shape == tuple(pooled.shape[1:]), (size, window)


@pytest.mark.parametrize("seed", range(100, 105))
def test_dense(check, seed):
    rng = np.random.default_rng(seed)
    for _ in range(20):
        n, inputs, classes = (int(v) for v in rng.integers(1, 90, 3))
        shapes = (n, inputs), (inputs, classes), (classes,), (n, classes)
        values = [rng.standard_normal(shape, "f4") for shape in shapes]
        results = []
        for arrays in (values, [np.abs(v) for v in values]):
            x, w, b, dy = (leaf(v) for v in arrays)
            result = functional.linear(x, w.T, b)
            result.backward(dy.detach())
            results.append(numbers(result, x.grad, w.grad, b.grad))
        for dtype in DTYPES:
            x, w, b, dy = (v.astype(dtype) for v in values)
            y, dx, dw, db = got = outputs(check, dtype, dy.shape, *shapes[:3])
            dense_forward(x, w, b, y)
            dense_backward(dy, x, w, dx, dw, db)
            terms = zip(("y", "dx", "dw", "db"), (inputs + 1, classes, n, n), strict=True)
            for (name, count), a, e, s in zip(terms, got, *results, strict=True):
                check.close(a, e, ref.rounding(count, dtype) * s, f"{name} {dtype} {shapes}")
            check.count("dense beside PyTorch", dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_relu(check, dtype):
    rng = np.random.default_rng(0)
    x = rng.choice([-np.inf, -1, -0.0, 0, 1, np.inf], (33, 50)).astype(dtype)
    dy, tx = rng.standard_normal(x.shape), leaf(x)
    ty = functional.relu(tx)
    ty.backward(torch.tensor(dy))
    y, dx = outputs(check, dtype, x.shape, x.shape)
    op = ReLUOp(x.shape[1:], dtype)
    forward_batch(op, x, y)
    backward_batch(op, dy.astype(dtype), x, dx)
    check.equal(y, *numbers(ty), "y")
    check.equal(dx, *numbers(tx.grad.to(getattr(torch, dtype))), "dx")


@pytest.mark.parametrize("classes", [1, 2, 10, 100])
@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax_cross_entropy(check, dtype, classes):
    rng = np.random.default_rng(classes)
    scores = (rng.standard_normal((49, classes)) * 4).astype("f4")
    labels, weights = rng.integers(0, classes, 49), rng.random(49, "f4")
    tscores = leaf(scores)
    tlosses = functional.cross_entropy(tscores, torch.tensor(labels), reduction="none")
    (tlosses * torch.tensor(weights)).sum().backward()
    losses, dscores = outputs(check, dtype, (49,), scores.shape)
    op = SoftmaxCrossEntropyOp((classes,), dtype=dtype)
    loss_batch(op, scores.astype(dtype), labels, losses, dscores, weights.astype(dtype))
    assert np.ptp(scores, axis=1).max() < 40  # see bounds() in test_softmax_cross_entropy.py
    bound = ref.rounding(44 + 5 * np.log(classes) + 3 * 40 + classes, dtype)
    check.close(losses, *numbers(tlosses), bound, "losses")
    check.close(dscores, *numbers(tscores.grad), bound, "dscores")
