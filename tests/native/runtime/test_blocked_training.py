"""Training of few examples, in the blocked layout, has the bits of tiles: each op, whole models, any threads."""

from functools import partial

import numpy as np
import pytest
from blocked_models import MODELS, built
from geometries import conv_cases, depthwise_cases, pool_cases
from slow_marks import slow_after

from minidl import Sequential, Trainer
from minidl.layers import (
    BatchNorm2D,
    ColorJitter,
    Conv2D,
    ConvTranspose2D,
    Cutout,
    Dense,
    DepthwiseConv2D,
    Dropout2D,
    Flatten,
    GaussianNoise,
    GlobalAvgPool2D,
    GroupNorm,
    MaxPool2D,
    Pad2D,
    Parallel,
    RandomRotation,
    RandomShift,
    RandomZoom,
    ReLU,
    Rescale,
    Reshape,
    Residual,
    Scale,
    Sigmoid,
    SqueezeExcite,
    StochasticDepth,
    Upsample2D,
)
from minidl.optimizers import SGD, Adam
from minidl_c.kernels.activations import ActivationOp
from minidl_c.kernels.avgpool2d import AdaptiveAvgPool2DOp, AvgPool2DOp
from minidl_c.kernels.batchnorm import BatchNormOp
from minidl_c.kernels.batchnorm_statistics import BatchStatisticsOp
from minidl_c.kernels.columns import ColumnsOp
from minidl_c.kernels.conv2d import Conv2DOp
from minidl_c.kernels.dense import DenseOp
from minidl_c.kernels.depthwise_conv2d import DepthwiseConv2DOp
from minidl_c.kernels.dropout import DropoutOp
from minidl_c.kernels.flatten import FlattenOp
from minidl_c.kernels.layernorm import LayerNormOp
from minidl_c.kernels.maxpool2d import AdaptiveMaxPool2DOp, MaxPool2DOp
from minidl_c.kernels.normalize import NormalizeOp
from minidl_c.kernels.pad2d import Pad2DOp
from minidl_c.kernels.permute import ChannelShuffleOp
from minidl_c.kernels.prelu import PReLUOp
from minidl_c.kernels.relu import ReLUOp
from minidl_c.kernels.rescale import RescaleOp
from minidl_c.kernels.scale import ScaleOp
from minidl_c.kernels.softmax import SoftmaxOp
from minidl_c.kernels.upsample2d import BilinearUpsample2DOp, Upsample2DOp
from minidl_c.losses.elementwise_losses import ElementwiseLossOp
from minidl_c.runtime.plan import Plan

DTYPES = ("float32", "float64")
MOST = 16  # examples of a tile


# ---- each op


def convolutions(rng, seed):
    for case in conv_cases(seed, 24):
        yield f"conv2d {case}", [partial(Conv2DOp, case.x_shape[1:], case.filters, case.kernel, **case.options)]
    for case in depthwise_cases(seed, 24):
        window = (case.kernel, case.stride, case.padding, case.dilation, case.filters // case.channels)
        yield f"depthwise {case}", [partial(DepthwiseConv2DOp, case.x_shape[1:], *window)]
    for channels, filters, size, groups in (
        (16, 16, 9, 1),
        (32, 48, 9, 1),
        (20, 70, 8, 1),
        (32, 32, 7, 2),
        (130, 18, 3, 1),
        (7, 40, 5, 1),
    ):
        shape = (channels, size, size + 3)
        for window in ({"padding": (1,) * 4}, {"stride": (2, 1), "padding": (2, 0, 1, 3)}, {"dilation": (1, 2)}):
            yield f"conv2d of {shape} {window}", [partial(Conv2DOp, shape, filters, (3, 3), groups=groups, **window)]
        yield f"pointwise of {shape}", [partial(Conv2DOp, shape, filters, (1, 1), groups=groups, use_bias=False)]
        yield f"depthwise of {shape}", [partial(DepthwiseConv2DOp, shape, (3, 3), padding=(1,) * 4)]


def pools(rng, seed):
    for case in pool_cases(seed, 30):
        pool = partial(MaxPool2DOp, case.x_shape[1:], **case.options)
        yield f"maxpool {case}", [pool]
        yield f"ReLU and maxpool {case}", [partial(ReLUOp, case.x_shape[1:]), pool]
        yield f"avgpool {case}", [partial(AvgPool2DOp, case.x_shape[1:], **case.options)]
        adaptive = case.x_shape[1:], case.out_size
        yield f"adaptive maxpool {adaptive}", [partial(AdaptiveMaxPool2DOp, *adaptive)]
        yield f"adaptive avgpool {adaptive}", [partial(AdaptiveAvgPool2DOp, *adaptive)]


def others(rng, seed):
    for inputs, outputs in ((1, 1), (3, 70), (33, 7), (64, 16), (300, 150), (129, 300)):
        yield f"dense {inputs} {outputs}", [partial(DenseOp, (inputs,), outputs)]
        yield f"dense without bias {inputs} {outputs}", [partial(DenseOp, (inputs,), outputs, use_bias=False)]
    for _ in range(10):
        shape = tuple(int(n) for n in rng.integers(1, (40, 8, 8)))
        c = shape[0]
        yield f"relu {shape}", [partial(ReLUOp, shape)]
        yield f"silu {shape}", [partial(ActivationOp, shape, "silu")]
        yield f"exp {shape}", [partial(ActivationOp, shape, "exp")]
        yield f"rescale {shape}", [partial(RescaleOp, shape, 0.3, 1.0)]
        yield f"normalize {shape}", [partial(NormalizeOp, shape, rng.standard_normal(c), rng.uniform(0.5, 2, c))]
        yield f"pad {shape}", [partial(Pad2DOp, shape, (1, 0, 2, 1), 0.5)]
        yield f"upsample {shape}", [partial(Upsample2DOp, shape, (2, 3))]
        yield f"columns of {shape}", [partial(ColumnsOp, shape, c // 3, c - c // 4)]
        yield f"channel shuffle of 3 * {shape}", [partial(ChannelShuffleOp, (3 * c, *shape[1:]), 3)]
        yield f"bilinear {shape}", [partial(BilinearUpsample2DOp, shape, (9, 5), (1.5, 0.7), False)]
        yield f"batch norm {shape}", [partial(BatchStatisticsOp, shape), partial(BatchNormOp, shape)]
        yield (
            f"batch norm, no gain {shape}",
            [partial(op, shape, affine=False) for op in (BatchStatisticsOp, BatchNormOp)],
        )
        yield f"dropout {shape}", [partial(DropoutOp, shape, 0.4)]
        for group in (shape[1] * shape[2], int(np.prod(shape))):
            yield f"dropout of groups of {group} {shape}", [partial(DropoutOp, shape, 0.4, group=group)]
        yield f"flatten and softmax {shape}", [partial(FlattenOp, shape), partial(SoftmaxOp, (int(np.prod(shape)),))]


def norms(rng, seed):
    shapes = [tuple(int(n) for n in rng.integers(1, (40, 8, 8))) for _ in range(8)]
    for shape in (*shapes, (768, 3, 2), (1040, 2, 1), (2100, 1, 1), (17,), (2048,), (3, 5, 20)):
        for centered in (True, False):
            for affine in (True, False):
                about = f"layer norm of {shape}, centered={centered}, affine={affine}"
                yield about, [partial(LayerNormOp, shape, shape[0], 1e-3, centered, affine)]
        for use_bias in (True, False):
            yield f"scale of {shape}, use_bias={use_bias}", [partial(ScaleOp, shape, use_bias)]
        yield f"prelu of {shape}", [partial(PReLUOp, shape)]


class Step:
    """A training step of ops, without an update: its losses, scores, gradient and state.

    The gradient of the ops' input is seen in the parameters of an op before them.
    """

    def __init__(self, makers, dtype, seed):
        ops = [make(dtype=dtype) for make in makers]
        shape = ops[0].in_shape
        is_image = len(shape) == 3
        front = DepthwiseConv2DOp(shape, (1, 1), dtype=dtype) if is_image else DenseOp(shape, shape[0], dtype=dtype)
        n_out = int(np.prod(ops[-1].out_shape))
        ops = [front, *ops, ElementwiseLossOp((n_out,), "mean_squared_error", dtype=dtype)]
        places = np.cumsum([0] + [op.n_param + op.n_state for op in ops])
        self.plan, rng = Plan(ops, places[:-1].tolist(), True), np.random.default_rng(seed)
        self.param = rng.standard_normal(max(1, places[-1])).astype(dtype)
        self.x = rng.standard_normal((MOST, int(np.prod(front.in_shape)))).astype(dtype)
        self.targets = rng.standard_normal((MOST, n_out)).astype(dtype)
        self.weights, self.dtype, self.n_out = rng.uniform(0, 2, MOST).astype(dtype), dtype, n_out

    def run(self, n, threads, limit, param=None):
        self.plan.blocked_limit = limit
        param = (self.param if param is None else param).copy()
        losses, scores = np.full(n, np.nan, self.dtype), np.full((n, self.n_out), np.nan, self.dtype)
        grad = np.full(len(param), 7, self.dtype)
        given = (self.x[:n], None, n, self.targets[:n], self.weights[:n], losses, scores, np.full(1, 3.0), np.zeros(1))
        done = self.plan.train(*given, param, grad, None, threads, 5, np.full(1, 9), None)
        return done, losses.tobytes(), scores.tobytes(), grad.tobytes(), param.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("ops", "seed"), slow_after(1, [(ops, seed) for seed in range(4) for ops in (convolutions, pools, others, norms)])
)
def test_each_op_has_the_bits_of_a_tile(ops, seed, dtype):
    compared = 0
    for about, makers in ops(np.random.default_rng(seed), seed):
        step = Step(makers, dtype, seed)
        try:
            step.plan.blocked_limit = MOST
        except ValueError:  # groups that do not begin with a block
            continue
        for n in (1, 2 + compared % 8, MOST):
            tiles = step.run(n, 1, 0)
            for threads in (1, 2 + compared % 2):
                assert step.run(n, threads, MOST) == tiles, f"{about}: {n} examples on {threads} threads differ"
        compared += 1
    assert compared >= 30


def test_nothing_reads_the_lanes_after_the_last_channel():
    """A step with NaN in all parameters leaves NaN in every lane of the memory, which the next step uses again."""
    rng = np.random.default_rng(0)
    cases = [*convolutions(rng, 0), *pools(rng, 0), *others(rng, 0), *norms(rng, 0)]
    for about, makers in cases[::3]:
        step = Step(makers, "float32", 0)
        try:
            expected = step.run(3, 1, MOST)
        except ValueError:
            continue
        for threads in (1, 2):
            step.run(3, threads, MOST, np.full_like(step.param, np.nan))
            assert step.run(3, threads, MOST) == expected, about


# ---- models


def squeeze():
    """Branches of equal and unequal channels, whose gradients meet again."""
    wide = Parallel([Conv2D(16, 1), ReLU()], [Conv2D(32, 3, padding=1), BatchNorm2D()], join="concat")
    body = [BatchNorm2D(), ReLU(), Conv2D(48, 3, padding=1), Dropout2D(0.2), StochasticDepth(0.1)]
    return (3, 8, 9), [Conv2D(16, 3, padding=1), wide, Residual(*body), MaxPool2D(2), GlobalAvgPool2D(), Dense(5)]


def augmented():
    return (1, 10, 10), [
        RandomShift(2),
        Cutout(3, rate=0.5),
        ColorJitter(0.3, 0.3),
        RandomRotation(20),
        RandomZoom(0.2),
        GaussianNoise(0.1),
        Conv2D(18, 3, stride=2, padding=1),
        BatchNorm2D(),
        Sigmoid(),
        Flatten(),
        Dense(4),
    ]


def light():
    block = [Conv2D(40, 1), BatchNorm2D(), ReLU(), DepthwiseConv2D(3, padding=1), BatchNorm2D(), ReLU(), Conv2D(24, 1)]
    end = [DepthwiseConv2D(3, stride=2, use_bias=False), Flatten(), Dense(7)]
    return (3, 8, 8), [Conv2D(24, 3, stride=2, padding=1), Conv2D(24, 3, padding=1), Residual(*block), *end]


def strided_branches():
    """The first branch ends with fewer pixels than it began with, or with more."""
    fewer = Parallel([Conv2D(16, 3, stride=2, padding=1)], [MaxPool2D(2)], join="concat")
    more = Parallel([Upsample2D(2), Conv2D(32, 1)], [Upsample2D(2)], join="concat")
    return (3, 16, 16), [Conv2D(32, 3, padding=1), fewer, more, Conv2D(4, 3), Flatten(), Dense(3)]


def shared_memory():
    """Threads that share the channels run three ops backward without meeting, in memory of their own."""
    return (3, 10, 10), [Conv2D(32, 3), Pad2D(1), DepthwiseConv2D(3), MaxPool2D(2), Upsample2D(2), Flatten(), Dense(5)]


def reshaped_rows():
    """A Reshape leaves the channels and changes the rows, which threads share."""
    ops = [Conv2D(16, 3, padding=1), ReLU(), Reshape((16, -1)), ReLU(), Rescale(0.5), Reshape((16, 4, 16)), ReLU()]
    return (3, 8, 8), [*ops, Conv2D(16, 1), Flatten(), Dense(3)]


def many_pixels():
    """More pixels than a run of a sum: see pixel_sums.h."""
    body = [Conv2D(18, 1), BatchNorm2D(), SqueezeExcite(3), DepthwiseConv2D(3, padding=1), Scale(0.5, use_bias=True)]
    return (3, 18, 19), [Conv2D(18, 3, padding=1), Residual(*body), GlobalAvgPool2D(), Dense(2)]


IN_TILES = ("mixed", "mobile", "numpy_between")
TRAINED = [
    make
    for make in (*MODELS, squeeze, augmented, light, strided_branches, shared_memory, reshaped_rows, many_pixels)
    if make.__name__ not in IN_TILES
]


def fitted(make, n, threads, limit, dtype="float32", optimizer=None, frozen=(), options=None, **fit):
    """Trains batches of n examples, and one that is smaller; returns the bytes of the model's state, and the losses."""
    model, x = built(make, dtype)
    for k in frozen:
        model.layers[k].trainable = False
    y = np.random.default_rng(1).standard_normal((len(x), *model.output_shape)).astype(dtype)
    optimizer = optimizer or SGD(1e-4, momentum=0.9)
    trainer = Trainer(model, "mean_squared_error", optimizer, num_threads=threads, **options or {})
    trainer.steps().plan.blocked_limit = limit
    rows = np.arange(4 * n + n // 2) % len(x)
    history = trainer.fit(x[rows], y[rows], epochs=2, batch_size=n, verbose=0, **fit)
    return [value.tobytes() for value in model.state_dict().values()], history["loss"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("make", TRAINED)
def test_any_number_of_examples_and_threads_trains_the_same_bits(make, dtype):
    for n in (1, 2, 5, 13, MOST):
        tiles = fitted(make, n, 1, 0, dtype)
        assert np.isfinite(tiles[1]).all()
        for threads in (1, 2, 3) if n < 3 else (2, 8):
            assert fitted(make, n, threads, MOST, dtype) == tiles, f"{n} examples on {threads} threads differ"


@pytest.mark.parametrize("make", TRAINED)
@pytest.mark.parametrize("option", ["adam", "frozen", "weights", "clipped"])
def test_options_of_a_trainer_change_the_same_bits(option, make):
    weights = np.random.default_rng(2).uniform(0, 2, 4 * 5 + 2)

    def run(threads, limit):
        optimizer = Adam(1e-4) if option == "adam" else SGD(1e-4, momentum=0.9)
        options = {"clip_norm": 0.1} if option == "clipped" else {}
        fit = {"sample_weight": weights} if option == "weights" else {}
        return fitted(make, 5, threads, limit, "float32", optimizer, (0,) if option == "frozen" else (), options, **fit)

    assert run(2, MOST) == run(1, 0)


def trainer_of(model):
    return Trainer(model, "softmax_cross_entropy", SGD(0.1))


def plan_of(*layers, shape):
    return trainer_of(Sequential(list(layers), input_shape=shape)).steps().plan


def test_models_with_parameters_outside_the_layout_are_trained_in_tiles():
    for layer in (GroupNorm(2), ConvTranspose2D(8, 3), DepthwiseConv2D(3, depth_multiplier=2), Conv2D(6, 3, groups=2)):
        model = Sequential([Conv2D(32, 3), layer, Flatten(), Dense(3)], input_shape=(3, 9, 9))
        trainer = trainer_of(model)
        plan = trainer.steps().plan
        assert plan.blocked_limit == 0
        with pytest.raises(ValueError, match="blocked_limit: expected a number from 0 to 0, got 1"):
            plan.blocked_limit = 1
        trainer.fit(np.ones((3, 3, 9, 9), "f4"), np.arange(3), batch_size=1, verbose=0)


def test_wide_models_are_trained_blocked_and_narrow_ones_in_tiles():
    def limit(*layers, shape=(16, 8, 8)):
        return plan_of(*layers, Flatten(), Dense(3), shape=shape).blocked_limit

    assert limit(Conv2D(64, 3), BatchNorm2D(), ReLU(), Conv2D(64, 3)) >= 12
    assert limit(Conv2D(4, 3), Conv2D(4, 3)) < 4
    assert 4 <= limit(Flatten(), Dense(256), ReLU(), Dense(256), shape=(1, 16, 16)) < MOST


def test_steps_of_few_examples_need_little_memory():
    """The blocked layout takes memory for each example, a tile for 16."""
    plan = plan_of(Conv2D(64, 3), ReLU(), Conv2D(64, 3, algorithm="direct"), Flatten(), Dense(3), shape=(3, 32, 32))
    one = plan.step_bytes(1)
    plan.blocked_limit = 0
    assert one < plan.step_bytes(1) / 6
