"""Cutout: sets a random box of each image to a value, in training."""

from __future__ import annotations

from minidl.layers.base import Layer
from minidl.utils.validation import Pair, Shape, check_image_shape, check_pair, check_real
from minidl_c.kernels.cutout import CutoutOp

MAX_SIZE = 2**24  # pixels, as CutoutOp


class Cutout(Layer):
    """Sets a random box of each image to a value in training, with probability `rate`; the identity in inference.

    Maps (c, h, w) to (c, h, w). All pixels of the image are equally likely as the box's centre, its pixel
    `(size[0] // 2, size[1] // 2)`. Of a box that exceeds the image, the part inside remains.

    Parameters
    ----------
    size : int or (int, int)
        Size of the box in pixels; a pair is (vertical, horizontal).
    value : float, default 0.0
        Value of all channels in the box. After a Normalize, 0 is the mean colour.
    rate : float, default 1.0
        Probability that an image gets a box.

    Raises
    ------
    TypeError, ValueError
        In `build`, for a size below 1, a non-finite value, a rate outside [0, 1], or an input that is not an image.

    Notes
    -----
    The box depends only on the run's seed, the layer's path in the model, the step and the example's row in the data.

    Targets stay as they are, also those of pixels in the box: a model learns to conclude their labels from what is
    around the box, or, as an autoencoder, to fill it.

    References
    ----------
    DeVries, Taylor, "Improved Regularization of Convolutional Neural Networks with Cutout", arXiv:1708.04552 (2017).

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential
    >>> from minidl.layers import Cutout
    >>> model = Sequential([Cutout(2)], input_shape=(1, 4, 4))
    >>> y = model.forward(np.ones((2, 1, 4, 4)), training=True)
    >>> print(y[0, 0])
    [[0. 0. 1. 1.]
     [0. 0. 1. 1.]
     [1. 1. 1. 1.]
     [1. 1. 1. 1.]]
    >>> print((y == 0).sum(axis=(1, 2, 3)))  # half of the second box is outside
    [4 2]
    """

    takes_images = True

    def __init__(self, size: int | Pair, value: float = 0.0, rate: float = 1.0) -> None:
        self.size = size
        self.value = value
        self.rate = rate

    def build(self, in_shape: Shape) -> Shape:
        size, value = check_pair("size", self.size, 1, MAX_SIZE), check_real("value", self.value, self.dtype)
        rate = check_real("rate", self.rate)
        self.op = CutoutOp(check_image_shape(in_shape), size, value, rate, path=self._path, dtype=self.dtype)
        return in_shape
