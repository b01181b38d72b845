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

    Maps (c, h, w) to (filters, oh, ow), with
    `oh = (h - 1) * stride - pad + dilation * (kernel - 1) + output_padding + 1`, where `pad` is the padding of both
    sides together, as in PyTorch.

    Parameters
    ----------
    filters : int
        Number of output channels.
    kernel_size : int or (int, int)
        Kernel size of the convolution; a pair is (vertical, horizontal).
    stride : int or (int, int), default 1
        Stride of the convolution; a pair is (vertical, horizontal).
    padding : int, (int, int) or (int, int, int, int), default 0
        Rows and columns cropped from each side of the output: a number, a (vertical, horizontal) pair, or (top, bottom,
        left, right).
    output_padding : int or (int, int), default 0
        Additional rows at the bottom and columns at the right of the output, which select one of the sizes that the
        convolution maps to (h, w). Less than the stride or the dilation.
    dilation : int or (int, int), default 1
        Dilation of the convolution; a pair is (vertical, horizontal).
    groups : int, default 1
        Number of groups of input and output channels; each group is convolved independently.
    use_bias : bool, default True
        False omits the bias.
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
    Learned parameters: `weight` (c, filters / groups, kernel height, kernel width), damped He-uniform with the average
    fan-in of an output; `bias` (filters,), zero.

    Examples
    --------
    A kernel of ones writes each pixel to a square of its own:

    >>> from minidl import Sequential
    >>> from minidl.initializers import ones
    >>> from minidl.layers import ConvTranspose2D
    >>> model = Sequential([ConvTranspose2D(1, 2, stride=2, kernel_initializer=ones)], input_shape=(1, 2, 2))
    >>> print(model.predict([[[[1, 2], [3, 4]]]])[0, 0])
    [[1. 1. 2. 2.]
     [1. 1. 2. 2.]
     [3. 3. 4. 4.]
     [3. 3. 4. 4.]]

    A Conv2D of the same arguments maps 27 and 28 rows to 14; `output_padding` selects 28:

    >>> layer = ConvTranspose2D(8, 3, stride=2, padding=1, output_padding=1)
    >>> Sequential([layer], input_shape=(16, 14, 14)).output_shape
    (8, 28, 28)
    """

    takes_images = True

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

    Maps (c, length) to (filters, out), with
    `out = (length - 1) * stride - pad + dilation * (kernel - 1) + output_padding + 1`, where `pad` is the padding of
    both sides together.

    Parameters
    ----------
    filters : int
        Number of output channels.
    kernel_size : int
        Kernel size of the convolution.
    stride : int, default 1
        Stride of the convolution.
    padding : int or (int, int), default 0
        Elements cropped from each side of the output; a pair is (left, right).
    output_padding : int, default 0
        Additional elements on the right of the output, as in ConvTranspose2D. Less than the stride or the dilation.
    dilation : int, default 1
        Dilation of the convolution.
    groups : int, default 1
        Number of groups of input and output channels; each group is convolved independently.
    use_bias : bool, default True
        False omits the bias.
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
    Learned parameters: `weight` (c, filters / groups, kernel_size), damped He-uniform with the average fan-in of an
    output; `bias` (filters,), zero.

    Examples
    --------
    Each input adds a multiple of the kernel to the output; with a stride of 1 they overlap:

    >>> from minidl import Sequential
    >>> from minidl.layers import ConvTranspose1D
    >>> for stride in 2, 1:
    ...     model = Sequential([ConvTranspose1D(1, 2, stride)], input_shape=(1, 3))
    ...     model.params["0.weight"].value[...] = [[[1, 10]]]
    ...     print(model.predict([[[1, 2, 3]]])[0])
    [[ 1. 10.  2. 20.  3. 30.]]
    [[ 1. 12. 23. 30.]]
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
