"""Pools of images and signals, adaptive and global ones: the mean of each window, or of each channel."""

from __future__ import annotations

from minidl.layers.base import Layer
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
    check_target_size,
)
from minidl_c.kernels.avgpool2d import AdaptiveAvgPool2DOp, AvgPool2DOp


class AvgPool2D(Layer):
    """Average pooling: each output is the mean of a window.

    Maps (c, h, w) to (c, oh, ow), with `oh = (h + pad - dilation * (pool_size - 1) - 1) // stride + 1`, where `pad` is
    the padding of both sides together.

    Parameters
    ----------
    pool_size : int or (int, int)
        Size of the windows; a pair is (vertical, horizontal).
    stride : int, (int, int) or None, default None
        Step from window to window; None: `pool_size`.
    padding : int, (int, int) or (int, int, int, int), default 0
        Zeros on each side: a number, a (vertical, horizontal) pair, or (top, bottom, left, right). At most half of
        `pool_size`.
    ceil_mode : bool, default False
        Whether windows may reach beyond the end: those that start inside the image or the padding before it. The
        quotient above is then rounded up.
    count_include_pad : bool, default True
        Whether the divisor counts the zeros of the padding. Positions beyond the padding (with `ceil_mode`) never
        count.
    dilation : int or (int, int), default 1
        Step between the cells of a window.

    Raises
    ------
    TypeError, ValueError
        In `build`, for invalid arguments or input shapes.

    Notes
    -----
    Sizes, sums and divisors are those of PyTorch's avg_pool2d, which has no dilation.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential
    >>> from minidl.layers import AvgPool2D
    >>> x = np.arange(16).reshape(1, 1, 4, 4)
    >>> print(Sequential([AvgPool2D(2)], input_shape=(1, 4, 4)).predict(x)[0, 0])  # (0 + 1 + 4 + 5) / 4 = 2.5
    [[ 2.5  4.5]
     [10.5 12.5]]

    At a corner, three of the four cells are padding, which counts or does not:

    >>> for count in True, False:
    ...     pool = AvgPool2D(2, padding=1, count_include_pad=count)
    ...     print(Sequential([pool], input_shape=(1, 2, 2)).predict(np.ones((1, 1, 2, 2)))[0, 0, 0])
    [0.25 0.25]
    [1. 1.]
    """

    takes_images = True

    def __init__(
        self,
        pool_size: int | Pair,
        stride: int | Pair | None = None,
        padding: int | Pair | Padding4 = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        dilation: int | Pair = 1,
    ) -> None:
        self.pool_size = pool_size
        self.stride = stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.dilation = dilation

    def build(self, in_shape: Shape) -> Shape:
        kernel = check_pair("pool_size", self.pool_size)
        stride = kernel if self.stride is None else check_pair("stride", self.stride)
        padding, dilation = check_sides("padding", self.padding), check_pair("dilation", self.dilation)
        options = check_bool("ceil_mode", self.ceil_mode), check_bool("count_include_pad", self.count_include_pad)
        window = (kernel, stride, padding, *options)
        self.op = AvgPool2DOp(check_image_shape(in_shape), *window, self.dtype, dilation=dilation)
        return self.op.out_shape


class AdaptiveAvgPool2D(Layer):
    """Average pooling to a fixed size, with as many windows as `size` says.

    Maps (c, h, w) to `(c, *size)`. Window i of n outputs begins at `floor(i * h / n)` and ends before
    `ceil((i + 1) * h / n)`, as in PyTorch. The windows are those of `AvgPool2D(h // n)` if n divides h. Otherwise their
    sizes differ by at most one, and neighbours may share a row or column.

    Parameters
    ----------
    size : int or (int or None, int or None)
        Size of the output; a pair is (vertical, horizontal), and None in it keeps the size of the input.

    Raises
    ------
    TypeError, ValueError
        In `build`, for invalid sizes, or an input that is not an image.

    Examples
    --------
    Three windows on five pixels; neighbours share one:

    >>> from minidl import Sequential
    >>> from minidl.layers import AdaptiveAvgPool2D
    >>> model = Sequential([AdaptiveAvgPool2D((None, 3))], input_shape=(1, 1, 5))
    >>> print(model.predict([[[[1, 2, 3, 4, 5]]]])[0, 0])  # of 1 and 2; 2, 3 and 4; 4 and 5
    [[1.5 3.  4.5]]
    """

    takes_images = True

    def __init__(self, size: int | tuple[int | None, int | None]) -> None:
        self.size = size

    def build(self, in_shape: Shape) -> Shape:
        _, height, width = check_image_shape(in_shape)
        size = check_target_size("size", self.size, (height, width))
        self.op = AdaptiveAvgPool2DOp(in_shape, size, self.dtype)
        return self.op.out_shape


class GlobalAvgPool2D(Layer):
    """Global average pooling: the mean of each channel of an image.

    Maps (c, h, w) to (c,), as an AvgPool2D over the whole image followed by a Flatten.

    Raises
    ------
    ValueError
        In `build`, unless the input is an image.

    References
    ----------
    Lin, Chen, Yan, "Network In Network", ICLR 2014.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import GlobalAvgPool2D
    >>> model = Sequential([GlobalAvgPool2D()], input_shape=(2, 2, 2))
    >>> print(model.predict([[[[1, 3], [5, 7]], [[0, 0], [0, 2]]]]))
    [[4.  0.5]]
    """

    takes_images = True

    def build(self, in_shape: Shape) -> Shape:
        channels, *window = check_image_shape(in_shape)
        self.op = AvgPool2DOp(in_shape, window, window, dtype=self.dtype)
        return (channels,)


class AvgPool1D(Layer):
    """1-D average pooling: AvgPool2D on an image of height 1.

    Maps (c, length) to (c, out), with `out = (length + pad - dilation * (pool_size - 1) - 1) // stride + 1`, where
    `pad` is the padding of both sides together.

    Parameters
    ----------
    pool_size : int
        Size of the windows.
    stride : int or None, default None
        Step from window to window; None: `pool_size`.
    padding : int or (int, int), default 0
        Zeros on each side; a pair is (left, right). At most half of `pool_size`.
    ceil_mode : bool, default False
        Whether windows may reach beyond the end, as in AvgPool2D.
    count_include_pad : bool, default True
        Whether the divisor counts the zeros of the padding, as in AvgPool2D.
    dilation : int, default 1
        Step between the elements of a window.

    Raises
    ------
    TypeError, ValueError
        In `build`, for invalid arguments or input shapes.

    Examples
    --------
    With `ceil_mode`, the last window holds the one element that is left over:

    >>> from minidl import Sequential
    >>> from minidl.layers import AvgPool1D
    >>> print(Sequential([AvgPool1D(2)], input_shape=(1, 5)).predict([[[1, 3, 5, 7, 9]]]))
    [[[2. 6.]]]
    >>> print(Sequential([AvgPool1D(2, ceil_mode=True)], input_shape=(1, 5)).predict([[[1, 3, 5, 7, 9]]]))
    [[[2. 6. 9.]]]
    """

    def __init__(
        self,
        pool_size: int,
        stride: int | None = None,
        padding: int | Pair = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        dilation: int = 1,
    ) -> None:
        self.pool_size = pool_size
        self.stride = stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.dilation = dilation

    def build(self, in_shape: Shape) -> Shape:
        channels, length = check_signal_shape(in_shape)
        size = check_int("pool_size", self.pool_size)
        stride = size if self.stride is None else check_int("stride", self.stride)
        padding, dilation = check_pair("padding", self.padding, minimum=0), check_int("dilation", self.dilation)
        options = check_bool("ceil_mode", self.ceil_mode), check_bool("count_include_pad", self.count_include_pad)
        window = ((1, size), (1, stride), (0, 0, *padding), *options)
        self.op = AvgPool2DOp((channels, 1, length), *window, self.dtype, dilation=(1, dilation))
        return channels, self.op.out_shape[2]


class GlobalAvgPool1D(Layer):
    """Global average pooling of a signal: the mean of each channel.

    Maps (c, length) to (c,).

    Raises
    ------
    ValueError
        In `build`, unless the input is a signal.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import GlobalAvgPool1D
    >>> print(Sequential([GlobalAvgPool1D()], input_shape=(2, 3)).predict([[[1, 2, 6], [0, 0, 3]]]))
    [[3. 1.]]
    """

    def build(self, in_shape: Shape) -> Shape:
        channels, length = check_signal_shape(in_shape)
        self.op = AvgPool2DOp((channels, 1, length), (1, length), (1, length), dtype=self.dtype)
        return (channels,)
