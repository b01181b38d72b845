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
    """Random rotation in training, with bilinear interpolation; y = x in inference.

    degrees: a number d, for angles from -d to d, or a (smallest, largest) pair from -360 to 360; uniformly distributed.
        Positive angles turn the image counter-clockwise, as in torchvision.
    value: of pixels outside the image. At its border, pixels inside and outside are interpolated.

    The image keeps its size; its corners may leave it. Rotation by a multiple of 90 degrees is exact for square images.
    Raises TypeError or ValueError in build for other angles, a non-finite value, or an input that is not an image.
    """

    def __init__(self, degrees: float | tuple[float, float], value: float = 0.0) -> None:
        self.degrees = degrees
        self.value = value

    def build(self, in_shape: Shape) -> Shape:
        degrees = check_interval("degrees", self.degrees, 0, -MAX_DEGREES, MAX_DEGREES)
        value = check_real("value", self.value, self.dtype)
        self.op = AffineOp(check_image_shape(in_shape), degrees, value=value, path=self._path, dtype=self.dtype)
        return in_shape


class RandomZoom(Layer):
    """Random zoom in training, with bilinear interpolation; y = x in inference.

    scale: a number s below 1, for factors from 1 - s to 1 + s, or a (smallest, largest) pair from 2**-10 to 2**10;
        uniformly distributed. Factors above 1 enlarge the image, of which the centre remains; below 1, it is reduced.
    value: of pixels outside the image. At its border, pixels inside and outside are interpolated.

    Raises TypeError or ValueError in build for other factors, a non-finite value, or an input that is not an image.
    """

    def __init__(self, scale: float | tuple[float, float], value: float = 0.0) -> None:
        self.scale = scale
        self.value = value

    def build(self, in_shape: Shape) -> Shape:
        scale = self.scale if isinstance(self.scale, (tuple, list)) else check_fraction("scale", self.scale)
        zoom = check_interval("scale", scale, 1, MIN_ZOOM, MAX_ZOOM)
        value = check_real("value", self.value, self.dtype)
        self.op = AffineOp(check_image_shape(in_shape), zoom=zoom, value=value, path=self._path, dtype=self.dtype)
        return in_shape
