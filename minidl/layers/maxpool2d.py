"""MaxPool2D and GlobalMaxPool2D: the maximum of each window, or of each channel."""

from __future__ import annotations

from minidl.layers.base import Layer
from minidl.utils.validation import Pair, Shape, check_bool, check_image_shape, check_pair
from minidl_c.kernels.maxpool2d import MaxPool2DOp


class MaxPool2D(Layer):
    """Max pooling: (c, h, w) -> (c, oh, ow). Each output is the maximum of a window.

    In each example, the first maximum of a window (in row-major order) gets that window's whole gradient. Gradients of
    overlapping windows are summed. A NaN is the maximum of its window; padding never is.

    pool_size, stride (None: pool_size), padding (at most half of pool_size): an int or a (vertical, horizontal) pair.
    ceil_mode: include windows that reach beyond the end, if they start inside the image (PyTorch's rule).

    Raises TypeError or ValueError in build for invalid arguments or input shapes.
    """

    def __init__(
        self,
        pool_size: int | Pair,
        stride: int | Pair | None = None,
        padding: int | Pair = 0,
        ceil_mode: bool = False,
    ) -> None:
        self.pool_size = pool_size
        self.stride = stride
        self.padding = padding
        self.ceil_mode = ceil_mode

    def build(self, in_shape: Shape) -> Shape:
        kernel = check_pair("pool_size", self.pool_size)
        stride = kernel if self.stride is None else check_pair("stride", self.stride)
        padding = check_pair("padding", self.padding, minimum=0)
        self.op = MaxPool2DOp(
            check_image_shape(in_shape), kernel, stride, padding, check_bool("ceil_mode", self.ceil_mode), self.dtype
        )
        return self.op.out_shape


class GlobalMaxPool2D(Layer):
    """Global max pooling: (c, h, w) -> (c,). Same as MaxPool2D over the whole image followed by Flatten.

    Raises ValueError in build unless the input is an image.
    """

    def build(self, in_shape: Shape) -> Shape:
        channels, *window = check_image_shape(in_shape)
        self.op = MaxPool2DOp(in_shape, window, window, dtype=self.dtype)
        return (channels,)
