"""Conv2D: a 2-D convolution."""

from __future__ import annotations

import math

from minidl.initializers import Init, checked, damped_he_uniform, zeros
from minidl.layers.base import Layer
from minidl.utils.validation import Pair, Shape, check_bool, check_image_shape, check_int, check_pair, resolve_padding
from minidl_c.kernels.conv2d import Conv2DOp


class Conv2D(Layer):
    """Convolution (cross-correlation, as everywhere in deep learning) with `filters` learned kernels.

    (c, h, w) becomes (filters, oh, ow) with oh = (h + padding - dilation * (kernel - 1) - 1) // stride + 1.

    filters: number of output channels.
    kernel_size, stride, dilation: a number, or a (vertical, horizontal) pair.
    padding: zeros on each side, a number or pair; "valid" is 0; "same" makes oh = ceil(h / stride), the odd zero going
        behind (as TensorFlow does, and PyTorch for stride 1).
    groups: input and output channels are cut into so many groups that do not see each other.
    use_bias: False leaves the bias out, as in front of a batch norm, which would take it away again.
    kernel_initializer, bias_initializer: functions f(rng, shape), such as those of minidl.initializers.

    Parameters: weight (filters, c / groups, kernel height, kernel width), damped He-uniform; bias (filters,), zero.
    Raises TypeError or ValueError in build for arguments or input shapes that make no sense.
    """

    def __init__(
        self,
        filters: int,
        kernel_size: int | Pair,
        stride: int | Pair = 1,
        padding: int | Pair | str = "valid",
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
        self.dilation = dilation
        self.groups = groups
        self.use_bias = use_bias
        self.kernel_initializer = kernel_initializer
        self.bias_initializer = bias_initializer

    def build(self, in_shape: Shape) -> Shape:
        channels, height, width = check_image_shape(in_shape)
        filters, groups = check_int("filters", self.filters), check_int("groups", self.groups)
        kernel, stride = check_pair("kernel_size", self.kernel_size), check_pair("stride", self.stride)
        dilation, use_bias = check_pair("dilation", self.dilation), check_bool("use_bias", self.use_bias)
        padding = resolve_padding(self.padding, (height, width), kernel, stride, dilation)
        window = (kernel, stride, padding, dilation)
        self.op = Conv2DOp(in_shape, filters, *window, groups, self.dtype, use_bias=use_bias)
        init = checked("kernel_initializer", self.kernel_initializer)
        self.weight = self.param("weight", (filters, channels // groups, *kernel), init)
        if use_bias:
            self.bias = self.param("bias", (filters,), checked("bias_initializer", self.bias_initializer))
        self.macs = self.weight.value.size * math.prod(self.op.out_shape[1:])
        return self.op.out_shape
