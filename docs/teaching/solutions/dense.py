"""A solution of the exercise Dense."""

import numpy as np

from minidl import Layer
from minidl.initializers import he_normal, zeros


class Dense(Layer):
    """y = W x + b, for each example."""

    def __init__(self, units):
        self.units = units

    def build(self, in_shape):
        (inputs,) = in_shape
        self.weight = self.param("weight", (self.units, inputs), he_normal)
        self.bias = self.param("bias", (self.units,), zeros)
        return (self.units,)

    def forward(self, x, training):
        if training:
            self.x = x
        y = np.zeros((len(x), self.units), x.dtype)
        for n in range(len(x)):
            y[n] = self.weight.value @ x[n] + self.bias.value
        return y

    def backward(self, dy):
        dW = np.zeros_like(self.weight.value)
        db = np.zeros_like(self.bias.value)
        dx = np.zeros_like(self.x)
        for n in range(len(dy)):
            dW += np.outer(dy[n], self.x[n])
            db += dy[n]
            dx[n] = self.weight.value.T @ dy[n]
        self.weight.grad = dW
        self.bias.grad = db
        return dx
