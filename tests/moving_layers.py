"""Layers in NumPy that move pixels, and targets with them."""

import numpy as np

from minidl import Layer


class Roll(Layer):
    """Moves pixels around the image, by less than `most`."""

    moves_pixels = True
    fill = None  # of pixels from outside; None: they come from the other side

    def __init__(self, most=3):
        self.most = most

    def forward(self, x, training):
        if not training:
            return x
        self.by = self.rng.integers(0, self.most, len(x))
        y = np.empty_like(x)
        for image, moved, by in zip(x, y, self.by, strict=True):
            moved[...] = np.roll(image, by, axis=2)
            if self.fill is not None:
                moved[..., :by] = self.fill
        return y

    def backward(self, dy):
        dx = dy.copy()
        for image, by in zip(dx, self.by, strict=True):
            if self.fill is not None:
                image[..., :by] = 0
            image[...] = np.roll(image, -by, axis=2)
        return dx


class Shift(Roll):
    fill = 0.0


class FillsWithSevens(Roll):
    fill = 7.0
