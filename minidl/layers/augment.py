"""RandomCrop, RandomFlip and RandomShift: data augmentation, different for each example in each training step.

The augmentation of an example depends only on the run's seed, the layer's path in the model, the step and the example's
row in the data. Threads, batch size, dtype and processor do not change it.
"""

from __future__ import annotations

from minidl.layers.base import Layer
from minidl.utils.validation import Pair, Shape, check_bool, check_image_shape, check_pair
from minidl_c.kernels.augment import AugmentOp

MAX_OFFSET = 2**24  # pixels, as AugmentOp


class RandomCrop(Layer):
    """Random crop in training, centre crop in inference: (c, h, w) -> (c, *size).

    size, padding: an int or a (vertical, horizontal) pair. Each side of the image is padded with `padding` zeros before
        the crop. All positions are equally likely.

    RandomCrop(32, padding=4) followed by RandomFlip() is the usual augmentation for CIFAR-10.
    Raises TypeError or ValueError in build for a size that does not fit or an input that is not an image.
    """

    def __init__(self, size: int | Pair, padding: int | Pair = 0) -> None:
        self.size = size
        self.padding = padding

    def build(self, in_shape: Shape) -> Shape:
        _, height, width = check_image_shape(in_shape)
        size, padding = check_pair("size", self.size), check_pair("padding", self.padding, 0, MAX_OFFSET)
        last = height + padding[0] - size[0], width + padding[1] - size[1]
        if last[0] < -padding[0] or last[1] < -padding[1]:
            raise ValueError(f"size: {size} does not fit into an image of {height} x {width} with padding {padding}")
        first = -padding[0], -padding[1]
        self.op = AugmentOp(in_shape, size, first, last, path=self._path, dtype=self.dtype)
        return self.op.out_shape


class RandomFlip(Layer):
    """Random flip in training, with probability 1/2 along each axis; y = x in inference.

    horizontal: swap left and right. vertical: swap top and bottom.

    Raises ValueError in build unless the input is an image.
    """

    def __init__(self, horizontal: bool = True, vertical: bool = False) -> None:
        self.horizontal = horizontal
        self.vertical = vertical

    def build(self, in_shape: Shape) -> Shape:
        flips = check_bool("vertical", self.vertical), check_bool("horizontal", self.horizontal)
        self.op = AugmentOp(in_shape, check_image_shape(in_shape)[1:], flips=flips, path=self._path, dtype=self.dtype)
        return in_shape


class RandomShift(Layer):
    """Random translation in training, by up to `max_shift` pixels, filled with zeros; y = x in inference.

    max_shift: an int or a (vertical, horizontal) pair. All integers from -max_shift to max_shift are equally likely.

    Raises TypeError or ValueError in build for negative values or an input that is not an image.
    """

    def __init__(self, max_shift: int | Pair) -> None:
        self.max_shift = max_shift

    def build(self, in_shape: Shape) -> Shape:
        last = check_pair("max_shift", self.max_shift, 0, MAX_OFFSET)
        first = -last[0], -last[1]
        self.op = AugmentOp(in_shape, check_image_shape(in_shape)[1:], first, last, path=self._path, dtype=self.dtype)
        return in_shape
