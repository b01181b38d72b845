"""The layers, one file for each kernel of minidl_c, with the same name."""

from minidl.layers.activations import ELU, GELU, Hardswish, LeakyReLU, Sigmoid, SiLU, Tanh
from minidl.layers.augment import RandomCrop, RandomFlip, RandomShift
from minidl.layers.avgpool2d import AvgPool2D, GlobalAvgPool2D
from minidl.layers.batchnorm import BatchNorm1D, BatchNorm2D
from minidl.layers.columns import Columns
from minidl.layers.conv2d import Conv2D
from minidl.layers.conv_transpose2d import ConvTranspose2D
from minidl.layers.dense import Dense
from minidl.layers.depthwise_conv2d import DepthwiseConv2D
from minidl.layers.dropout import Dropout
from minidl.layers.embedding import Embedding
from minidl.layers.flatten import Flatten, Reshape
from minidl.layers.groupnorm import GroupNorm, LayerNorm
from minidl.layers.maxpool2d import GlobalMaxPool2D, MaxPool2D
from minidl.layers.normalize import Normalize
from minidl.layers.pad2d import Pad2D
from minidl.layers.parallel import Block, Parallel
from minidl.layers.permute import ChannelShuffle, Permute
from minidl.layers.prelu import PReLU
from minidl.layers.relu import ReLU
from minidl.layers.rescale import Rescale
from minidl.layers.residual import Residual
from minidl.layers.softmax import Softmax
from minidl.layers.squeeze_excite import SqueezeExcite
from minidl.layers.upsample2d import Upsample2D

__all__ = [
    "ELU",
    "GELU",
    "AvgPool2D",
    "BatchNorm1D",
    "BatchNorm2D",
    "Block",
    "ChannelShuffle",
    "Columns",
    "Conv2D",
    "ConvTranspose2D",
    "Dense",
    "DepthwiseConv2D",
    "Dropout",
    "Embedding",
    "Flatten",
    "GlobalAvgPool2D",
    "GlobalMaxPool2D",
    "GroupNorm",
    "Hardswish",
    "LayerNorm",
    "LeakyReLU",
    "MaxPool2D",
    "Normalize",
    "PReLU",
    "Pad2D",
    "Parallel",
    "Permute",
    "RandomCrop",
    "RandomFlip",
    "RandomShift",
    "ReLU",
    "Rescale",
    "Reshape",
    "Residual",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "SqueezeExcite",
    "Tanh",
    "Upsample2D",
]
