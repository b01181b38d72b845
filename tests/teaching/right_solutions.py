"""Right solutions of the exercises in styles unlike those of docs/teaching/solutions."""

import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from minidl import Layer
from minidl.initializers import zeros
from minidl.optimizers import Optimizer


class Dense(Layer):
    """One product for the whole batch, in float64; the gradients are written in place."""

    def __init__(self, units):
        self.units = units

    def build(self, in_shape):
        shape = (self.units, *in_shape)
        self.W = self.param("weight", shape, lambda rng, shape: rng.uniform(-1, 1, shape))
        self.b = self.param("bias", shape[:1], zeros)
        return shape[:1]

    def forward(self, x, training):
        extended = np.c_[x.astype("float64"), np.ones(len(x))]
        if training:
            self.cache = extended
        return (extended @ np.c_[self.W.value, self.b.value].T).astype(x.dtype)

    def backward(self, dy):
        both = np.einsum("no,ni->oi", dy.astype("float64"), self.cache)
        self.W.grad[...], self.b.grad[...] = both[:, :-1], both[:, -1]
        return dy @ self.W.value


class ReLU(Layer):
    """Loops over single numbers of plain Python."""

    def forward(self, x, training):
        flat = [value if value > 0 else 0.0 for value in x.ravel().tolist()]
        if training:
            self.on = [value > 0 for value in x.ravel().tolist()]
        return np.array(flat, x.dtype).reshape(x.shape)

    def backward(self, dy):
        dx = [value if on else 0.0 for value, on in zip(dy.ravel().tolist(), self.on, strict=True)]
        return np.array(dx, dy.dtype).reshape(dy.shape)


class MaxPool2D(Layer):
    """Views of all windows at once, and np.add.at for the overlaps."""

    def __init__(self, pool_size, stride):
        self.pool_size, self.stride = pool_size, stride

    def build(self, in_shape):
        c, h, w = in_shape
        return (c, 1 + (h - self.pool_size) // self.stride, 1 + (w - self.pool_size) // self.stride)

    def forward(self, x, training):
        p, s = self.pool_size, self.stride
        windows = sliding_window_view(x, (p, p), (2, 3))[:, :, ::s, ::s].reshape(len(x), *self.out_shape, p * p)
        if training:
            self.shape, self.places = x.shape, windows.argmax(-1)
        return windows.max(-1)

    def backward(self, dy):
        dx = np.zeros(self.shape, dy.dtype)
        n, c, i, j = np.indices(dy.shape)
        rows, columns = self.stride * i + self.places // self.pool_size, self.stride * j + self.places % self.pool_size
        np.add.at(dx, (n, c, rows, columns), dy)
        return dx


class Conv2D(Layer):
    """One matrix product of all patches (im2col); dx is a convolution of dy, with borders, by the flipped filters."""

    def __init__(self, filters, kernel_size):
        self.filters, self.kernel_size = filters, kernel_size

    def build(self, in_shape):
        c, h, w = in_shape
        r, s = self.kernel_size
        self.weight = self.param("weight", (self.filters, c, r, s), lambda rng, shape: rng.normal(0, 0.1, shape))
        self.bias = self.param("bias", (self.filters,), zeros)
        return (self.filters, h - r + 1, w - s + 1)

    def columns(self, x):
        n, (r, s) = len(x), self.kernel_size
        patches = sliding_window_view(x, (r, s), (2, 3)).transpose(0, 2, 3, 1, 4, 5)
        return patches.reshape(n * patches.shape[1] * patches.shape[2], x.shape[1] * r * s)

    def forward(self, x, training):
        columns = self.columns(x)
        if training:
            self.kept = columns
        k, oh, ow = self.out_shape
        y = columns @ self.weight.value.reshape(k, columns.shape[1]).T + self.bias.value
        return y.reshape(len(x), oh, ow, k).transpose(0, 3, 1, 2)

    def backward(self, dy):
        (r, s), k = self.kernel_size, self.filters
        rows = dy.transpose(0, 2, 3, 1).reshape(dy.size // k, k)
        self.weight.grad = (rows.T @ self.kept).reshape(self.weight.value.shape)
        self.bias.grad = rows.sum(axis=0)
        padded = np.pad(dy, ((0, 0), (0, 0), (r - 1, r - 1), (s - 1, s - 1)))
        flipped = self.weight.value[:, :, ::-1, ::-1].transpose(1, 0, 2, 3)
        n, (c, h, w) = len(dy), self.in_shape
        dx = self.columns(padded) @ flipped.reshape(c, k * r * s).T
        return dx.reshape(n, h, w, c).transpose(0, 3, 1, 2)


def softmax_cross_entropy(scores, y):
    """Sums of exact rounding, number by number."""
    losses, rows = [], []
    for row, label in zip(scores.tolist(), y.tolist(), strict=True):
        top = max(row)
        logsumexp = top + math.log(math.fsum(math.exp(score - top) for score in row))
        losses.append(logsumexp - row[label])
        rows.append([math.exp(score - logsumexp) - (k == label) for k, score in enumerate(row)])
    return np.array(losses), np.array(rows)


class SGD(Optimizer):
    """Derives from minidl's base class; writes into its own velocities, which exist from the first step on."""

    def __init__(self, lr, momentum=0.9):
        super().__init__(lr)
        self.momentum, self.state = momentum, {}

    def step(self, params, lr):
        for name in params:
            value, grad = params[name].value, params[name].grad
            velocity = self.state.setdefault(name, np.zeros(grad.shape, grad.dtype))
            np.multiply(velocity, self.momentum, out=velocity)
            np.add(velocity, grad, out=velocity)
            np.subtract(value, velocity * lr, out=value)
