"""Conv2D and Conv1D: convolutions of images and of signals."""

from __future__ import annotations

import math

from minidl.initializers import Init, check_initializer, damped_he_uniform, zeros
from minidl.layers.base import Layer
from minidl.layers.param import order_without_height
from minidl.utils.validation import (
    Pair,
    Shape,
    check_bool,
    check_choice,
    check_image_shape,
    check_int,
    check_pair,
    check_signal_shape,
    resolve_padding,
    resolve_padding_1d,
)
from minidl_c.kernels.conv2d import Conv2DOp


class Conv2D(Layer):
    """2-D convolution (cross-correlation, as usual in deep learning) with `filters` learned kernels.

    (c, h, w) -> (filters, oh, ow) with oh = (h + padding - dilation * (kernel - 1) - 1) // stride + 1.

    filters: number of output channels.
    kernel_size, stride, dilation: an int, or a (vertical, horizontal) pair.
    padding: zeros on each side, an int or pair. "valid" is 0. "same" makes oh = ceil(h / stride); an odd zero is added
        at the bottom or right (as in TensorFlow, and in PyTorch for stride 1).
    groups: the number of groups of input and output channels; each group is convolved independently.
    use_bias: False omits the bias, as is usual before a batch norm, which would cancel it.
    kernel_initializer, bias_initializer: functions f(rng, shape), such as those of minidl.initializers.
    algorithm: "direct" sums the products of the formula. "winograd" needs a quarter of the multiplications, for y and
        the gradients (F(4x4, 3x3)); per-example gradients use the direct sum. It takes kernels of 3x3 with stride,
        dilation and groups of 1, channels and filters in multiples of 16, and images and outputs of at least 8x8 (of
        16 patches of 4x4 if channels * filters is above 32768). "auto" is "winograd" where it can be.
        docs/explanation/winograd.md; Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2015), arXiv:1509.09308.

    Parameters: weight (filters, c / groups, kernel height, kernel width), damped He-uniform; bias (filters,), zero.
    Raises TypeError or ValueError in build for invalid arguments or input shapes.
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
        algorithm: str = "auto",
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
        self.algorithm = algorithm

    def build(self, in_shape: Shape) -> Shape:
        channels, height, width = check_image_shape(in_shape)
        filters, groups = check_int("filters", self.filters), check_int("groups", self.groups)
        kernel, stride = check_pair("kernel_size", self.kernel_size), check_pair("stride", self.stride)
        dilation, use_bias = check_pair("dilation", self.dilation), check_bool("use_bias", self.use_bias)
        padding = resolve_padding(self.padding, (height, width), kernel, stride, dilation)
        window = (kernel, stride, padding, dilation)
        algorithm = check_choice("algorithm", self.algorithm, "auto", "direct", "winograd")
        self.op = Conv2DOp(in_shape, filters, *window, groups, self.dtype, use_bias=use_bias, algorithm=algorithm)
        init = check_initializer("kernel_initializer", self.kernel_initializer)
        self.weight = self.param("weight", (filters, channels // groups, *kernel), init, self.op.weight_order)
        if use_bias:
            self.bias = self.param("bias", (filters,), check_initializer("bias_initializer", self.bias_initializer))
        self.macs = self.weight.value.size * math.prod(self.op.out_shape[1:])
        return self.op.out_shape

    @property
    def uses_winograd(self) -> bool:
        """True if the layer is built and uses Winograd's algorithm."""
        return self.op is not None and self.op.uses_winograd


class Conv1D(Layer):
    """1-D convolution (cross-correlation) with `filters` learned kernels: Conv2D on an image of height 1.

    (c, length) -> (filters, out) with
    out = (length + padding of both sides - dilation * (kernel - 1) - 1) // stride + 1.

    filters: number of output channels.
    kernel_size, stride, dilation: ints.
    padding: zeros on each side, an int or a (left, right) pair. "valid" is 0. "same" makes out = ceil(length / stride),
        with an odd zero on the right. "causal" adds all dilation * (kernel - 1) zeros on the left, so that with a
        stride of 1 output i depends on no input after i, as in WaveNet (van den Oord et al. 2016, arXiv:1609.03499).
    groups, use_bias, kernel_initializer, bias_initializer: as in Conv2D.

    Parameters: weight (filters, c / groups, kernel_size), damped He-uniform; bias (filters,), zero.
    Raises TypeError or ValueError in build for invalid arguments or input shapes.
    """

    def __init__(
        self,
        filters: int,
        kernel_size: int,
        stride: int = 1,
        padding: int | Pair | str = "valid",
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
        self.dilation = dilation
        self.groups = groups
        self.use_bias = use_bias
        self.kernel_initializer = kernel_initializer
        self.bias_initializer = bias_initializer

    def build(self, in_shape: Shape) -> Shape:
        channels, length = check_signal_shape(in_shape)
        filters, groups = check_int("filters", self.filters), check_int("groups", self.groups)
        kernel, stride = check_int("kernel_size", self.kernel_size), check_int("stride", self.stride)
        dilation, use_bias = check_int("dilation", self.dilation), check_bool("use_bias", self.use_bias)
        padding = (0, 0, *resolve_padding_1d(self.padding, length, kernel, stride, dilation))
        window = ((1, kernel), (1, stride), padding, (1, dilation))
        self.op = Conv2DOp((channels, 1, length), filters, *window, groups, self.dtype, use_bias=use_bias)
        init = check_initializer("kernel_initializer", self.kernel_initializer)
        order = order_without_height(self.op.weight_order)
        self.weight = self.param("weight", (filters, channels // groups, kernel), init, order)
        if use_bias:
            self.bias = self.param("bias", (filters,), check_initializer("bias_initializer", self.bias_initializer))
        out_length = self.op.out_shape[2]
        self.macs = self.weight.value.size * out_length
        return filters, out_length
