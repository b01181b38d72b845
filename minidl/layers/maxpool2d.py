"""Pools of images and signals, adaptive and global ones: the maximum of each window, or of each channel."""

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
from minidl_c.kernels.maxpool2d import AdaptiveMaxPool2DOp, MaxPool2DOp


class MaxPool2D(Layer):
    """2-D max pooling: each output is the maximum of a window.

    Maps (c, h, w) to (c, oh, ow), with `oh = (h + padding - dilation * (pool - 1) - 1) // stride + 1`, where `padding`
    is the sum of both sides, and `ow` likewise. With `ceil_mode`, the quotient is rounded up.

    Parameters
    ----------
    pool_size : int or (int, int)
        Size of a window, an int or a (vertical, horizontal) pair.
    stride : int, (int, int) or None, default None
        Step between windows, an int or a pair; None: `pool_size`.
    padding : int, (int, int) or (int, int, int, int), default 0
        Cells added on each side: an int, a (vertical, horizontal) pair, or (top, bottom, left, right). At most half of
        `pool_size`.
    ceil_mode : bool, default False
        Whether to include windows that reach beyond the end, if they do not start in the padding after it (PyTorch's
        rule).
    dilation : int or (int, int), default 1
        Step between the cells of a window, an int or a pair.

    Raises
    ------
    TypeError, ValueError
        In `build`, for invalid arguments or input shapes.

    See Also
    --------
    AdaptiveMaxPool2D : The size of the output is given.
    GlobalMaxPool2D : One window, the whole image.

    Notes
    -----
    In each example, the first maximum of a window (in row-major order) gets that window's whole gradient. Gradients of
    overlapping windows are summed. A NaN is the maximum of its window; padding never is.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential
    >>> from minidl.layers import MaxPool2D
    >>> image = np.arange(16).reshape(1, 1, 4, 4)
    >>> Sequential([MaxPool2D(2)], input_shape=(1, 4, 4)).predict(image).tolist()
    [[[[5.0, 7.0], [13.0, 15.0]]]]

    The last row and column of an odd image are dropped, unless `ceil_mode` is set:

    >>> [Sequential([MaxPool2D(2, ceil_mode=mode)], input_shape=(8, 7, 7)).output_shape for mode in (False, True)]
    [(8, 3, 3), (8, 4, 4)]
    """

    takes_images = True

    def __init__(
        self,
        pool_size: int | Pair,
        stride: int | Pair | None = None,
        padding: int | Pair | Padding4 = 0,
        ceil_mode: bool = False,
        dilation: int | Pair = 1,
    ) -> None:
        self.pool_size = pool_size
        self.stride = stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.dilation = dilation

    def build(self, in_shape: Shape) -> Shape:
        kernel = check_pair("pool_size", self.pool_size)
        stride = kernel if self.stride is None else check_pair("stride", self.stride)
        padding, dilation = check_sides("padding", self.padding), check_pair("dilation", self.dilation)
        window = (kernel, stride, padding, check_bool("ceil_mode", self.ceil_mode))
        self.op = MaxPool2DOp(check_image_shape(in_shape), *window, self.dtype, dilation=dilation)
        return self.op.out_shape


class AdaptiveMaxPool2D(Layer):
    """2-D max pooling to a given size, whatever the size of the image.

    Maps (c, h, w) to `(c, *size)`, with as many windows as `size` says.

    Parameters
    ----------
    size : int or (int or None, int or None)
        Size of the output, an int or a (vertical, horizontal) pair; None in a pair keeps the size of the input.

    Raises
    ------
    TypeError, ValueError
        In `build`, for invalid sizes or an input that is not an image.

    Notes
    -----
    Window i of n outputs begins at floor(i * h / n) and ends before ceil((i + 1) * h / n), as in PyTorch. The windows
    are those of `MaxPool2D(h // n)` if n divides h; otherwise their sizes differ by at most one, and neighbours may
    share a row or column. Ties and NaN are as in `MaxPool2D`.

    Examples
    --------
    Two windows of five columns share the middle one:

    >>> import numpy as np
    >>> from minidl import Sequential
    >>> from minidl.layers import AdaptiveMaxPool2D
    >>> row = np.array([[[[1, 2, 9, 4, 5]]]])
    >>> Sequential([AdaptiveMaxPool2D((None, 2))], input_shape=(1, 1, 5)).predict(row).tolist()
    [[[[9.0, 9.0]]]]
    """

    takes_images = True

    def __init__(self, size: int | tuple[int | None, int | None]) -> None:
        self.size = size

    def build(self, in_shape: Shape) -> Shape:
        _, height, width = check_image_shape(in_shape)
        size = check_target_size("size", self.size, (height, width))
        self.op = AdaptiveMaxPool2DOp(in_shape, size, self.dtype)
        return self.op.out_shape


class GlobalMaxPool2D(Layer):
    """Global max pooling: the maximum of each channel of an image.

    Maps (c, h, w) to (c,). The same as `MaxPool2D` over the whole image followed by `Flatten`.

    Raises
    ------
    ValueError
        In `build`, unless the input is an image.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential
    >>> from minidl.layers import GlobalMaxPool2D
    >>> image = np.array([[[[1, 2], [4, 3]], [[-1, -2], [-3, -4]]]])
    >>> Sequential([GlobalMaxPool2D()], input_shape=(2, 2, 2)).predict(image).tolist()
    [[4.0, -1.0]]
    """

    takes_images = True

    def build(self, in_shape: Shape) -> Shape:
        channels, *window = check_image_shape(in_shape)
        self.op = MaxPool2DOp(in_shape, window, window, dtype=self.dtype)
        return (channels,)


class MaxPool1D(Layer):
    """1-D max pooling: each output is the maximum of a window of a signal.

    Maps (c, length) to (c, out), as `MaxPool2D` an image of height 1.

    Parameters
    ----------
    pool_size : int
        Size of a window.
    stride : int or None, default None
        Step between windows; None: `pool_size`.
    padding : int or (int, int), default 0
        Elements added on each side: an int or a (left, right) pair. At most half of `pool_size`.
    ceil_mode : bool, default False
        Whether to include windows that reach beyond the end, as in `MaxPool2D`.
    dilation : int, default 1
        Step between the elements of a window.

    Raises
    ------
    TypeError, ValueError
        In `build`, for invalid arguments or input shapes.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential
    >>> from minidl.layers import MaxPool1D
    >>> signal = np.array([[[1, 5, 2, 4, 3, 0]]])
    >>> Sequential([MaxPool1D(2)], input_shape=(1, 6)).predict(signal).tolist()
    [[[5.0, 4.0, 3.0]]]
    >>> Sequential([MaxPool1D(3, stride=1)], input_shape=(1, 6)).predict(signal).tolist()
    [[[5.0, 5.0, 4.0, 4.0]]]
    """

    def __init__(
        self,
        pool_size: int,
        stride: int | None = None,
        padding: int | Pair = 0,
        ceil_mode: bool = False,
        dilation: int = 1,
    ) -> None:
        self.pool_size = pool_size
        self.stride = stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.dilation = dilation

    def build(self, in_shape: Shape) -> Shape:
        channels, length = check_signal_shape(in_shape)
        size = check_int("pool_size", self.pool_size)
        stride = size if self.stride is None else check_int("stride", self.stride)
        padding, dilation = check_pair("padding", self.padding, minimum=0), check_int("dilation", self.dilation)
        options = (check_bool("ceil_mode", self.ceil_mode),)
        window = ((1, size), (1, stride), (0, 0, *padding), *options)
        self.op = MaxPool2DOp((channels, 1, length), *window, self.dtype, dilation=(1, dilation))
        return channels, self.op.out_shape[2]


class GlobalMaxPool1D(Layer):
    """Global max pooling: the maximum of each channel of a signal.

    Maps (c, length) to (c,).

    Raises
    ------
    ValueError
        In `build`, unless the input is a signal.

    Examples
    --------
    It follows convolutions whose output length is unknown or irrelevant:

    >>> from minidl import Sequential
    >>> from minidl.layers import Conv1D, Dense, GlobalMaxPool1D
    >>> model = Sequential([Conv1D(16, 5), GlobalMaxPool1D(), Dense(3)], input_shape=(2, 100))
    >>> [layer.out_shape for layer in model.layers]
    [(16, 96), (16,), (3,)]
    """

    def build(self, in_shape: Shape) -> Shape:
        channels, length = check_signal_shape(in_shape)
        self.op = MaxPool2DOp((channels, 1, length), (1, length), (1, length), dtype=self.dtype)
        return (channels,)
