"""The layers: one class a file, each beside the kernel of the same name in minidl_c."""

from minidl.layers.activations import ELU, GELU, Hardswish, LeakyReLU, SiLU, Sigmoid, Tanh
from minidl.layers.batchnorm import BatchNorm1D, BatchNorm2D
from minidl.layers.conv2d import Conv2D
from minidl.layers.dense import Dense
from minidl.layers.dropout import Dropout
from minidl.layers.flatten import Flatten
from minidl.layers.groupnorm import GroupNorm, LayerNorm
from minidl.layers.maxpool2d import MaxPool2D
from minidl.layers.prelu import PReLU
from minidl.layers.relu import ReLU
from minidl.layers.rescale import Rescale
from minidl.layers.softmax import Softmax

__all__ = [
    "BatchNorm1D",
    "BatchNorm2D",
    "Conv2D",
    "Dense",
    "Dropout",
    "ELU",
    "Flatten",
    "GELU",
    "GroupNorm",
    "Hardswish",
    "LayerNorm",
    "LeakyReLU",
    "MaxPool2D",
    "PReLU",
    "ReLU",
    "Rescale",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Tanh",
]
