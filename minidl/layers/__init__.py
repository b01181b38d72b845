"""The layers: a file each (or for those of one kernel), beside the kernel of the same name in minidl_c."""

from minidl.layers.batchnorm import BatchNorm1D, BatchNorm2D
from minidl.layers.conv2d import Conv2D
from minidl.layers.dense import Dense
from minidl.layers.dropout import Dropout
from minidl.layers.flatten import Flatten
from minidl.layers.groupnorm import GroupNorm, LayerNorm
from minidl.layers.maxpool2d import MaxPool2D
from minidl.layers.relu import ReLU
from minidl.layers.rescale import Rescale

__all__ = [
    "BatchNorm1D",
    "BatchNorm2D",
    "Conv2D",
    "Dense",
    "Dropout",
    "Flatten",
    "GroupNorm",
    "LayerNorm",
    "MaxPool2D",
    "ReLU",
    "Rescale",
]
