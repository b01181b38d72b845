"""Predictions of few examples, in the blocked layout, have the bits of tiles: each op, whole models, any threads."""

from functools import partial

import numpy as np
import pytest
from blocked_models import FULL, MODELS, built, plain
from geometries import conv_cases, depthwise_cases, pool_cases, transposed_cases
from slow_marks import slow_after

from minidl import Sequential
from minidl.initializers import he_uniform
from minidl.layers import BatchNorm2D, Conv2D, Dense, ReLU
from minidl_c.kernels.activations import ActivationOp
from minidl_c.kernels.avgpool2d import AdaptiveAvgPool2DOp, AvgPool2DOp
from minidl_c.kernels.columns import ColumnsOp
from minidl_c.kernels.conv2d import Conv2DOp
from minidl_c.kernels.conv_transpose2d import ConvTranspose2DOp
from minidl_c.kernels.dense import DenseOp
from minidl_c.kernels.depthwise_conv2d import DepthwiseConv2DOp
from minidl_c.kernels.dropout import DropoutOp
from minidl_c.kernels.layernorm import LayerNormOp
from minidl_c.kernels.maxpool2d import AdaptiveMaxPool2DOp, MaxPool2DOp
from minidl_c.kernels.normalize import NormalizeOp
from minidl_c.kernels.pad2d import Pad2DOp
from minidl_c.kernels.permute import ChannelShuffleOp
from minidl_c.kernels.prelu import PReLUOp
from minidl_c.kernels.relu import ReLUOp
from minidl_c.kernels.scale import ScaleOp
from minidl_c.kernels.upsample2d import BilinearUpsample2DOp, Upsample2DOp
from minidl_c.runtime.plan import Plan

DTYPES = ("float32", "float64")


def convolutions(seed, count=24):
    for case in conv_cases(seed, count):
        yield f"conv2d {case}", partial(Conv2DOp, case.x_shape[1:], case.filters, case.kernel, **case.options)
    for case in depthwise_cases(seed, count):
        window = (case.kernel, case.stride, case.padding, case.dilation, case.filters // case.channels)
        yield f"depthwise {case}", partial(DepthwiseConv2DOp, case.x_shape[1:], *window)
    for case in transposed_cases(seed, count):
        make = partial(ConvTranspose2DOp, case.x_shape[1:], case.filters, case.kernel, **case.options)
        yield f"transposed {case}", make
    for channels, filters, size, groups in (
        (16, 16, 9, 1),
        (20, 70, 8, 1),
        (32, 32, 7, 2),
        (130, 18, 3, 1),
        (48, 33, 5, 1),
        (300, 100, 4, 1),
    ):
        shape = (channels, size, size + 3)
        yield f"conv2d of {shape}", partial(Conv2DOp, shape, filters, (3, 3), padding=(1,) * 4, groups=groups)
        yield f"pointwise of {shape}", partial(Conv2DOp, shape, filters, (1, 1), groups=groups)
        yield f"depthwise of {shape}", partial(DepthwiseConv2DOp, shape, (3, 3), padding=(1,) * 4)


def pools(seed, count=30):
    for case in pool_cases(seed, count):
        yield f"maxpool {case}", partial(MaxPool2DOp, case.x_shape[1:], **case.options)
        yield f"avgpool {case}", partial(AvgPool2DOp, case.x_shape[1:], **case.options)
        adaptive = case.x_shape[1:], case.out_size
        yield f"adaptive maxpool {adaptive}", partial(AdaptiveMaxPool2DOp, *adaptive)
        yield f"adaptive avgpool {adaptive}", partial(AdaptiveAvgPool2DOp, *adaptive)


def others(seed):
    rng = np.random.default_rng(seed)
    for inputs, outputs in ((1, 1), (3, 70), (33, 7), (64, 16), (300, 150), (129, 300)):
        yield f"dense {inputs} {outputs}", partial(DenseOp, (inputs,), outputs)
    for _ in range(10):
        shape = tuple(int(n) for n in rng.integers(1, (40, 8, 8)))
        c = shape[0]
        yield f"relu {shape}", partial(ReLUOp, shape)
        yield f"silu {shape}", partial(ActivationOp, shape, "silu")
        yield f"exp {shape}", partial(ActivationOp, shape, "exp")
        yield f"normalize {shape}", partial(NormalizeOp, shape, rng.standard_normal(c), rng.uniform(0.5, 2, c))
        yield f"pad {shape}", partial(Pad2DOp, shape, (1, 0, 2, 1), 0.5)
        yield f"upsample {shape}", partial(Upsample2DOp, shape, (2, 3))
        yield f"columns of {shape}", partial(ColumnsOp, shape, c // 3, c - c // 4)
        yield f"channel shuffle of 3 * {shape}", partial(ChannelShuffleOp, (3 * c, *shape[1:]), 3)
        yield f"dropout of channels {shape}", partial(DropoutOp, shape, 0.4, group=shape[1] * shape[2])
        yield f"bilinear {shape}", partial(BilinearUpsample2DOp, shape, (9, 5), (1.5, 0.7), False)


def norms(seed):
    rng = np.random.default_rng(seed)
    shapes = [tuple(int(n) for n in rng.integers(1, (40, 8, 8))) for _ in range(8)]
    for shape in (*shapes, (768, 3, 2), (1040, 2, 1), (2100, 1, 1), (17,), (2048,), (3, 5, 20), (20, 33)):
        for centered in (True, False):
            for affine in (True, False):
                about = f"layer norm of {shape}, centered={centered}, affine={affine}"
                yield about, partial(LayerNormOp, shape, shape[0], 1e-3, centered, affine)
        for use_bias in (True, False):
            yield f"scale of {shape}, use_bias={use_bias}", partial(ScaleOp, shape, use_bias)
        for shared in (True, False):
            yield f"prelu of {shape}, shared={shared}", partial(PReLUOp, shape, shared)


def check_rows(predict, x, sizes, threads, about):
    """Checks the first rows of x, in batches of these sizes, against their bits in full tiles."""
    full = predict(x, 1)
    for n in sizes:
        for count in threads:
            got = predict(x[:n], count)
            assert got.tobytes() == full[:n].tobytes(), f"{about}: {n} examples on {count} threads differ"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("ops", "seed"), slow_after(2, [(ops, seed) for seed in range(4) for ops in (convolutions, pools, others, norms)])
)
def test_each_op_has_the_bits_of_a_tile(ops, seed, dtype):
    compared = 0
    for about, make in ops(seed):
        op = make(dtype=dtype)
        plan, rng = Plan([op], [0]), np.random.default_rng(seed)
        param = rng.standard_normal(max(op.n_param, 1)).astype(dtype)
        x = rng.standard_normal((FULL, int(np.prod(op.in_shape)))).astype(dtype)

        size, limit = int(np.prod(op.out_shape)), plan.blocked_limit

        def predict(x, threads, plan=plan, param=param, size=size, limit=limit):
            plan.blocked_limit = limit if len(x) < FULL else 0
            y = np.full((len(x), size), np.nan, x.dtype)
            plan.predict(x, None, param, y, threads)
            return y

        if limit:
            check_rows(predict, x, {1, limit}, (1, 2, 3), about)
            compared += 1
    assert compared >= 20


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("make", MODELS)
def test_any_number_of_examples_has_the_same_bits(make, dtype):
    model, x = built(make, dtype)
    assert model.network.segments[0].plan.blocked_limit

    def predict(x, threads):
        return model.predict(x, num_threads=threads)

    check_rows(predict, x[:FULL], (1, 2, 3, 4, 7), (1, 2, 3, 8), make.__name__)
    check_rows(predict, x[:FULL], range(1, 33), (2,), make.__name__)
    assert predict(x, 2)[FULL:].tobytes() == predict(x[FULL:], 1).tobytes()  # after two full tiles


@pytest.mark.parametrize("kind", ["uint8", "float32", "float64"])
def test_all_kinds_of_numbers_are_gathered(kind):
    model, _ = built(plain, "float32")
    x = np.random.default_rng(0).integers(0, 256, (FULL, 2, 9, 10)).astype(kind)
    check_rows(lambda x, threads: model.predict(x, num_threads=threads), x, (1, 2, 5), (1, 2), kind)


@pytest.mark.parametrize("make", MODELS)
def test_what_the_lanes_after_the_last_channel_hold_has_no_effect(make):
    """NaN in all weights and inputs leaves NaN in every lane of the memory, which the next prediction uses again."""
    model, x = built(make, "float32")
    state, expected = model.state_dict(), model.predict(x[:2])
    assert np.isfinite(expected).all()
    for threads in (1, 2):
        for param in model.params.values():
            param.value[...] = np.nan
        assert np.isnan(model.predict(x[:2], num_threads=threads)).any()
        model.load_state_dict(state)
        for n in (1, 2):
            assert model.predict(x[:n], num_threads=threads).tobytes() == expected[:n].tobytes()


@pytest.mark.parametrize("make", MODELS)
def test_the_next_prediction_uses_weights_that_were_written_in_place(make):
    model, x = built(make, "float32")
    other, _ = built(make, "float32", seed=1)
    model.predict(x[:1])
    for name, param in model.params.items():
        param.value[...] = other.params[name].value
    model.load_state_dict(model.state_dict() | {k: v for k, v in other.state_dict().items() if "running" in k})
    assert model.predict(x[:1]).tobytes() == other.predict(x[:1]).tobytes()


def test_wide_models_are_predicted_blocked_and_narrow_ones_in_tiles():
    def limit(*layers, shape=(16, 8, 8)):
        return Sequential(list(layers), input_shape=shape).network.segments[0].plan.blocked_limit

    assert limit(Conv2D(64, 3), BatchNorm2D(), ReLU(), Conv2D(64, 3)) >= 12
    assert limit(Conv2D(4, 3)) < 4
    assert limit(Dense(256), ReLU(), Dense(256), shape=(256,)) >= 12  # all examples together read the weights once


def test_a_weight_initializer_sees_the_shape_of_pytorch():
    shapes = []

    def init(rng, shape):
        shapes.append(shape)
        return he_uniform(rng, shape)

    model = Sequential([Conv2D(5, (3, 2), kernel_initializer=init)], input_shape=(4, 6, 6))
    assert shapes == [(5, 4, 3, 2)]
    assert model.params["0.weight"].value.shape == (5, 4, 3, 2)
    assert model.params["0.weight"].value.transpose(1, 2, 3, 0).flags.c_contiguous  # as the kernel reads it
