"""A solution of the exercise MaxPool2D."""

import numpy as np

from minidl import Layer


class MaxPool2D(Layer):
    """The largest number of each window, for each example and channel."""

    def __init__(self, pool_size, stride):
        self.pool_size = pool_size
        self.stride = stride

    def build(self, in_shape):
        c, h, w = in_shape
        return (c, (h - self.pool_size) // self.stride + 1, (w - self.pool_size) // self.stride + 1)

    def forward(self, x, training):
        if training:
            self.x = x
        y = np.zeros((len(x), *self.out_shape), x.dtype)
        for n, c, i, j in np.ndindex(y.shape):
            y[n, c, i, j] = self.window(x, n, c, i, j).max()
        return y

    def backward(self, dy):
        dx = np.zeros_like(self.x)
        for n, c, i, j in np.ndindex(dy.shape):
            first = self.window(self.x, n, c, i, j).argmax()  # of equal maxima, row by row
            row, column = divmod(first, self.pool_size)
            dx[n, c, i * self.stride + row, j * self.stride + column] += dy[n, c, i, j]
        return dx

    def window(self, x, n, c, i, j):
        top, left = i * self.stride, j * self.stride
        return x[n, c, top : top + self.pool_size, left : left + self.pool_size]
