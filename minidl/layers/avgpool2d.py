"""AvgPool2D and GlobalAvgPool2D: the mean of each window, or of each channel."""

from __future__ import annotations

from minidl.layers.base import Layer
from minidl.utils.validation import Pair, Shape, check_bool, check_image_shape, check_pair
from minidl_c.kernels.avgpool2d import AvgPool2DOp


class AvgPool2D(Layer):
    """Average pooling: (c, h, w) -> (c, oh, ow). Each output is the mean of a window.

    pool_size, stride (None: pool_size), padding (zeros, at most half of pool_size): an int or a (vertical, horizontal)
        pair.
    ceil_mode: include windows that reach beyond the end, if they start inside the image or the padding before it.
    count_include_pad: count the zeros of the padding. Positions beyond the padding (with ceil_mode) never count.

    Sizes, sums and divisors are those of PyTorch's avg_pool2d.
    Raises TypeError or ValueError in build for invalid arguments or input shapes.
    """

    def __init__(
        self,
        pool_size: int | Pair,
        stride: int | Pair | None = None,
        padding: int | Pair = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        self.pool_size = pool_size
        self.stride = stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def build(self, in_shape: Shape) -> Shape:
        kernel = check_pair("pool_size", self.pool_size)
        stride = kernel if self.stride is None else check_pair("stride", self.stride)
        padding = check_pair("padding", self.padding, minimum=0)
        options = check_bool("ceil_mode", self.ceil_mode), check_bool("count_include_pad", self.count_include_pad)
        self.op = AvgPool2DOp(check_image_shape(in_shape), kernel, stride, padding, *options, self.dtype)
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
