"""ColorJitter: random brightness, contrast and saturation, in training."""

from __future__ import annotations

import numpy as np

from minidl.layers.base import Layer
from minidl.utils.validation import Shape, check_image_shape, check_interval
from minidl_c.kernels.color_jitter import ColorJitterOp

MAX_FACTOR = float(np.finfo(np.float32).max)


class ColorJitter(Layer):
    """Random brightness, contrast and saturation, in this order, in training; the identity in inference.

    Maps (c, h, w) to (c, h, w), with 1 channel or 3. Each argument is a number b, for factors from max(0, 1 - b) to 1 +
    b, or a (smallest, largest) pair. Factors are uniformly distributed.

    Parameters
    ----------
    brightness : float or (float, float), default 0.0
        Pixels are multiplied by the factor.
    contrast : float or (float, float), default 0.0
        Pixels become `factor * x + (1 - factor) * (mean of the image's greyscale)`.
    saturation : float or (float, float), default 0.0
        Pixels become `factor * x + (1 - factor) * (greyscale of the pixel)`; needs 3 channels.

    Raises
    ------
    TypeError, ValueError
        In `build`, for negative numbers, another number of channels, or an input that is not an image.

    Notes
    -----
    The greyscale is 0.2989 red + 0.587 green + 0.114 blue; of 1 channel, it is the channel. The factors depend only on
    the run's seed, the layer's path in the model, the step and the example's row in the data.

    Numbers are not limited to a range: a layer does not know that of X, and after a Normalize there is none. Brightness
    belongs before a Normalize, after which it would scale contrast.

    References
    ----------
    The formulas are those of torchvision.transforms.ColorJitter, without hue, limits and random order.

    Examples
    --------
    A saturation of 0 makes red grey:

    >>> import numpy as np
    >>> from minidl import Sequential
    >>> from minidl.layers import ColorJitter
    >>> model = Sequential([ColorJitter(saturation=(0, 0))], input_shape=(3, 1, 1))
    >>> print(model.forward([[[[1]], [[0]], [[0]]]], training=True).ravel().round(4))
    [0.2989 0.2989 0.2989]

    Factors of brightness for 1000 examples:

    >>> model = Sequential([ColorJitter(brightness=0.2)], input_shape=(1, 1, 1))
    >>> y = model.forward(np.ones((1000, 1, 1, 1)), training=True)
    >>> print(y.min().round(2), y.max().round(2))
    0.8 1.2
    """

    takes_images = True

    def __init__(
        self,
        brightness: float | tuple[float, float] = 0.0,
        contrast: float | tuple[float, float] = 0.0,
        saturation: float | tuple[float, float] = 0.0,
    ) -> None:
        self.brightness = brightness
        self.contrast = contrast
        self.saturation = saturation

    def build(self, in_shape: Shape) -> Shape:
        names = "brightness", "contrast", "saturation"
        ranges = {name: check_interval(name, getattr(self, name), 1, 0, MAX_FACTOR) for name in names}
        self.op = ColorJitterOp(check_image_shape(in_shape), **ranges, path=self._path, dtype=self.dtype)
        return in_shape
