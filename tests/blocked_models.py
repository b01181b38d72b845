"""Models for the tests of the blocked layout: each kind of layer, branches, and layers that do not have the layout."""

import numpy as np

from minidl import Layer, Sequential
from minidl.layers import (
    ELU,
    GELU,
    AvgPool2D,
    BatchNorm2D,
    ChannelShuffle,
    Columns,
    Conv2D,
    ConvTranspose2D,
    Dense,
    DepthwiseConv2D,
    Dropout,
    Flatten,
    GlobalAvgPool2D,
    GroupNorm,
    LayerNorm,
    MaxPool2D,
    Normalize,
    Pad2D,
    Parallel,
    Permute,
    PReLU,
    ReLU,
    Rescale,
    Reshape,
    Residual,
    RMSNorm,
    Scale,
    Sigmoid,
    Softmax,
    SqueezeExcite,
    Tanh,
    Upsample2D,
)

FULL = 32  # examples: two tiles, none of them blocked


class Doubled(Layer):
    """A layer in NumPy: a model with it has several plans."""

    def forward(self, x, training):
        return x * 2

    def backward(self, dy):
        return dy * 2


def plain():
    convolutions = [Conv2D(20, 3, padding=1), ReLU(), MaxPool2D(2), Conv2D(33, 3), ELU()]
    return (2, 9, 10), [Rescale(0.1), *convolutions, Flatten(), Dense(40), ReLU(), Dropout(0.5), Dense(3)]


def deep():
    body = [Conv2D(32, 3, padding=1, use_bias=False), BatchNorm2D(), ReLU(), Conv2D(32, 3, padding=1), BatchNorm2D()]
    down = [Conv2D(48, 3, stride=2, padding=1), BatchNorm2D(affine=False), ReLU(), Conv2D(48, 3, padding=1)]
    return (3, 12, 12), [
        Normalize([0.1, 0.2, 0.3], [1, 2, 3]), Conv2D(32, 3, padding=1), Residual(*body), ReLU(),
        Residual(*down, shortcut=[Conv2D(48, 1, stride=2)]), ReLU(), AvgPool2D(6), Flatten(), Dense(10), Softmax(),
    ]  # fmt: skip


def mobile():
    block = [Conv2D(40, 1), BatchNorm2D(), ReLU(), DepthwiseConv2D(3, padding=1), BatchNorm2D(), ReLU(), Conv2D(24, 1)]
    end = [DepthwiseConv2D(3, depth_multiplier=2), Flatten(), Dense(7)]
    return (3, 8, 8), [Conv2D(24, 3, stride=2, padding=1), Conv2D(24, 3, padding=1), Residual(*block), *end]


def mixed():
    """Ops without a form for this layout, branches of unequal channels, other shapes of the same values."""
    wide = [Conv2D(96, 3, padding=1), Conv2D(96, 3, padding=1), Conv2D(18, 3, padding=1)]
    unequal = Parallel([Conv2D(16, 1)], [Conv2D(5, 1), ReLU()], join="concat")
    grouped = [Conv2D(12, 3, groups=2), Pad2D(1), Upsample2D(2), ConvTranspose2D(17, 3, stride=2)]
    end = [Reshape((17 * 29, -1)), Flatten(), Dense(9), Reshape((3, 3)), Flatten()]
    return (5, 6, 7), [
        *wide,
        GroupNorm(3),
        PReLU(),
        unequal,
        Parallel([Conv2D(7, 1)], [], join="concat"),
        *grouped,
        *end,
    ]


def in_place_branches():
    """The second branch writes over the value that the first one reads; 8 threads share 20 rows."""
    branches = Parallel([Conv2D(16, 3, padding=1), ReLU()], [ReLU()], join="add")
    return (16, 20, 20), [Conv2D(16, 3, padding=1), branches, ReLU()]


def gated():
    """Gates of 40 channels, one after the other factor and one before it; a part of the channels, shuffled."""
    gate = [GlobalAvgPool2D(), Reshape((-1, 1, 1)), Conv2D(40, 1), Sigmoid()]
    gates = [Parallel([Conv2D(40, 3, padding=1)], gate, join="multiply"), SqueezeExcite(3)]
    halves = Parallel([Columns(0, 20)], [Columns(20), Conv2D(20, 1), ReLU()])
    product = Parallel([Conv2D(24, 1)], [Tanh()], [Columns(0, 24), ReLU()], join="multiply")
    return (3, 6, 7), [Conv2D(40, 3), *gates, halves, ChannelShuffle(2), Conv2D(24, 1), product, Flatten(), Dense(5)]


def convnext():
    """Norms over channels, and factors per channel at the end of branches."""

    def block():
        norm = LayerNorm(eps=1e-6, axis="channels")
        return Residual(DepthwiseConv2D(3, padding=1), norm, Conv2D(40, 1), GELU(), Conv2D(20, 1), Scale(0.5))

    down = [LayerNorm(axis="channels"), Conv2D(24, 2, stride=2), RMSNorm(axis="channels"), Scale(use_bias=True)]
    end = [Flatten(), LayerNorm(), Dense(20), RMSNorm(affine=False), Dense(5)]
    return (3, 8, 8), [Conv2D(20, 1), LayerNorm(axis="channels"), block(), block(), *down, *end]


def permuted():
    """The input is flat: nothing before the first Permute depends on its shape. The others read blocks of channels."""
    rows = [Permute((1, 2, 0)), Scale(use_bias=True), Permute((1, 0, 2)), Reshape((9, 7, 4, 5)), Permute((3, 1, 0, 2))]
    end = [Reshape((35, 36)), Permute((1, 0)), Reshape((36, 5, 7)), Conv2D(9, 3), Flatten(), Dense(5)]
    return (7, 9, 3), [Rescale(0.5), ReLU(), Permute((2, 0, 1)), Conv2D(20, 1), *rows, Permute((0, 1, 2, 3)), *end]


def numpy_between():
    return (3, 6, 6), [Conv2D(18, 3), ReLU(), Doubled(), Conv2D(4, 3), Flatten()]


MODELS = (plain, deep, mobile, mixed, in_place_branches, gated, convnext, permuted, numpy_between)


def built(make, dtype, seed=0):
    shape, layers = make()
    model, rng = Sequential(layers, input_shape=shape, seed=seed, dtype=dtype), np.random.default_rng(seed)
    for name, value in model.state_dict().items():
        if "running_mean" in name or "running_var" in name:
            model.load_state_dict(model.state_dict() | {name: rng.uniform(0.5, 2, value.shape).astype(dtype)})
    return model, rng.standard_normal((FULL + 1, *shape)).astype(dtype)
