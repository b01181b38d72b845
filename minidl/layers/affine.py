"""RandomRotation and RandomZoom: data augmentation with bilinear interpolation, about the centre of the image.

The angle or factor depends only on the run's seed, the layer's path in the model, the step and the example's row in the
data.
"""

from __future__ import annotations

from minidl.layers.base import Layer
from minidl.utils.validation import Shape, check_fraction, check_image_shape, check_interval, check_real
from minidl_c.kernels.affine import AffineOp

MAX_DEGREES, MIN_ZOOM, MAX_ZOOM = 360, 2**-10, 2**10  # as AffineOp


class RandomRotation(Layer):
    """Random rotation in training, with bilinear interpolation; the identity in inference.

    Maps (c, h, w) to (c, h, w): corners may leave the image. Rotation by a multiple of 90 degrees is exact for square
    images.

    Parameters
    ----------
    degrees : float or (float, float)
        A number d, for angles from -d to d, or a (smallest, largest) pair from -360 to 360. Angles are uniformly
        distributed. Positive angles turn the image counter-clockwise, as in torchvision.
    value : float, default 0.0
        Value of pixels outside the image. At its border, pixels inside and outside are interpolated.

    Raises
    ------
    TypeError, ValueError
        In `build`, for other angles, a non-finite value, or an input that is not an image.

    Notes
    -----
    The angle depends only on the run's seed, the layer's path in the model, the step and the example's row in the data.

    Targets of pixels move with the images: see docs/how-to/data.md.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import RandomRotation
    >>> model = Sequential([RandomRotation((90, 90))], input_shape=(1, 2, 2))
    >>> print(model.forward([[[[1, 2], [3, 4]]]], training=True)[0, 0])
    [[2. 4.]
     [1. 3.]]
    >>> print(model.predict([[[[1, 2], [3, 4]]]])[0, 0])
    [[1. 2.]
     [3. 4.]]
    """

    moves_pixels = True

    def __init__(self, degrees: float | tuple[float, float], value: float = 0.0) -> None:
        self.degrees = degrees
        self.value = value

    def build(self, in_shape: Shape) -> Shape:
        degrees = check_interval("degrees", self.degrees, 0, -MAX_DEGREES, MAX_DEGREES)
        value = check_real("value", self.value, self.dtype)
        channels, height, width = check_image_shape(in_shape)
        self._degrees, self._value = degrees, value
        turn = 90 if height == width else 180  # degrees that map the image to itself
        self.shows_outside = degrees[0] != degrees[1] or degrees[0] % turn != 0
        self.op = self.target_op(channels, self.dtype, False)
        return in_shape

    def target_op(self, channels: int, dtype: str, nearest: bool) -> AffineOp:
        shape, value = (channels, *self.in_shape[1:]), 0.0 if nearest else self._value
        return AffineOp(shape, self._degrees, value=value, path=self._path, dtype=dtype, nearest=nearest)


class RandomZoom(Layer):
    """Random zoom about the centre in training, with bilinear interpolation; the identity in inference.

    Maps (c, h, w) to (c, h, w). Factors above 1 enlarge the image, of which the centre remains; below 1, it is reduced.

    Parameters
    ----------
    scale : float or (float, float)
        A number s below 1, for factors from 1 - s to 1 + s, or a (smallest, largest) pair from 2**-10 to 2**10. Factors
        are uniformly distributed.
    value : float, default 0.0
        Value of pixels outside the image. At its border, pixels inside and outside are interpolated.

    Raises
    ------
    TypeError, ValueError
        In `build`, for other factors, a non-finite value, or an input that is not an image.

    Notes
    -----
    The factor depends only on the run's seed, the layer's path in the model, the step and the example's row in the
    data.

    Targets of pixels move with the images: see docs/how-to/data.md.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential
    >>> from minidl.layers import RandomZoom
    >>> model = Sequential([RandomZoom((0.5, 0.5))], input_shape=(1, 4, 4))
    >>> print(model.forward(np.ones((1, 1, 4, 4)), training=True)[0, 0])
    [[0. 0. 0. 0.]
     [0. 1. 1. 0.]
     [0. 1. 1. 0.]
     [0. 0. 0. 0.]]
    """

    moves_pixels = True

    def __init__(self, scale: float | tuple[float, float], value: float = 0.0) -> None:
        self.scale = scale
        self.value = value

    def build(self, in_shape: Shape) -> Shape:
        scale = self.scale if isinstance(self.scale, (tuple, list)) else check_fraction("scale", self.scale)
        zoom = check_interval("scale", scale, 1, MIN_ZOOM, MAX_ZOOM)
        value = check_real("value", self.value, self.dtype)
        self._zoom, self._value, self.shows_outside = zoom, value, zoom[0] < 1
        self.op = self.target_op(check_image_shape(in_shape)[0], self.dtype, False)
        return in_shape

    def target_op(self, channels: int, dtype: str, nearest: bool) -> AffineOp:
        shape, value = (channels, *self.in_shape[1:]), 0.0 if nearest else self._value
        return AffineOp(shape, zoom=self._zoom, value=value, path=self._path, dtype=dtype, nearest=nearest)
