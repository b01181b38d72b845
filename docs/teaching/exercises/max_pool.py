# %% [markdown]
# # Exercise 3: max-pooling
#
# A max-pool slides a square window over each channel of an image, and keeps the largest number of each window. The
# window of output (i, j) has `pool_size` rows and columns, and begins at row `i * stride` and column `j * stride`:
#
#     y[n, c, i, j] = the largest of x[n, c, i * stride + r, j * stride + s], for r and s from 0 to pool_size - 1
#
# | array | shape | what it is |
# |---|---|---|
# | `x` | (n, c, h, w) | n images with c channels |
# | `y` | (n, c, oh, ow) | what `forward` returns; `self.out_shape` is (c, oh, ow) |
# | `dy` | (n, c, oh, ow) | the gradient of the loss with respect to y, which `backward` gets |
# | `dx` | (n, c, h, w) | the gradient with respect to x, which `backward` returns |
#
# How does a gradient pass through a maximum, if the maximum is at another place in each example? Example by example:
# each number of dy goes to the maximum of its own window, of its own channel, in its own example. Nothing is summed
# over the batch.
#
# ## What to do
#
# 1. On paper: a row of five numbers with a tie, `pool_size` 3 and `stride` 2, so that both windows share a number.
#    What is y? Where does dy = (1, 10) go? If a window has several equal maxima, the first one, row by row, gets the
#    gradient.
# 2. Write `forward`. Loops are fine: `for n, c, i, j in np.ndindex(y.shape)` visits each output.
# 3. Write `backward`. `argmax` returns the place of the first maximum, counted row by row.
#
# `x` may have only negative numbers. Neither method writes into an array that it gets.

# %%
import numpy as np

from minidl import Layer


class MaxPool2D(Layer):
    def __init__(self, pool_size, stride):
        self.pool_size = pool_size
        self.stride = stride

    def build(self, in_shape):
        c, h, w = in_shape
        return (c, (h - self.pool_size) // self.stride + 1, (w - self.pool_size) // self.stride + 1)

    def forward(self, x, training):
        if training:
            self.x = x  # for backward
        raise NotImplementedError  # return y

    def backward(self, dy):
        raise NotImplementedError  # return dx


# %% [markdown]
# ## Is it right?
#
# Run this cell as often as you like, or `python -m minidl grade max_pool.py`. If all is right, a net with your layer
# learns handwritten digits.
#
# To try the layer by hand, build it in a net, which calls `build` with the shape of one example:
#
#     from minidl import Sequential
#     model = Sequential([MaxPool2D(3, 2)], (1, 5, 5))
#     model.forward(np.random.normal(size=(2, 1, 5, 5)), training=True)

# %%
from minidl import Sequential, Trainer
from minidl.datasets import load_digits
from minidl.layers import Conv2D, Dense, Flatten, ReLU, Rescale
from minidl.optimizers import SGD
from minidl.testing import grade

if __name__ == "__main__" and grade(MaxPool2D):
    data = load_digits()
    model = Sequential([Rescale(1 / 16), Conv2D(8, 3), ReLU(), MaxPool2D(2, 2), Flatten(), Dense(10)])
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1, momentum=0.9), metrics=["accuracy"])
    trainer.fit(data.X_train, data.y_train, epochs=3)
    print(trainer.evaluate(data.X_test, data.y_test))
