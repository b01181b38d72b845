"""Rescale: a linear change of units, such as pixels to [0, 1]."""

from __future__ import annotations

from minidl.layers.base import Layer
from minidl.utils.validation import Shape, check_real
from minidl_c.kernels.rescale import RescaleOp


class Rescale(Layer):
    """A linear change of units, such as pixels to [0, 1].

    Computes `y = x * scale + offset`. Any shape, which is unchanged. As the first layer of a model, it lets the model
    take raw data: `Rescale(1 / 255)` maps pixels of 0 to 255 to 0 to 1.

    Parameters
    ----------
    scale : float
        Factor of every element.
    offset : float, default 0.0
        Added after the product.

    Raises
    ------
    TypeError, ValueError
        In `build`, unless `scale` and `offset` are finite numbers.

    See Also
    --------
    Normalize : A mean and a standard deviation for each channel.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential
    >>> from minidl.layers import Rescale
    >>> pixels = np.array([[0, 51, 255]], dtype="uint8")
    >>> model = Sequential([Rescale(2 / 255, -1)], input_shape=(3,), dtype="float64")
    >>> model.predict(pixels).round(3).tolist()
    [[-1.0, -0.6, 1.0]]
    """

    def __init__(self, scale: float, offset: float = 0.0) -> None:
        self.scale = scale
        self.offset = offset

    def build(self, in_shape: Shape) -> Shape:
        scale, offset = check_real("scale", self.scale, self.dtype), check_real("offset", self.offset, self.dtype)
        self.op = RescaleOp(in_shape, scale, offset, self.dtype)
        return in_shape
