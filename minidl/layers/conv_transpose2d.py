"""ConvTranspose2D and ConvTranspose1D: transposed convolutions of images and of signals."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from minidl.initializers import FAN_IN_INITIALIZERS, Init, check_initializer, damped_he_uniform, zeros
from minidl.layers.base import Layer
from minidl.layers.param import order_without_height
from minidl.utils.arrays import Array, as_array
from minidl.utils.validation import (
    Padding4,
    Pair,
    Shape,
    check_bool,
    check_image_shape,
    check_int,
    check_pair,
    check_sides,
    check_signal_shape,
)
from minidl_c.kernels.conv_transpose2d import ConvTranspose2DOp


class ConvTranspose2D(Layer):
    """Transposed convolution, for upsampling: the gradient of a convolution with respect to its input.

    (c, h, w) -> (filters, oh, ow) with
    oh = (h - 1) * stride - padding of both sides + dilation * (kernel - 1) + output_padding + 1, as in PyTorch.

    filters: number of output channels.
    kernel_size, stride, dilation: those of the convolution; an int, or a (vertical, horizontal) pair.
    padding: rows and columns cropped from each side of the output, an int, a pair, or (top, bottom, left, right).
    output_padding: additional rows at the bottom and columns at the right of the output, which select one of the sizes
        that the convolution maps to (h, w). Must be less than the stride or the dilation.
    groups: the number of groups of input and output channels; each group is convolved independently.
    use_bias: False omits the bias.
    kernel_initializer, bias_initializer: functions f(rng, shape), such as those of minidl.initializers.

    Parameters: weight (c, filters / groups, kernel height, kernel width), damped He-uniform with the average fan-in of
    an output; bias (filters,), zero.
    Raises TypeError or ValueError in build for invalid arguments or input shapes.
    """

    def __init__(
        self,
        filters: int,
        kernel_size: int | Pair,
        stride: int | Pair = 1,
        padding: int | Pair | Padding4 = 0,
        output_padding: int | Pair = 0,
        dilation: int | Pair = 1,
        groups: int = 1,
        use_bias: bool = True,
        kernel_initializer: Init = damped_he_uniform,
        bias_initializer: Init = zeros,
    ) -> None:
        self.filters = filters
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.output_padding = output_padding
        self.dilation = dilation
        self.groups = groups
        self.use_bias = use_bias
        self.kernel_initializer = kernel_initializer
        self.bias_initializer = bias_initializer

    def build(self, in_shape: Shape) -> Shape:
        channels, height, width = check_image_shape(in_shape)
        filters, groups = check_int("filters", self.filters), check_int("groups", self.groups)
        kernel, stride = check_pair("kernel_size", self.kernel_size), check_pair("stride", self.stride)
        padding = check_sides("padding", self.padding)
        extra = check_pair("output_padding", self.output_padding, minimum=0)
        dilation, use_bias = check_pair("dilation", self.dilation), check_bool("use_bias", self.use_bias)
        window = (kernel, stride, padding, extra, dilation)
        self.op = ConvTranspose2DOp(in_shape, filters, *window, groups, self.dtype, use_bias=use_bias)
        init = partial(_init_weight, check_initializer("kernel_initializer", self.kernel_initializer), stride, groups)
        self.weight = self.param("weight", (channels, filters // groups, *kernel), init, self.op.weight_order)
        if use_bias:
            self.bias = self.param("bias", (filters,), check_initializer("bias_initializer", self.bias_initializer))
        self.macs = self.weight.value.size * height * width
        return self.op.out_shape


class ConvTranspose1D(Layer):
    """Transposed 1-D convolution: ConvTranspose2D on an image of height 1.

    (c, length) -> (filters, out) with
    out = (length - 1) * stride - padding of both sides + dilation * (kernel - 1) + output_padding + 1.

    filters: number of output channels.
    kernel_size, stride, dilation, output_padding: ints, as in ConvTranspose2D.
    padding: what is cropped from each side of the output, an int or a (left, right) pair.
    groups, use_bias, kernel_initializer, bias_initializer: as in ConvTranspose2D.

    Parameters: weight (c, filters / groups, kernel_size), damped He-uniform with the average fan-in of an output;
    bias (filters,), zero.
    Raises TypeError or ValueError in build for invalid arguments or input shapes.
    """

    def __init__(
        self,
        filters: int,
        kernel_size: int,
        stride: int = 1,
        padding: int | Pair = 0,
        output_padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        use_bias: bool = True,
        kernel_initializer: Init = damped_he_uniform,
        bias_initializer: Init = zeros,
    ) -> None:
        self.filters = filters
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.output_padding = output_padding
        self.dilation = dilation
        self.groups = groups
        self.use_bias = use_bias
        self.kernel_initializer = kernel_initializer
        self.bias_initializer = bias_initializer

    def build(self, in_shape: Shape) -> Shape:
        channels, length = check_signal_shape(in_shape)
        filters, groups = check_int("filters", self.filters), check_int("groups", self.groups)
        kernel, stride = check_int("kernel_size", self.kernel_size), check_int("stride", self.stride)
        padding = (0, 0, *check_pair("padding", self.padding, minimum=0))
        extra = (0, check_int("output_padding", self.output_padding, minimum=0))
        dilation, use_bias = check_int("dilation", self.dilation), check_bool("use_bias", self.use_bias)
        window = ((1, kernel), (1, stride), padding, extra, (1, dilation))
        self.op = ConvTranspose2DOp((channels, 1, length), filters, *window, groups, self.dtype, use_bias=use_bias)
        init = check_initializer("kernel_initializer", self.kernel_initializer)
        init, order = partial(_init_weight, init, (stride,), groups), order_without_height(self.op.weight_order)
        self.weight = self.param("weight", (channels, filters // groups, kernel), init, order)
        if use_bias:
            self.bias = self.param("bias", (filters,), check_initializer("bias_initializer", self.bias_initializer))
        self.macs = self.weight.value.size * length
        return filters, self.op.out_shape[2]


def _init_weight(init: Init, stride: Shape, groups: int, rng: np.random.Generator, shape: Shape) -> Array:
    """Returns the values of `init` for shape (filters, channels / groups, ...), in the layout of this layer's weight.

    The fan-in counts only the taps that reach an output, of which there are fewer with a stride.
    """
    channels, filters, *kernel = shape
    values = as_array(init(rng, (filters * groups, channels // groups, *kernel)), "init of 'weight'")
    if values.shape != (filters * groups, channels // groups, *kernel):
        return values  # `param` raises the error
    if init in FAN_IN_INITIALIZERS:
        values = values * math.sqrt(math.prod(min(k, s) for k, s in zip(kernel, stride, strict=True)))
    return values.reshape(groups, filters, channels // groups, *kernel).swapaxes(1, 2).reshape(shape)
