"""The layers, one file for each kernel of minidl_c, with the same name."""

from minidl.layers.activations import (
    CELU,
    ELU,
    GELU,
    SELU,
    Exp,
    Hardshrink,
    HardSigmoid,
    Hardswish,
    Hardtanh,
    LeakyReLU,
    LogSigmoid,
    Mish,
    ReLU6,
    Sigmoid,
    SiLU,
    Softplus,
    Softshrink,
    Softsign,
    SparsePlus,
    Squareplus,
    Tanh,
    Tanhshrink,
    Threshold,
)
from minidl.layers.augment import RandomCrop, RandomFlip, RandomShift
from minidl.layers.avgpool2d import AvgPool2D, GlobalAvgPool2D
from minidl.layers.batchnorm import BatchNorm1D, BatchNorm2D
from minidl.layers.conv2d import Conv2D
from minidl.layers.conv_transpose2d import ConvTranspose2D
from minidl.layers.dense import Dense
from minidl.layers.depthwise_conv2d import DepthwiseConv2D
from minidl.layers.dropout import Dropout
from minidl.layers.flatten import Flatten, Reshape
from minidl.layers.groupnorm import GroupNorm, LayerNorm
from minidl.layers.maxpool2d import GlobalMaxPool2D, MaxPool2D
from minidl.layers.normalize import Normalize
from minidl.layers.pad2d import Pad2D
from minidl.layers.parallel import Block, Parallel
from minidl.layers.prelu import PReLU
from minidl.layers.relu import ReLU
from minidl.layers.rescale import Rescale
from minidl.layers.residual import Residual
from minidl.layers.softmax import LogSoftmax, Softmax, Softmin
from minidl.layers.upsample2d import Upsample2D

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "SELU",
    "AvgPool2D",
    "BatchNorm1D",
    "BatchNorm2D",
    "Block",
    "Conv2D",
    "ConvTranspose2D",
    "Dense",
    "DepthwiseConv2D",
    "Dropout",
    "Exp",
    "Flatten",
    "GlobalAvgPool2D",
    "GlobalMaxPool2D",
    "GroupNorm",
    "HardSigmoid",
    "Hardshrink",
    "Hardswish",
    "Hardtanh",
    "LayerNorm",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "MaxPool2D",
    "Mish",
    "Normalize",
    "PReLU",
    "Pad2D",
    "Parallel",
    "RandomCrop",
    "RandomFlip",
    "RandomShift",
    "ReLU",
    "ReLU6",
    "Rescale",
    "Reshape",
    "Residual",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softmin",
    "Softplus",
    "Softshrink",
    "Softsign",
    "SparsePlus",
    "Squareplus",
    "Tanh",
    "Tanhshrink",
    "Threshold",
    "Upsample2D",
]
