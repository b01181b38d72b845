"""A solution of the exercise ReLU."""

import numpy as np

from minidl import Layer


class ReLU(Layer):
    """y = max(x, 0), for each number."""

    def forward(self, x, training):
        if training:
            self.x = x
        return np.maximum(x, 0)

    def backward(self, dy):
        return dy * (self.x > 0)
