"""RandomCrop, RandomFlip and RandomShift: in training, each example is seen another way in each step.

What an example gets is a function of the run's seed, the layer's place in the model, the step and the example's row in
the data: neither threads, batch size, dtype nor processor change it.
"""

from __future__ import annotations

from minidl.layers.base import Layer
from minidl.utils.validation import Pair, Shape, check_bool, check_image_shape, check_pair
from minidl_c.kernels.augment import AugmentOp


class RandomCrop(Layer):
    """A piece of each image, in training from anywhere, in inference the centre: (c, h, w) becomes (c, *size).

    size, padding: a number or a (vertical, horizontal) pair; so many zeros are put around the image before it is cut.
        Every place is as likely as any other.

    RandomCrop(32, padding=4) is what most nets for CIFAR-10 are trained with, RandomFlip() behind it.
    Raises TypeError or ValueError in build for a size that does not fit, or anything but an image.
    """

    def __init__(self, size: int | Pair, padding: int | Pair = 0) -> None:
        self.size = size
        self.padding = padding

    def build(self, in_shape: Shape) -> Shape:
        _, height, width = check_image_shape(in_shape)
        size, padding = check_pair("size", self.size), check_pair("padding", self.padding, least=0)
        last = height + padding[0] - size[0], width + padding[1] - size[1]
        if last[0] < -padding[0] or last[1] < -padding[1]:
            raise ValueError(f"size: {size} does not fit into an image of {height} x {width} with padding {padding}")
        first = -padding[0], -padding[1]
        self.op = AugmentOp(in_shape, size, first, last, path=self._path, dtype=self.dtype)
        return self.op.out_shape


class RandomFlip(Layer):
    """In training each image is mirrored or not, with probability 1/2 along each axis; in inference y = x.

    horizontal: left and right change places; vertical: top and bottom.

    Raises ValueError in build for anything but an image.
    """

    def __init__(self, horizontal: bool = True, vertical: bool = False) -> None:
        self.horizontal = horizontal
        self.vertical = vertical

    def build(self, in_shape: Shape) -> Shape:
        flips = check_bool("vertical", self.vertical), check_bool("horizontal", self.horizontal)
        self.op = AugmentOp(in_shape, check_image_shape(in_shape)[1:], flips=flips, path=self._path, dtype=self.dtype)
        return in_shape


class RandomShift(Layer):
    """In training each image is moved by up to `max_shift` pixels, and zeros fill the gap; in inference y = x.

    max_shift: a number or a (vertical, horizontal) pair; all integers from -max_shift to max_shift are equally likely.

    Raises TypeError or ValueError in build for negative numbers, or anything but an image.
    """

    def __init__(self, max_shift: int | Pair) -> None:
        self.max_shift = max_shift

    def build(self, in_shape: Shape) -> Shape:
        last = check_pair("max_shift", self.max_shift, least=0)
        first = -last[0], -last[1]
        self.op = AugmentOp(in_shape, check_image_shape(in_shape)[1:], first, last, path=self._path, dtype=self.dtype)
        return in_shape
