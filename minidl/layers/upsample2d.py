"""Upsample2D: nearest-neighbour and bilinear upsampling."""

from __future__ import annotations

import math
from typing import Any

from minidl.layers.base import Layer
from minidl.utils.validation import (
    Pair,
    Shape,
    check_bool,
    check_choice,
    check_image_shape,
    check_pair,
    check_positive,
)
from minidl_c.kernels.upsample2d import BilinearUpsample2DOp, Upsample2DOp


class Upsample2D(Layer):
    """Upsampling of an image, to the nearest pixel or with bilinear interpolation.

    Maps (c, h, w) to (c, h * scale, w * scale), rounded down, or to `(c, *size)`. Computes what PyTorch's Upsample
    does, with weights in float64 that are rounded once.

    Parameters
    ----------
    scale : float, (float, float) or None, default None
        Factor of the size, a number or a (vertical, horizontal) pair.
    mode : "nearest" or "bilinear", default "nearest"
        "nearest" repeats each pixel in a block of equal ones; the scale is a whole number. "bilinear" interpolates
        between the four nearest pixels; any positive scale or size. No filter is applied where the image gets smaller.
    align_corners : bool, default False
        For "bilinear". False: output i is at (i + 1/2) / scale - 1/2 of the input, clipped to the image; with a size,
        scale is the quotient of the sizes. True: the centres of the outer pixels keep their places.
    size : int, (int, int) or None, default None
        Size of the output instead of a scale, an int or a (vertical, horizontal) pair. A multiple of that of the input
        for "nearest".

    Raises
    ------
    TypeError, ValueError
        In `build`, for invalid arguments, both or neither of `scale` and `size`, or an input that is not an image.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential
    >>> from minidl.layers import Upsample2D
    >>> def upsampled(**arguments):
    ...     return Sequential([Upsample2D(**arguments)], input_shape=(1, 1, 2)).predict([[[[0, 3]]]])[0, 0].tolist()
    >>> upsampled(scale=2)
    [[0.0, 0.0, 3.0, 3.0], [0.0, 0.0, 3.0, 3.0]]
    >>> upsampled(size=(1, 4), mode="bilinear")
    [[0.0, 0.75, 2.25, 3.0]]
    >>> upsampled(size=(1, 4), mode="bilinear", align_corners=True)
    [[0.0, 1.0, 2.0, 3.0]]
    """

    takes_images = True

    def __init__(
        self,
        scale: float | tuple[float, float] | None = None,
        mode: str = "nearest",
        align_corners: bool = False,
        size: int | Pair | None = None,
    ) -> None:
        self.scale = scale
        self.mode = mode
        self.align_corners = align_corners
        self.size = size

    def build(self, in_shape: Shape) -> Shape:
        _, *image = check_image_shape(in_shape)
        mode, align_corners = self._check_options()
        if (self.scale is None) == (self.size is None):
            raise ValueError(f"expected either scale or size, got scale={self.scale!r} and size={self.size!r}")
        if mode == "bilinear":
            size, scale = _bilinear_sizes(image, self.scale, self.size)
            self.op = BilinearUpsample2DOp(in_shape, size, scale, align_corners, self.dtype)
        else:
            self.op = Upsample2DOp(in_shape, _whole_scale(image, self.scale, self.size), self.dtype)
        return self.op.out_shape

    def _check_options(self) -> tuple[str, bool]:
        mode = check_choice("mode", self.mode, "nearest", "bilinear")
        align_corners = check_bool("align_corners", self.align_corners)
        if align_corners and mode == "nearest":
            raise ValueError("align_corners: expected False for mode='nearest', got True")
        return mode, align_corners


def _whole_scale(image: list[int], scale: Any, size: Any) -> Pair:
    """Returns the scale of a nearest-neighbour upsampling."""
    if size is None:
        return check_pair("scale", scale)
    size = check_pair("size", size)
    if any(new % old for new, old in zip(size, image, strict=True)):
        raise ValueError(f"size: expected multiples of {tuple(image)} for mode='nearest', got {size}")
    return size[0] // image[0], size[1] // image[1]


def _bilinear_sizes(image: list[int], scale: Any, size: Any) -> tuple[Pair, tuple[float, float]]:
    """Returns the size of the output and the scale of the coordinates."""
    if size is not None:
        height, width = check_pair("size", size)
        return (height, width), (height / image[0], width / image[1])
    if isinstance(scale, (tuple, list)) and len(scale) != 2:
        raise ValueError(f"scale: expected a number or a pair, got {scale!r}")
    vertical, horizontal = (
        check_positive("scale", factor) for factor in (scale if isinstance(scale, (tuple, list)) else (scale, scale))
    )
    height, width = math.floor(image[0] * vertical), math.floor(image[1] * horizontal)
    if min(height, width) < 1:
        raise ValueError(f"scale: expected to keep at least 1 x 1 of {image[0]} x {image[1]}, got {scale!r}")
    return (height, width), (vertical, horizontal)
