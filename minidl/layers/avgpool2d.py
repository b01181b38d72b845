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
    """Average pooling: (c, h, w) -> (c, oh, ow). Each output is the mean of a window.

    pool_size, stride (None: pool_size), dilation (the step between the cells of a window): an int or a (vertical,
        horizontal) pair.
    padding: zeros on each side, an int, a pair, or (top, bottom, left, right); at most half of pool_size.
    ceil_mode: include windows that reach beyond the end, if they start inside the image or the padding before it.
    count_include_pad: count the zeros of the padding. Positions beyond the padding (with ceil_mode) never count.

    Sizes, sums and divisors are those of PyTorch's avg_pool2d, which has no dilation.
    Raises TypeError or ValueError in build for invalid arguments or input shapes.
    """

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
    """Average pooling to a fixed size: (c, h, w) -> (c, *size), with as many windows as `size` says.

    Window i of n outputs begins at floor(i * h / n) and ends before ceil((i + 1) * h / n), as in PyTorch. The windows
    are those of AvgPool2D(h // n) if n divides h; otherwise their sizes differ by at most one, and neighbours may share
    a row or column.

    size: an int, or a (vertical, horizontal) pair; None in a pair keeps the size of the input.

    Raises TypeError or ValueError in build for invalid sizes or an input that is not an image.
    """

    def __init__(self, size: int | tuple[int | None, int | None]) -> None:
        self.size = size

    def build(self, in_shape: Shape) -> Shape:
        _, height, width = check_image_shape(in_shape)
        size = check_target_size("size", self.size, (height, width))
        self.op = AdaptiveAvgPool2DOp(in_shape, size, self.dtype)
        return self.op.out_shape


class GlobalAvgPool2D(Layer):
    """Global average pooling: (c, h, w) -> (c,). Same as AvgPool2D over the whole image followed by Flatten.

    Raises ValueError in build unless the input is an image.

    Lin, Chen, Yan: "Network In Network", ICLR 2014.
    """

    def build(self, in_shape: Shape) -> Shape:
        channels, *window = check_image_shape(in_shape)
        self.op = AvgPool2DOp(in_shape, window, window, dtype=self.dtype)
        return (channels,)


class AvgPool1D(Layer):
    """1-D average pooling: (c, length) -> (c, out), AvgPool2D on an image of height 1.

    pool_size, stride (None: pool_size), dilation (the step between the elements of a window): ints.
    padding: on each side, an int or a (left, right) pair; at most half of pool_size.
    ceil_mode: include windows that reach beyond the end, as in AvgPool2D.
    count_include_pad: count the zeros of the padding, as in AvgPool2D.

    Raises TypeError or ValueError in build for invalid arguments or input shapes.
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
    """Global average pooling of a signal: (c, length) -> (c,).

    Raises ValueError in build unless the input is a signal.
    """

    def build(self, in_shape: Shape) -> Shape:
        channels, length = check_signal_shape(in_shape)
        self.op = AvgPool2DOp((channels, 1, length), (1, length), (1, length), dtype=self.dtype)
        return (channels,)
