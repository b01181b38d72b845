"""Pad2D: constant padding of an image."""

from __future__ import annotations

from minidl.layers.base import Layer
from minidl.utils.validation import Pair, Shape, check_image_shape, check_int, check_pair, check_real
from minidl_c.kernels.pad2d import Pad2DOp

Sides = tuple[int, int, int, int]


class Pad2D(Layer):
    """Padding of an image with a constant `value`: (c, h, w) -> (c, top + h + bottom, left + w + right).

    padding: pixels on each side, an int, a (vertical, horizontal) pair, or (top, bottom, left, right).

    Raises TypeError or ValueError in build for negative padding, a non-finite value, or an input that is not an image.
    """

    def __init__(self, padding: int | Pair | Sides, value: float = 0.0) -> None:
        self.padding = padding
        self.value = value

    def build(self, in_shape: Shape) -> Shape:
        self.op = Pad2DOp(
            check_image_shape(in_shape), self._sides(), check_real("value", self.value, self.dtype), self.dtype
        )
        return self.op.out_shape

    def _sides(self) -> Shape:
        """(top, bottom, left, right)."""
        if isinstance(self.padding, (tuple, list)) and len(self.padding) != 2:
            if len(self.padding) != 4:
                raise ValueError(
                    f"padding: expected an integer, a pair, or (top, bottom, left, right), got {self.padding!r}"
                )
            return tuple(check_int("padding", pixels, minimum=0) for pixels in self.padding)
        vertical, horizontal = check_pair("padding", self.padding, minimum=0)
        return vertical, vertical, horizontal, horizontal
