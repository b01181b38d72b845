"""The layers, one file for each kernel of minidl_c, with the same name."""

import typing

from minidl.layers.activations import (
    CELU,
    ELU,
    GELU,
    SELU,
    Abs,
    Exp,
    Hardshrink,
    HardSigmoid,
    Hardswish,
    Hardtanh,
    LeakyReLU,
    Log,
    LogSigmoid,
    Mish,
    Reciprocal,
    ReLU6,
    Sigmoid,
    SiLU,
    Softplus,
    Softshrink,
    Softsign,
    SparsePlus,
    Sqrt,
    Square,
    Squareplus,
    Tanh,
    Tanhshrink,
    Threshold,
)
from minidl.layers.affine import RandomRotation, RandomZoom
from minidl.layers.augment import RandomCrop, RandomFlip, RandomRotate90, RandomShift
from minidl.layers.avgpool2d import AdaptiveAvgPool2D, AvgPool1D, AvgPool2D, GlobalAvgPool1D, GlobalAvgPool2D
from minidl.layers.batchnorm import BatchNorm1D, BatchNorm2D
from minidl.layers.color_jitter import ColorJitter
from minidl.layers.columns import Columns
from minidl.layers.conv2d import Conv1D, Conv2D
from minidl.layers.conv_transpose2d import ConvTranspose1D, ConvTranspose2D
from minidl.layers.cutout import Cutout
from minidl.layers.dense import Dense
from minidl.layers.depthwise_conv2d import DepthwiseConv1D, DepthwiseConv2D
from minidl.layers.dropout import Dropout, Dropout2D, StochasticDepth
from minidl.layers.embedding import Embedding
from minidl.layers.flatten import Flatten, Reshape
from minidl.layers.groupnorm import GroupNorm
from minidl.layers.layernorm import LayerNorm, RMSNorm
from minidl.layers.lrn import LocalResponseNorm
from minidl.layers.maxpool2d import AdaptiveMaxPool2D, GlobalMaxPool1D, GlobalMaxPool2D, MaxPool1D, MaxPool2D
from minidl.layers.noise import GaussianNoise
from minidl.layers.normalize import Normalize
from minidl.layers.one_hot import OneHot
from minidl.layers.outputs import Outputs
from minidl.layers.pad2d import Pad1D, Pad2D
from minidl.layers.parallel import Block, Parallel
from minidl.layers.permute import ChannelShuffle, Permute, PixelShuffle, PixelUnshuffle
from minidl.layers.piecewise_linear_encoding import PiecewiseLinearEncoding
from minidl.layers.prelu import PReLU
from minidl.layers.recurrent import GRU, LSTM, Bidirectional, SimpleRNN
from minidl.layers.reduce import Reduce
from minidl.layers.relu import ReLU
from minidl.layers.rescale import Rescale
from minidl.layers.residual import Residual
from minidl.layers.scale import Scale
from minidl.layers.softmax import LogSoftmax, Softmax, Softmin
from minidl.layers.squeeze_excite import SqueezeExcite
from minidl.layers.upsample2d import Upsample2D
from minidl.utils import foreign_words, hints

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "GRU",
    "LSTM",
    "SELU",
    "Abs",
    "AdaptiveAvgPool2D",
    "AdaptiveMaxPool2D",
    "AvgPool1D",
    "AvgPool2D",
    "BatchNorm1D",
    "BatchNorm2D",
    "Bidirectional",
    "Block",
    "ChannelShuffle",
    "ColorJitter",
    "Columns",
    "Conv1D",
    "Conv2D",
    "ConvTranspose1D",
    "ConvTranspose2D",
    "Cutout",
    "Dense",
    "DepthwiseConv1D",
    "DepthwiseConv2D",
    "Dropout",
    "Dropout2D",
    "Embedding",
    "Exp",
    "Flatten",
    "GaussianNoise",
    "GlobalAvgPool1D",
    "GlobalAvgPool2D",
    "GlobalMaxPool1D",
    "GlobalMaxPool2D",
    "GroupNorm",
    "HardSigmoid",
    "Hardshrink",
    "Hardswish",
    "Hardtanh",
    "LayerNorm",
    "LeakyReLU",
    "LocalResponseNorm",
    "Log",
    "LogSigmoid",
    "LogSoftmax",
    "MaxPool1D",
    "MaxPool2D",
    "Mish",
    "Normalize",
    "OneHot",
    "Outputs",
    "PReLU",
    "Pad1D",
    "Pad2D",
    "Parallel",
    "Permute",
    "PiecewiseLinearEncoding",
    "PixelShuffle",
    "PixelUnshuffle",
    "RMSNorm",
    "RandomCrop",
    "RandomFlip",
    "RandomRotate90",
    "RandomRotation",
    "RandomShift",
    "RandomZoom",
    "ReLU",
    "ReLU6",
    "Reciprocal",
    "Reduce",
    "Rescale",
    "Reshape",
    "Residual",
    "Scale",
    "SiLU",
    "Sigmoid",
    "SimpleRNN",
    "Softmax",
    "Softmin",
    "Softplus",
    "Softshrink",
    "Softsign",
    "SparsePlus",
    "Sqrt",
    "Square",
    "Squareplus",
    "SqueezeExcite",
    "StochasticDepth",
    "Tanh",
    "Tanhshrink",
    "Threshold",
    "Upsample2D",
]


if not typing.TYPE_CHECKING:  # for which an unknown name is an error of its own
    __getattr__ = hints.unknown_names(__name__, foreign_words.LAYERS, __all__)
