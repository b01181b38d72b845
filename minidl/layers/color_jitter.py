"""ColorJitter: random brightness, contrast and saturation, in training."""

from __future__ import annotations

import numpy as np

from minidl.layers.base import Layer
from minidl.utils.validation import Shape, check_image_shape, check_interval
from minidl_c.kernels.color_jitter import ColorJitterOp

MAX_FACTOR = float(np.finfo(np.float32).max)


class ColorJitter(Layer):
    """Random brightness, contrast and saturation, in this order, in training; y = x in inference.

    Each argument is a number b, for factors from max(0, 1 - b) to 1 + b, or a (smallest, largest) pair; uniformly
    distributed. With the greyscale of an image, 0.2989 red + 0.587 green + 0.114 blue:

    brightness: x is multiplied by its factor.
    contrast: factor * x + (1 - factor) * (mean of the image's greyscale).
    saturation: factor * x + (1 - factor) * (greyscale of the pixel); needs 3 channels.

    Images have 1 channel (its own greyscale) or 3. Numbers are not limited to a range: a layer does not know that of X,
    and after a Normalize there is none. Brightness belongs before a Normalize, after which it would scale contrast.

    The factors depend only on the run's seed, the layer's path in the model, the step and the example's row in the
    data.

    Raises TypeError or ValueError in build for negative numbers, for another number of channels, or an input that is
    not an image.

    torchvision.transforms.ColorJitter, without hue, limits and random order.
    """

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
