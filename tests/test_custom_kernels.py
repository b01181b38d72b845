"""Custom kernels, built outside the tree and run inside plans next to built-in ones.

They use what no built-in layer does: forks (skip, dskip), cuts with rows in both directions, sums in forward.
Every plan is compared with the same formulas in NumPy, whose derivatives are complex steps, exact to rounding.
"""

import numpy as np
import pytest
from plans import train

from minidl import Layer, Sequential, Trainer
from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, ReLU
from minidl.optimizers import SGD
from minidl.testing import check_layer
from minidl_c.kernels.conv2d import Conv2DOp
from minidl_c.kernels.dense import DenseOp
from minidl_c.kernels.flatten import FlattenOp
from minidl_c.kernels.relu import ReLUOp
from minidl_c.losses.softmax_cross_entropy import SoftmaxCrossEntropyOp
from minidl_c.optimizers.sgd import SGDUpdate
from minidl_c.runtime.plan import Plan
from minidl_c.runtime.single_op import loss_batch

THREADS = (1, 2, 3, 8)
BATCHES = (5, 16, 40, 200, 300)  # 1 to 19 tiles: fewer than threads, as many, more than slots
SHAPE, WIDE, CLASSES = (2, 4, 4), (3, 4, 4), 4
SIZE = 3 * 4 * 4


# ---- the same formulas in NumPy, also for complex numbers ----------------------------------------
def conv(x, take, filters, size):
    """A convolution with zero padding that keeps the image size."""
    w, b = take(x.shape[1], size, size, filters), take(filters)  # as the kernel stores it
    padded = np.pad(x, ((0, 0), (0, 0), *[(size // 2, size // 2)] * 2))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), axis=(2, 3))
    return np.einsum("nchwrs,crsk->nkhw", windows, w) + b[:, None, None]


def relu(x):
    return np.where(x.real > 0, x, 0)


def swish(x):
    return x / (1 + np.exp(-x))


def norm(x, take):
    gain, shift = np.moveaxis(take(x.shape[1], 2), 1, 0)
    away = x - x.mean((0, 2, 3), keepdims=True)
    xhat = away / np.sqrt((away**2).mean((0, 2, 3), keepdims=True) + 1e-5)
    return xhat * gain[:, None, None] + shift[:, None, None]


def dense(x, take, units):
    x = x.reshape(len(x), -1)
    return x @ take(x.shape[1], units) + take(units)


# ---- the plans: a function that makes the ops (op k writes value k + 1), and its formula ---------
def conv_op(in_shape, dtype, size=3):
    return Conv2DOp(in_shape, WIDE[0], (size, size), padding=(size // 2,) * 4, dtype=dtype)


def tail(dtype):
    return [FlattenOp(WIDE, dtype), DenseOp((SIZE,), CLASSES, dtype)]


def chain(user, dtype):
    return [conv_op(SHAPE, dtype), user.swish.SwishOp(WIDE, dtype), ReLUOp(WIDE, dtype), *tail(dtype)]


def chain_formula(x, take):
    return dense(relu(swish(conv(x, take, 3, 3))), take, CLASSES)


def residual(user, dtype):
    """The body ends with an in-place op directly before an Add that passes its gradient on unchanged."""
    return [
        conv_op(SHAPE, dtype),
        ReLUOp(WIDE, dtype),
        user.fork.SplitOp(WIDE, 6, dtype),
        conv_op(WIDE, dtype),
        ReLUOp(WIDE, dtype),
        user.fork.AddOp(WIDE, 3, dtype),
        *tail(dtype),
    ]


def residual_formula(x, take):
    x = relu(conv(x, take, 3, 3))
    return dense(x + relu(conv(x, take, 3, 3)), take, CLASSES)


def inplace_before_split(user, dtype):
    """The body begins with an in-place op, and Add reads the value that the Split received."""
    return [
        conv_op(SHAPE, dtype),
        user.fork.SplitOp(WIDE, 5, dtype),
        ReLUOp(WIDE, dtype),
        conv_op(WIDE, dtype),
        user.fork.AddOp(WIDE, 1, dtype),
        *tail(dtype),
    ]


def inplace_before_split_formula(x, take):
    x = conv(x, take, 3, 3)
    return dense(x + conv(relu(x), take, 3, 3), take, CLASSES)


def alias_after_split(user, dtype):
    """Between the Split and the in-place op is one that only makes an alias of the value."""
    return [
        conv_op(SHAPE, dtype),
        user.fork.SplitOp(WIDE, 6, dtype),
        FlattenOp(WIDE, dtype),
        ReLUOp((SIZE,), dtype),
        DenseOp((SIZE,), SIZE, dtype),
        user.fork.AddOp((SIZE,), 2, dtype),
        ReLUOp((SIZE,), dtype),
        DenseOp((SIZE,), CLASSES, dtype),
    ]


def alias_after_split_formula(x, take):
    x = conv(x, take, 3, 3).reshape(len(x), -1)
    return dense(relu(x + dense(relu(x), take, SIZE)), take, CLASSES)


def nested(user, dtype):
    """A fork inside a fork: both begin at one value, and the inner one ends directly before an in-place op."""
    return [
        conv_op(SHAPE, dtype),
        user.fork.SplitOp(WIDE, 8, dtype),
        user.fork.SplitOp(WIDE, 6, dtype),
        conv_op(WIDE, dtype),
        user.swish.SwishOp(WIDE, dtype),
        user.fork.AddOp(WIDE, 3, dtype),
        ReLUOp(WIDE, dtype),
        user.fork.AddOp(WIDE, 2, dtype),
        *tail(dtype),
    ]


def nested_formula(x, take):
    x = conv(x, take, 3, 3)
    return dense(x + relu(x + swish(conv(x, take, 3, 3))), take, CLASSES)


def projection(user, dtype):
    """Two branches with one convolution each."""
    return [
        conv_op(SHAPE, dtype),
        user.swish.SwishOp(WIDE, dtype),
        user.fork.SplitOp(WIDE, 6, dtype),
        conv_op(WIDE, dtype),
        ReLUOp(WIDE, dtype),
        user.fork.RecallOp(WIDE, 3, 8, dtype=dtype),
        conv_op(WIDE, dtype, size=1),
        user.fork.AddOp(WIDE, 5, dtype),
        ReLUOp(WIDE, dtype),
        *tail(dtype),
    ]


def projection_formula(x, take):
    x = swish(conv(x, take, 3, 3))
    return dense(relu(relu(conv(x, take, 3, 3)) + conv(x, take, 3, 1)), take, CLASSES)


def gated(user, dtype):
    """One branch multiplies the other: each gradient needs the other branch's values."""
    return [
        conv_op(SHAPE, dtype),
        user.fork.SplitOp(WIDE, 5, dtype),
        conv_op(WIDE, dtype),
        ReLUOp(WIDE, dtype),
        user.fork.RecallOp(WIDE, 2, 6, gate=True, dtype=dtype),
        user.fork.GateOp(WIDE, 4, dtype),
        ReLUOp(WIDE, dtype),
        *tail(dtype),
    ]


def gated_formula(x, take):
    x = conv(x, take, 3, 3)
    return dense(relu(x * relu(conv(x, take, 3, 3))), take, CLASSES)


def shifted(user, dtype):
    """An in-place op whose rows read dy, which the preceding op would also overwrite in place."""
    shifts = user.shift.ShiftOp(WIDE, dtype), user.shift.ShiftOp(WIDE, dtype)
    return [conv_op(SHAPE, dtype), ReLUOp(WIDE, dtype), *shifts, *tail(dtype)]


def shifted_formula(x, take):
    return dense(relu(conv(x, take, 3, 3)) + take(*WIDE) + take(*WIDE), take, CLASSES)


def norm_ops(user, shape, place, dtype):
    stats = user.batchnorm.StatsOp(shape, place, dtype)
    return [stats, user.batchnorm.ApplyOp(stats, place)]


def normalized(user, dtype):
    return [conv_op(SHAPE, dtype), *norm_ops(user, WIDE, 1, dtype), ReLUOp(WIDE, dtype), *tail(dtype)]


def normalized_formula(x, take):
    return dense(relu(norm(conv(x, take, 3, 3), take)), take, CLASSES)


def first_and_last(user, dtype):
    """Batch norm reads the plan's input and writes its output."""
    return [*norm_ops(user, SHAPE, 0, dtype), conv_op(SHAPE, dtype), *norm_ops(user, WIDE, 3, dtype)]


def first_and_last_formula(x, take):
    return norm(conv(norm(x, take), take, 3, 3), take)


def combined(user, dtype):
    return [
        conv_op(SHAPE, dtype),
        user.fork.SplitOp(WIDE, 8, dtype),
        conv_op(WIDE, dtype),
        *norm_ops(user, WIDE, 3, dtype),
        user.swish.SwishOp(WIDE, dtype),
        conv_op(WIDE, dtype),
        user.fork.AddOp(WIDE, 2, dtype),
        ReLUOp(WIDE, dtype),
        *norm_ops(user, WIDE, 9, dtype),
        *tail(dtype),
    ]


def combined_formula(x, take):
    x = conv(x, take, 3, 3)
    x = relu(x + conv(swish(norm(conv(x, take, 3, 3), take)), take, 3, 3))
    return dense(norm(x, take), take, CLASSES)


FORMULAS = {
    chain: chain_formula,
    residual: residual_formula,
    inplace_before_split: inplace_before_split_formula,
    alias_after_split: alias_after_split_formula,
    nested: nested_formula,
    projection: projection_formula,
    gated: gated_formula,
    shifted: shifted_formula,
    normalized: normalized_formula,
    first_and_last: first_and_last_formula,
    combined: combined_formula,
}
each_net = pytest.mark.parametrize("net", FORMULAS, ids=lambda net: net.__name__)


# ---- running the plans -----------------------------------------------------------------------------
class Case:
    """A plan, its parameters in a flat buffer without gaps, and inputs."""

    def __init__(self, net, user, dtype, loss=False):
        rng = np.random.default_rng(5)
        ops = net(user, dtype)
        sizes = [op.n_param for op in ops]
        self.out_shape = ops[-1].out_shape
        ops += [SoftmaxCrossEntropyOp(ops[-1].out_shape, dtype=dtype)] if loss else []
        self.plan = Plan(ops, [sum(sizes[:k]) for k in range(len(ops))], loss)
        self.dtype, self.formula = dtype, FORMULAS[net]
        self.param = rng.normal(0, 0.4, sum(sizes)).astype(dtype)
        self.x = rng.standard_normal((max(BATCHES), *SHAPE)).astype(dtype)
        self.dy = rng.standard_normal((max(BATCHES), *self.out_shape)).astype(dtype)
        self.labels = rng.integers(0, CLASSES, max(BATCHES))

    def by_hand(self, n, threads, dy=None):
        """Returns (y, dx, grad) of the first n examples."""
        dy = np.ascontiguousarray(self.dy[:n] if dy is None else dy)
        y, dx, grad = np.empty_like(dy), np.empty_like(self.x[:n]), np.empty_like(self.param)
        kept = self.plan.forward(self.x[:n].reshape(n, -1), self.param, y.reshape(n, -1), threads)
        self.plan.backward(kept, dy.reshape(n, -1), dx.reshape(n, -1), self.param, grad)
        return y, dx, grad

    def train(self, n, threads, steps, update=True):
        """Returns (param, grad, losses) after some steps of n examples."""
        param, grad = self.param.copy(), np.empty_like(self.param)
        rows = np.arange(steps * n) % len(self.x)
        losses = np.empty(len(rows), self.dtype)
        sgd = SGDUpdate(param.size, self.dtype, 0.9) if update else None
        done = train(
            self.plan, self.x.reshape(len(self.x), -1), rows, n, self.labels, None, losses, None,
            np.full(steps, float(n)), np.full(steps, 0.05), param, grad, sgd, threads, 0, np.zeros(1, np.int64),
        )  # fmt: skip
        assert done == steps
        return param, grad, losses

    def reference(self, param, x):
        at = 0

        def take(*shape):
            nonlocal at
            start, at = at, at + int(np.prod(shape))
            return param[start:at].reshape(shape)

        y = self.formula(x, take)
        assert at == param.size
        return y

    def slope(self, n, towards_param, towards_x):
        """Returns the derivative of sum(dy * y) in a direction, from a complex step."""
        step = 1e-30j
        y = self.reference(self.param + step * towards_param, self.x[:n] + step * towards_x)
        return (self.dy[:n] * y).sum().imag / 1e-30


@each_net
def test_values_and_all_gradients_are_correct(net, user):
    case, n = Case(net, user, "float64"), 5
    y, dx, grad = case.by_hand(n, 2)
    np.testing.assert_allclose(y, case.reference(case.param, case.x[:n]), 0, 1e-12)
    directions = np.eye(grad.size)
    np.testing.assert_allclose(grad, [case.slope(n, d, 0) for d in directions], 1e-10, 1e-10)
    directions = np.eye(dx.size).reshape(-1, *dx.shape)
    expected = np.reshape([case.slope(n, 0, d) for d in directions], dx.shape)
    np.testing.assert_allclose(dx, expected, 1e-10, 1e-10)


@each_net
@pytest.mark.parametrize("n", BATCHES)
def test_gradients_of_larger_batches_are_correct(net, n, user, rng):
    case = Case(net, user, "float64")
    y, dx, grad = case.by_hand(n, 3)
    np.testing.assert_allclose(y, case.reference(case.param, case.x[:n]), 0, 1e-12)
    for _ in range(4):
        a, b = rng.standard_normal(grad.shape), rng.standard_normal(dx.shape)
        scale = np.abs(grad * a).sum(), np.abs(dx * b).sum()
        assert abs(grad @ a - case.slope(n, a, 0)) <= 1e-12 * scale[0]
        assert abs((dx * b).sum() - case.slope(n, 0, b)) <= 1e-12 * scale[1]


@each_net
@pytest.mark.parametrize("n", BATCHES)
def test_number_of_threads_changes_no_bit(net, n, user):
    case = Case(net, user, "float32")
    expected = case.by_hand(n, 1)
    np.testing.assert_allclose(expected[0], case.reference(case.param, case.x[:n]), 1e-3, 1e-4)
    for threads in THREADS:
        for result, array in zip(case.by_hand(n, threads), expected, strict=True):
            assert np.array_equal(result, array)
        y = np.empty((n, int(np.prod(case.out_shape))), "float32")
        case.plan.predict(case.x.reshape(len(case.x), -1), np.arange(n), case.param, y, threads)
        assert np.array_equal(y, expected[0].reshape(y.shape))


@pytest.mark.parametrize("net", [net for net in FORMULAS if net is not first_and_last], ids=lambda net: net.__name__)
@pytest.mark.parametrize("n", BATCHES)
def test_training_and_steps_by_hand_give_the_same_bits(net, n, user):
    by_hand, case = Case(net, user, "float32"), Case(net, user, "float32", loss=True)
    scores, dscores = by_hand.by_hand(n, 1)[0], np.empty((n, CLASSES), "float32")
    loss_batch(SoftmaxCrossEntropyOp((CLASSES,)), scores, case.labels[:n], np.empty(n, "float32"), dscores)
    grad = by_hand.by_hand(n, 1, dscores)[2] / np.float32(n)
    assert np.array_equal(case.train(n, 1, 1, update=False)[1], grad)
    expected = case.train(n, 1, 3)
    assert not np.array_equal(expected[0], case.param)
    for threads in THREADS:
        for result, array in zip(case.train(n, threads, 3), expected, strict=True):
            assert np.array_equal(result, array)


def test_backward_can_be_called_again(user):
    case, n = Case(combined, user, "float32"), 40
    y, dx, grad = case.by_hand(n, 2)
    dy = case.dy[:n]
    kept = case.plan.forward(case.x[:n].reshape(n, -1), case.param, y, 2)
    for again in (2 * dy, dy):
        case.plan.backward(kept, np.ascontiguousarray(again), dx.reshape(n, -1), case.param, grad)
    for result, array in zip((y, dx, grad), case.by_hand(n, 2), strict=True):
        assert np.array_equal(result, array)


@each_net
def test_a_plan_runs_batches_of_varying_size(net, user):
    case = Case(net, user, "float32")
    for n in (300, 5, 40, 16, 33, 7):
        fresh = Case(net, user, "float32")
        for result, array in zip(case.by_hand(n, 2), fresh.by_hand(n, 2), strict=True):
            assert np.array_equal(result, array)


@each_net
def test_rows_reduced_in_a_custom_order_are_not_distributed(net, user):
    assert Case(net, user, "float32").plan.is_distributable == (
        net not in (shifted, normalized, first_and_last, combined)
    )


# ---- a custom layer --------------------------------------------------------------------------------
@pytest.fixture
def swish_layer(user):
    class Swish(Layer):
        """A layer with a custom kernel."""

        def build(self, in_shape):
            self.op = user.swish.SwishOp(in_shape, self.dtype)
            return in_shape

    return Swish


@pytest.mark.parametrize("shape", [(1,), (7,), (3, 4, 5)], ids=str)
def test_the_layer_passes_the_check(swish_layer, shape):
    check_layer(swish_layer(), shape)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_layer_trains_inside_the_plan(swish_layer, dtype, rng):
    x, y = rng.standard_normal((150, *SHAPE)), rng.integers(0, CLASSES, 150)
    weights = []
    for threads in THREADS:
        image = [Conv2D(6, 3, padding=1), swish_layer(), MaxPool2D(2), Flatten()]
        model = Sequential([*image, Dense(16), swish_layer(), Dense(CLASSES)], input_shape=SHAPE, dtype=dtype)
        assert model.network.native
        trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1, momentum=0.9), num_threads=threads)
        loss = trainer.fit(x, y, epochs=40, batch_size=40, verbose=False)["loss"]
        assert loss[-1] < 0.2 * loss[0]
        weights.append(np.concatenate([p.value.ravel() for p in model.params.values()]))
    for other in weights[1:]:
        assert np.array_equal(weights[0], other)


def test_the_layer_computes_the_formula(swish_layer, rng):
    x = rng.standard_normal((35, 6))
    model = Sequential([Dense(8), swish_layer(), ReLU()], input_shape=(6,), dtype="float64")
    weight, bias = (p.value for p in model.params.values())
    np.testing.assert_allclose(model.predict(x), relu(swish(x @ weight.T + bias)), 1e-13, 1e-15)


@pytest.mark.parametrize("surplus", [8, -8, None])
def test_an_op_of_another_version_is_refused(user, surplus):
    strange = user.swish.StrangeOp((3,), surplus)
    with pytest.raises(ValueError, match=r"op 1, StrangeOp: compiled against another minidl.*build it again"):
        Plan([ReLUOp((3,)), strange], [0, 0])


@pytest.mark.parametrize(
    ("ops", "message"),
    [
        (lambda f: [DenseOp((3,), 2), f.AddOp((2,), 0)], "op 1, AddOp: skip: expected 2 elements .* value 0 has 3"),
        (
            lambda f: [f.SplitOp((3,), 2), DenseOp((3,), 4)],
            "op 0, SplitOp: dskip: expected 3 elements .* value 2 has 4",
        ),
        (lambda f: [ReLUOp((3,)), f.SplitOp((3,), 1)], "op 1, SplitOp: dskip: expected a value from 2 to 2, got 1"),
        (lambda f: [f.SplitOp((3,), 3), ReLUOp((3,))], "op 0, SplitOp: dskip: expected a value from 1 to 2, got 3"),
    ],
)
def test_skip_values_of_another_size_are_refused(user, ops, message):
    ops = ops(user.fork)
    with pytest.raises(ValueError, match=message):
        Plan(ops, [0] * len(ops))


def test_an_op_cannot_be_initialized_twice(user):
    op = user.swish.SwishOp((3,))
    with pytest.raises(TypeError, match="SwishOp: constructed already"):
        op.__init__((300,))
    assert op.in_shape == (3,)
