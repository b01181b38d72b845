"""The nets and images of c_compilers.py: trained for an epoch on MNIST, or on the 8x8 digits without it."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import nets

from minidl import Sequential, Trainer, layers
from minidl.datasets import DatasetUnavailable, load_digits, load_mnist
from minidl.layers import (
    AdaptiveAvgPool2D,
    AdaptiveMaxPool2D,
    AvgPool1D,
    AvgPool2D,
    BatchNorm1D,
    BatchNorm2D,
    Block,
    ChannelShuffle,
    ColorJitter,
    Columns,
    Conv1D,
    Conv2D,
    ConvTranspose1D,
    ConvTranspose2D,
    Cutout,
    Dense,
    DepthwiseConv1D,
    DepthwiseConv2D,
    Dropout,
    Dropout2D,
    Embedding,
    Flatten,
    GaussianNoise,
    GlobalAvgPool1D,
    GlobalAvgPool2D,
    GlobalMaxPool1D,
    GlobalMaxPool2D,
    GroupNorm,
    LayerNorm,
    LogSoftmax,
    MaxPool1D,
    MaxPool2D,
    Normalize,
    Pad2D,
    Parallel,
    Permute,
    PReLU,
    RandomCrop,
    RandomFlip,
    RandomRotation,
    RandomShift,
    RandomZoom,
    ReLU,
    Rescale,
    Reshape,
    Residual,
    RMSNorm,
    Scale,
    Softmax,
    Softmin,
    SqueezeExcite,
    StochasticDepth,
    Threshold,
    Upsample2D,
)
from minidl.optimizers import SGD

TRAINING = 2000  # examples
ELEMENTWISE = """
CELU ELU Exp GELU HardSigmoid Hardshrink Hardswish Hardtanh LeakyReLU LogSigmoid Mish ReLU6 SELU SiLU Sigmoid Softplus
Softshrink Softsign SparsePlus Squareplus Tanh Tanhshrink
"""


def every_layer():
    """Returns layers among which are all of minidl's: an embedding of some pixels beside a net for images."""
    augmentation = [RandomShift(1), RandomFlip(), RandomRotation(5), RandomZoom(0.1), ColorJitter(0.1), Cutout(3)]
    stem = [Rescale(1 / 255), *augmentation, RandomCrop(26), Normalize(0.13, 0.31), Pad2D(1), GaussianNoise(0.01)]
    body = [
        Conv2D(16, 3, padding=1), BatchNorm2D(), ReLU(), Conv2D(16, 3, padding=1), PReLU(), MaxPool2D(2),
        Residual(DepthwiseConv2D(3, padding=1, depth_multiplier=2), Conv2D(16, 1, groups=4), StochasticDepth(0.1)),
        SqueezeExcite(4), ChannelShuffle(4), GroupNorm(4), Dropout2D(0.1),
        Parallel(Conv2D(8, 3, dilation=2, padding=2), [AvgPool2D(3, 1, padding=1), Conv2D(8, 1)]),
        LayerNorm(axis="channels"), RMSNorm(), Scale(0.9, use_bias=True), ConvTranspose2D(8, 3, stride=2, padding=1),
        AvgPool2D(2, ceil_mode=True), Upsample2D(size=(17, 19), mode="bilinear"), AdaptiveAvgPool2D((9, 7)),
        Upsample2D(2), AdaptiveMaxPool2D((6, 5)), Permute((0, 2, 1)),
    ]  # fmt: skip
    signal = [
        Reshape((8, 30)), Conv1D(12, 3, padding="causal"), DepthwiseConv1D(3, padding="same"), BatchNorm1D(),
        MaxPool1D(2), ConvTranspose1D(10, 4, stride=2), AvgPool1D(2), Parallel(GlobalAvgPool1D(), GlobalMaxPool1D()),
    ]  # fmt: skip
    ends = Parallel(GlobalAvgPool2D(), GlobalMaxPool2D(), Block(*signal))
    functions = [getattr(layers, name)() for name in ELEMENTWISE.split()] + [Threshold(0.1, -0.2), Softmin()]
    branches = [[Columns(2 * i, 2 * i + 2), function] for i, function in enumerate(functions)]
    head = [ends, Dense(2 * len(branches)), LayerNorm(), Parallel(*branches), Dropout(0.1)]
    pixels = [Flatten(), Columns(400, 410), Embedding(256, 2), Flatten()]
    return [Parallel(pixels, Block(*stem, *body, *head)), Dense(10), Parallel(Softmax(), LogSoftmax()), Dense(10)]


NETS = {name: nets.ALL_NETS[name] for name in ("lenet", "cnn", "mlp", "vgg", "resnet20", "mobilenet")}
NETS["every"] = nets.Net("a net with every layer", every_layer)


def load_images():
    """Returns training images with labels, and test images (n, 1, 28, 28), as bytes; True if they are MNIST's."""
    try:
        data = load_mnist()
        return (data.X_train[:TRAINING], data.y_train[:TRAINING]), data.X_test[:1000], True
    except DatasetUnavailable:
        digits = load_digits()
        X = np.pad(np.kron(digits.X_train, np.ones((3, 3), "uint8")), ((0, 0), (0, 0), (2, 2), (2, 2)))
        return (X, digits.y_train), X[:1000], False


def as_shape(images, shape):
    """Returns images of 28x28 as those of a net: padded, and in three colours, for 3x32x32."""
    if shape == (1, 28, 28):
        return images
    padded = np.pad(images, ((0, 0), (0, 0), (2, 2), (2, 2)))
    return np.concatenate([padded, padded // 2, 255 - padded], axis=1)


def trained(name, examples):
    """Returns a net after an epoch."""
    model = NETS[name].model()
    X, y = examples
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.01, momentum=0.9))
    trainer.fit(as_shape(X, model.input_shape), y, epochs=1, batch_size=32, verbose=0)
    return model


def in_dtype(name, model, dtype):
    """Returns the model with its weights in a dtype."""
    copy = Sequential(NETS[name].layers(), model.input_shape, dtype=dtype)
    copy.load_state_dict(model.state_dict())
    return copy


def missing_layers():
    """Returns the names of minidl's layers that are not in the net with every layer."""
    kinds = set()

    def visit(layer):
        kinds.add(type(layer).__name__)
        for _, child in getattr(layer, "named_children", lambda: ())():
            visit(child)

    for layer in every_layer():
        visit(layer)
    return set(layers.__all__) - kinds
