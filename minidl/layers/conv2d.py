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

    Maps (c, h, w) to (filters, oh, ow), with `oh = (h + pad - dilation * (kernel - 1) - 1) // stride + 1`, where `pad`
    is the padding of both sides together.

    Parameters
    ----------
    filters : int
        Number of output channels.
    kernel_size : int or (int, int)
        Size of the kernels; a pair is (vertical, horizontal).
    stride : int or (int, int), default 1
        Step from output to output; a pair is (vertical, horizontal).
    padding : int, (int, int), "valid" or "same", default "valid"
        Zeros on each side: a number, or a (vertical, horizontal) pair. "valid" is 0. "same" makes
        `oh = ceil(h / stride)`; an odd zero is added at the bottom or right (as in TensorFlow, and in PyTorch for
        stride 1).
    dilation : int or (int, int), default 1
        Step between the pixels that a kernel reads; a pair is (vertical, horizontal).
    groups : int, default 1
        Number of groups of input and output channels; each group is convolved independently.
    use_bias : bool, default True
        False omits the bias, as is usual before a batch norm, which would cancel it.
    kernel_initializer : callable, default damped_he_uniform
        Function f(rng, shape) that returns the initial weight, such as those of `minidl.initializers`.
    bias_initializer : callable, default zeros
        Likewise for the bias.
    algorithm : "auto", "direct" or "winograd", default "auto"
        "direct" sums the products of the formula. "winograd" needs a quarter of the multiplications, for `y` and the
        gradients (F(4x4, 3x3)); per-example gradients use the direct sum. "auto" is "winograd" where images are
        large enough for it.

    Raises
    ------
    TypeError, ValueError
        In `build`, for invalid arguments or input shapes.

    Notes
    -----
    Learned parameters: `weight` (filters, c / groups, kernel height, kernel width), damped He-uniform; `bias`
    (filters,), zero.

    Winograd's algorithm takes kernels of 3x3 with stride, dilation and groups of 1, and channels and filters in
    multiples of 16. "auto" uses it for images and outputs of at least 8x8 (of 16 patches of 4x4 if channels * filters
    is above 32768); on smaller ones, down to 4x4, "winograd" is faster in large batches. Once the layer is built, its
    property `uses_winograd` is True if it uses the algorithm. See docs/explanation/winograd.md.

    References
    ----------
    Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2015), arXiv:1509.09308.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import Conv2D
    >>> Sequential([Conv2D(8, 3, stride=2, padding="same")], input_shape=(1, 28, 28)).output_shape
    (8, 14, 14)

    A kernel that subtracts neighbouring pixels finds vertical edges:

    >>> model = Sequential([Conv2D(1, (1, 2))], input_shape=(1, 1, 5))
    >>> model.params["0.weight"].value[...] = [[[[-1, 1]]]]
    >>> print(model.predict([[[[0, 0, 0, 9, 9]]]])[0, 0])
    [[0. 0. 9. 0.]]

    Multiples of 16 channels and filters allow Winograd's algorithm:

    >>> [Sequential([Conv2D(32, 3)], input_shape=(c, 12, 12)).layers[0].uses_winograd for c in (15, 16)]
    [False, True]
    """

    takes_images = True

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

    Maps (c, length) to (filters, out), with `out = (length + pad - dilation * (kernel - 1) - 1) // stride + 1`, where
    `pad` is the padding of both sides together.

    Parameters
    ----------
    filters : int
        Number of output channels.
    kernel_size : int
        Size of the kernels.
    stride : int, default 1
        Step from output to output.
    padding : int, (int, int), "valid", "same" or "causal", default "valid"
        Zeros on each side: a number, or a (left, right) pair. "valid" is 0. "same" makes `out = ceil(length / stride)`,
        with an odd zero on the right. "causal" adds all `dilation * (kernel - 1)` zeros on the left, so that with a
        stride of 1 output i depends on no input after i, as in WaveNet.
    dilation : int, default 1
        Step between the elements that a kernel reads.
    groups : int, default 1
        Number of groups of input and output channels; each group is convolved independently.
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
    Learned parameters: `weight` (filters, c / groups, kernel_size), damped He-uniform; `bias` (filters,), zero.

    References
    ----------
    van den Oord et al., "WaveNet: A Generative Model for Raw Audio" (2016), arXiv:1609.03499.

    Examples
    --------
    A sum of three elements. With "causal" padding, they are the current one and the two before it:

    >>> from minidl import Sequential
    >>> from minidl.initializers import ones
    >>> from minidl.layers import Conv1D
    >>> for padding in "valid", "same", "causal":
    ...     model = Sequential([Conv1D(1, 3, padding=padding, kernel_initializer=ones)], input_shape=(1, 4))
    ...     print(model.predict([[[1, 2, 3, 4]]])[0])
    [[6. 9.]]
    [[3. 6. 9. 7.]]
    [[1. 3. 6. 9.]]
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
