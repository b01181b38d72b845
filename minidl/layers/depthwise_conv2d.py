"""DepthwiseConv2D and DepthwiseConv1D: convolutions of each channel on its own."""

from __future__ import annotations

import math

from minidl.initializers import Init, check_initializer, damped_he_uniform, zeros
from minidl.layers.base import Layer
from minidl.layers.param import order_without_height
from minidl.utils.validation import (
    Pair,
    Shape,
    check_bool,
    check_image_shape,
    check_int,
    check_pair,
    check_signal_shape,
    resolve_padding,
    resolve_padding_1d,
)
from minidl_c.kernels.depthwise_conv2d import DepthwiseConv2DOp


class DepthwiseConv2D(Layer):
    """Convolution of each channel with `depth_multiplier` learned kernels of its own, as in MobileNets.

    Maps (c, h, w) to (c * depth_multiplier, oh, ow), with oh and ow as in Conv2D. Output channel
    `i * depth_multiplier + m` is the m-th of channel i. Followed by a Conv2D of kernel_size 1, it is a separable
    convolution. The weights are those of a Conv2D with `groups=c`, also in PyTorch; this layer is faster.

    Parameters
    ----------
    kernel_size : int or (int, int)
        Size of the kernels; a pair is (vertical, horizontal).
    stride : int or (int, int), default 1
        Step from output to output; a pair is (vertical, horizontal).
    padding : int, (int, int), "valid" or "same", default "valid"
        Zeros on each side, as in Conv2D.
    dilation : int or (int, int), default 1
        Step between the pixels that a kernel reads; a pair is (vertical, horizontal).
    depth_multiplier : int, default 1
        Number of output channels per input channel.
    use_bias : bool, default True
        False omits the bias, as is usual before a batch norm, which would cancel it.
    kernel_initializer : callable, default damped_he_uniform
        Function f(rng, shape) that returns the initial weight, such as those of `minidl.initializers`.
    bias_initializer : callable, default zeros
        Likewise for the bias.

    Raises
    ------
    TypeError, ValueError
        In `build`, for invalid arguments or input shapes.

    Notes
    -----
    Learned parameters: `weight` (c * depth_multiplier, 1, kernel height, kernel width), damped He-uniform; `bias`
    (c * depth_multiplier,), zero.

    Examples
    --------
    A separable convolution has 32 * 9 + 32 * 64 weights, where a Conv2D with kernels of 3x3 has 32 * 64 * 9:

    >>> from minidl import Sequential
    >>> from minidl.layers import Conv2D, DepthwiseConv2D
    >>> separable = [DepthwiseConv2D(3, padding=1, use_bias=False), Conv2D(64, 1, use_bias=False)]
    >>> for layers in separable, [Conv2D(64, 3, padding=1, use_bias=False)]:
    ...     model = Sequential(layers, input_shape=(32, 28, 28))
    ...     print(model.output_shape, sum(param.value.size for param in model.params.values()))
    (64, 28, 28) 2336
    (64, 28, 28) 18432
    """

    takes_images = True

    def __init__(
        self,
        kernel_size: int | Pair,
        stride: int | Pair = 1,
        padding: int | Pair | str = "valid",
        dilation: int | Pair = 1,
        depth_multiplier: int = 1,
        use_bias: bool = True,
        kernel_initializer: Init = damped_he_uniform,
        bias_initializer: Init = zeros,
    ) -> None:
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.depth_multiplier = depth_multiplier
        self.use_bias = use_bias
        self.kernel_initializer = kernel_initializer
        self.bias_initializer = bias_initializer

    def build(self, in_shape: Shape) -> Shape:
        channels, height, width = check_image_shape(in_shape)
        multiplier = check_int("depth_multiplier", self.depth_multiplier)
        kernel, stride = check_pair("kernel_size", self.kernel_size), check_pair("stride", self.stride)
        dilation, use_bias = check_pair("dilation", self.dilation), check_bool("use_bias", self.use_bias)
        padding = resolve_padding(self.padding, (height, width), kernel, stride, dilation)
        window = (kernel, stride, padding, dilation)
        self.op = DepthwiseConv2DOp(in_shape, *window, multiplier, self.dtype, use_bias=use_bias)
        init, filters = check_initializer("kernel_initializer", self.kernel_initializer), channels * multiplier
        self.weight = self.param("weight", (filters, 1, *kernel), init, self.op.weight_order)
        if use_bias:
            self.bias = self.param("bias", (filters,), check_initializer("bias_initializer", self.bias_initializer))
        self.macs = self.weight.value.size * math.prod(self.op.out_shape[1:])
        return self.op.out_shape


class DepthwiseConv1D(Layer):
    """1-D convolution of each channel with `depth_multiplier` learned kernels: DepthwiseConv2D on an image of height 1.

    Maps (c, length) to (c * depth_multiplier, out), with out as in Conv1D.

    Parameters
    ----------
    kernel_size : int
        Size of the kernels.
    stride : int, default 1
        Step from output to output.
    padding : int, (int, int), "valid", "same" or "causal", default "valid"
        Zeros on each side, as in Conv1D.
    dilation : int, default 1
        Step between the elements that a kernel reads.
    depth_multiplier : int, default 1
        Number of output channels per input channel.
    use_bias : bool, default True
        False omits the bias, as is usual before a batch norm, which would cancel it.
    kernel_initializer : callable, default damped_he_uniform
        Function f(rng, shape) that returns the initial weight, such as those of `minidl.initializers`.
    bias_initializer : callable, default zeros
        Likewise for the bias.

    Raises
    ------
    TypeError, ValueError
        In `build`, for invalid arguments or input shapes.

    Notes
    -----
    Learned parameters: `weight` (c * depth_multiplier, 1, kernel_size), damped He-uniform; `bias` (c *
    depth_multiplier,), zero.

    Examples
    --------
    The difference from the element before, of each channel by itself:

    >>> from minidl import Sequential
    >>> from minidl.layers import DepthwiseConv1D
    >>> model = Sequential([DepthwiseConv1D(2, padding="causal")], input_shape=(2, 4))
    >>> model.params["0.weight"].value[...] = [-1, 1]
    >>> print(model.predict([[[1, 2, 4, 7], [10, 10, 30, 30]]])[0])
    [[ 1.  1.  2.  3.]
     [10.  0. 20.  0.]]
    """

    def __init__(
        self,
        kernel_size: int,
        stride: int = 1,
        padding: int | Pair | str = "valid",
        dilation: int = 1,
        depth_multiplier: int = 1,
        use_bias: bool = True,
        kernel_initializer: Init = damped_he_uniform,
        bias_initializer: Init = zeros,
    ) -> None:
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.depth_multiplier = depth_multiplier
        self.use_bias = use_bias
        self.kernel_initializer = kernel_initializer
        self.bias_initializer = bias_initializer

    def build(self, in_shape: Shape) -> Shape:
        channels, length = check_signal_shape(in_shape)
        multiplier = check_int("depth_multiplier", self.depth_multiplier)
        kernel, stride = check_int("kernel_size", self.kernel_size), check_int("stride", self.stride)
        dilation, use_bias = check_int("dilation", self.dilation), check_bool("use_bias", self.use_bias)
        padding = (0, 0, *resolve_padding_1d(self.padding, length, kernel, stride, dilation))
        window = ((1, kernel), (1, stride), padding, (1, dilation))
        self.op = DepthwiseConv2DOp((channels, 1, length), *window, multiplier, self.dtype, use_bias=use_bias)
        init, filters = check_initializer("kernel_initializer", self.kernel_initializer), channels * multiplier
        self.weight = self.param("weight", (filters, 1, kernel), init, order_without_height(self.op.weight_order))
        if use_bias:
            self.bias = self.param("bias", (filters,), check_initializer("bias_initializer", self.bias_initializer))
        out_length = self.op.out_shape[2]
        self.macs = self.weight.value.size * out_length
        return filters, out_length
