"""ConvTranspose2D: a convolution the other way round."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from minidl.initializers import BY_INPUTS, Init, checked, damped_he_uniform, zeros
from minidl.layers.base import Layer
from minidl.utils.arrays import Array, as_array
from minidl.utils.validation import Pair, Shape, check_bool, check_image_shape, check_int, check_pair
from minidl_c.kernels.conv_transpose2d import ConvTranspose2DOp


class ConvTranspose2D(Layer):
    """Transposed convolution, which makes images larger: the gradient of a convolution with regard to its input.

    (c, h, w) becomes (filters, oh, ow) with
    oh = (h - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1, as in PyTorch.

    filters: number of output channels.
    kernel_size, stride, dilation: those of the convolution; a number, or a (vertical, horizontal) pair.
    padding: rows and columns that are cut off on each side of the output, a number or pair.
    output_padding: rows and columns more at the bottom and right, where several sizes would lead a convolution to
        (h, w); less than the stride or the dilation.
    groups: input and output channels are cut into so many groups that do not see each other.
    use_bias: False leaves the bias out.
    kernel_initializer, bias_initializer: functions f(rng, shape), such as those of minidl.initializers.

    Parameters: weight (c, filters / groups, kernel height, kernel width), damped He-uniform for as many inputs as
    an output has on average; bias (filters,), zero.
    Raises TypeError or ValueError in build for arguments or input shapes that make no sense.
    """

    def __init__(
        self,
        filters: int,
        kernel_size: int | Pair,
        stride: int | Pair = 1,
        padding: int | Pair = 0,
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
        padding, extra = (
            check_pair("padding", self.padding, least=0),
            check_pair("output_padding", self.output_padding, least=0),
        )
        dilation, use_bias = check_pair("dilation", self.dilation), check_bool("use_bias", self.use_bias)
        window = (kernel, stride, padding, extra, dilation)
        self.op = ConvTranspose2DOp(in_shape, filters, *window, groups, self.dtype, use_bias=use_bias)
        init = partial(_turned, checked("kernel_initializer", self.kernel_initializer), stride, groups)
        self.weight = self.param("weight", (channels, filters // groups, *kernel), init)
        if use_bias:
            self.bias = self.param("bias", (filters,), checked("bias_initializer", self.bias_initializer))
        self.macs = self.weight.value.size * height * width
        return self.op.out_shape


def _turned(init: Init, stride: Pair, groups: int, rng: np.random.Generator, shape: Shape) -> Array:
    """What `init` makes of (filters, channels / groups, ...), in the order of this layer's weight.

    Of the taps, as many as the stride leaves are inputs of an output.
    """
    channels, filters, *kernel = shape
    values = as_array(init(rng, (filters * groups, channels // groups, *kernel)), "init of 'weight'")
    if values.shape != (filters * groups, channels // groups, *kernel):
        return values  # `param` says what is wrong with it
    if init in BY_INPUTS:
        values = values * math.sqrt(math.prod(min(k, s) for k, s in zip(kernel, stride, strict=True)))
    return values.reshape(groups, filters, channels // groups, *kernel).swapaxes(1, 2).reshape(shape)
