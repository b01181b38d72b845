"""MaxPool2D and GlobalMaxPool2D: the maximum of each window, or of each channel."""

from __future__ import annotations

from minidl.layers.base import Layer
from minidl.utils.validation import Pair, Shape, check_bool, check_image_shape, check_pair
from minidl_c.kernels.maxpool2d import MaxPool2DOp


class MaxPool2D(Layer):
    """Max-pooling: (c, h, w) becomes (c, oh, ow), each number the maximum of a window.

    In each example, the first maximum of a window (in row-major order) gets that window's whole gradient; overlapping
    windows accumulate; a NaN wins; padding never does.

    pool_size, stride (None: pool_size), padding (at most half of pool_size): a number or a (vertical, horizontal) pair.
    ceil_mode: also take windows that reach beyond the end, as long as they begin inside (PyTorch's rule).

    Raises TypeError or ValueError in build for arguments or input shapes that make no sense.
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
        padding = check_pair("padding", self.padding, least=0)
        self.op = MaxPool2DOp(
            check_image_shape(in_shape), kernel, stride, padding, check_bool("ceil_mode", self.ceil_mode), self.dtype
        )
        return self.op.out_shape


class GlobalMaxPool2D(Layer):
    """The maximum of each channel: (c, h, w) becomes (c,), as Flatten behind a MaxPool2D of the size of the image.

    Raises ValueError in build for anything but an image.
    """

    def build(self, in_shape: Shape) -> Shape:
        channels, *window = check_image_shape(in_shape)
        self.op = MaxPool2DOp(in_shape, window, window, dtype=self.dtype)
        return (channels,)
