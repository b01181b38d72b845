"""A solution of the exercise Conv2D."""

import numpy as np

from minidl import Layer
from minidl.initializers import he_normal, zeros


class Conv2D(Layer):
    """y[k, i, j] = b[k] + the sum of W[k] * (the patch of x at i, j), for each example."""

    def __init__(self, filters, kernel_size):
        self.filters = filters
        self.kernel_size = kernel_size

    def build(self, in_shape):
        c, h, w = in_shape
        r, s = self.kernel_size
        self.weight = self.param("weight", (self.filters, c, r, s), he_normal)
        self.bias = self.param("bias", (self.filters,), zeros)
        return (self.filters, h - r + 1, w - s + 1)

    def forward(self, x, training):
        if training:
            self.x = x
        r, s = self.kernel_size
        y = np.zeros((len(x), *self.out_shape), x.dtype)
        for n, k, i, j in np.ndindex(y.shape):
            patch = x[n, :, i : i + r, j : j + s]
            y[n, k, i, j] = (self.weight.value[k] * patch).sum() + self.bias.value[k]
        return y

    def backward(self, dy):
        r, s = self.kernel_size
        dW = np.zeros_like(self.weight.value)
        db = np.zeros_like(self.bias.value)
        dx = np.zeros_like(self.x)
        for n, k, i, j in np.ndindex(dy.shape):
            dW[k] += dy[n, k, i, j] * self.x[n, :, i : i + r, j : j + s]
            db[k] += dy[n, k, i, j]
            dx[n, :, i : i + r, j : j + s] += dy[n, k, i, j] * self.weight.value[k]
        self.weight.grad = dW
        self.bias.grad = db
        return dx
