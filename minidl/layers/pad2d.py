"""Pad2D, Pad1D: padding of an image or a signal with a constant, or with its own pixels."""

from __future__ import annotations

from minidl.layers.base import Layer
from minidl.utils.validation import (
    Padding4,
    Pair,
    Shape,
    check_choice,
    check_image_shape,
    check_pair,
    check_real,
    check_sides,
    check_signal_shape,
)
from minidl_c.kernels.pad2d import MODES, Pad2DOp


class Pad2D(Layer):
    """Padding of an image with a constant, or with its own pixels.

    Maps (c, h, w) to (c, top + h + bottom, left + w + right).

    Parameters
    ----------
    padding : int, (int, int) or (int, int, int, int)
        Pixels on each side: an int, a (vertical, horizontal) pair, or (top, bottom, left, right).
    value : float, default 0.0
        Value of the added pixels, in mode "constant".
    mode : "constant", "reflect", "replicate" or "circular", default "constant"
        What is added, in PyTorch's words: `value`; the image mirrored at its outer pixels, which are not repeated; the
        outer pixels; the image's other end.

    Raises
    ------
    TypeError, ValueError
        In `build`, for negative padding, a non-finite value, another mode, or an input that is not an image; unless
        the padding is smaller than the image ("reflect"), or no larger ("circular").

    Notes
    -----
    The gradient of a pixel is the sum over all its copies.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential
    >>> from minidl.layers import Pad2D
    >>> row = np.array([[[[1, 2]]]])
    >>> Sequential([Pad2D((0, 1, 0, 2), value=-1)], input_shape=(1, 1, 2)).predict(row).tolist()
    [[[[1.0, 2.0, -1.0, -1.0], [-1.0, -1.0, -1.0, -1.0]]]]
    >>> Sequential([Pad2D((0, 0, 1, 1), mode="reflect")], input_shape=(1, 1, 2)).predict(row).tolist()
    [[[[2.0, 1.0, 2.0, 1.0]]]]
    """

    takes_images = True

    def __init__(self, padding: int | Pair | Padding4, value: float = 0.0, mode: str = "constant") -> None:
        self.padding = padding
        self.value = value
        self.mode = mode

    def build(self, in_shape: Shape) -> Shape:
        sides, value = check_sides("padding", self.padding), check_real("value", self.value, self.dtype)
        mode = check_choice("mode", self.mode, *MODES)
        self.op = Pad2DOp(check_image_shape(in_shape), sides, value, self.dtype, mode=mode)
        return self.op.out_shape


class Pad1D(Layer):
    """Padding of a signal with a constant, or with its own elements.

    Maps (c, length) to (c, left + length + right), as `Pad2D` an image of height 1.

    Parameters
    ----------
    padding : int or (int, int)
        Elements on each side: an int, or a (left, right) pair.
    value : float, default 0.0
        Value of the added elements, in mode "constant".
    mode : "constant", "reflect", "replicate" or "circular", default "constant"
        What is added, as in `Pad2D`.

    Raises
    ------
    TypeError, ValueError
        In `build`, as `Pad2D`; for an input that is not a signal.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential
    >>> from minidl.layers import Pad1D
    >>> signal = np.array([[[1, 2, 3]]])
    >>> Sequential([Pad1D((1, 2), mode="replicate")], input_shape=(1, 3)).predict(signal).tolist()
    [[[1.0, 1.0, 2.0, 3.0, 3.0, 3.0]]]
    """

    def __init__(self, padding: int | Pair, value: float = 0.0, mode: str = "constant") -> None:
        self.padding = padding
        self.value = value
        self.mode = mode

    def build(self, in_shape: Shape) -> Shape:
        channels, length = check_signal_shape(in_shape)
        sides, value = check_pair("padding", self.padding, minimum=0), check_real("value", self.value, self.dtype)
        mode = check_choice("mode", self.mode, *MODES)
        self.op = Pad2DOp((channels, 1, length), (0, 0, *sides), value, self.dtype, mode=mode)
        return channels, self.op.out_shape[2]
