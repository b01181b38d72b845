# %% [markdown]
# # Exercise 4: a convolution
#
# A convolution slides filters over an image. An output is the sum of the products of a filter and the patch of the
# image below it, over all channels, plus the filter's bias:
#
#     y[n, k, i, j] = b[k] + the sum of W[k, c, r, s] * x[n, c, i + r, j + s], over c, r and s
#
# It is a dense layer that looks at one patch after the other, with the same weights everywhere. So a weight meets
# many numbers, at each position and in each example, and its gradient is a sum over all of them. A pixel is seen by
# several outputs, because patches overlap.
#
# | array | shape | what it is |
# |---|---|---|
# | `x` | (n, c, h, w) | n images with c channels |
# | `self.weight.value`, W | (filters, c, rows, columns) | the filters |
# | `self.bias.value`, b | (filters,) | a number for each filter |
# | `y` | (n, filters, oh, ow) | what `forward` returns; `self.out_shape` is (filters, oh, ow) |
# | `dy` | (n, filters, oh, ow) | the gradient of the loss with respect to y, which `backward` gets |
# | `dx` | (n, c, h, w) | the gradient with respect to x, which `backward` returns |
# | `self.weight.grad`, dW | as W | the gradient with respect to W, which `backward` writes |
# | `self.bias.grad`, db | as b | the gradient with respect to b, which `backward` writes |
#
# ## What to do
#
# 1. On paper: a row of four pixels and a filter of two weights. Write down the three outputs. In which of them does
#    the second pixel occur, and with which weight? In which the first weight, and with which pixel?
# 2. Write `forward`. Loops are fine: `for n, k, i, j in np.ndindex(y.shape)` visits each output. All channels of a
#    patch are `x[n, :, i : i + rows, j : j + columns]`.
# 3. Write `backward` with the same loop: what does this one output add to dx, dW and db?
#
# Nothing is divided: the Trainer divides by the number of examples. Neither method writes into an array that it gets.

# %%
import numpy as np

from minidl import Layer
from minidl.initializers import he_normal, zeros


class Conv2D(Layer):
    def __init__(self, filters, kernel_size):
        self.filters = filters
        self.kernel_size = kernel_size  # (rows, columns)

    def build(self, in_shape):
        c, h, w = in_shape
        rows, columns = self.kernel_size
        self.weight = self.param("weight", (self.filters, c, rows, columns), he_normal)
        self.bias = self.param("bias", (self.filters,), zeros)
        return (self.filters, h - rows + 1, w - columns + 1)

    def forward(self, x, training):
        if training:
            self.x = x  # for backward
        raise NotImplementedError  # return y

    def backward(self, dy):
        # write self.weight.grad
        # write self.bias.grad
        raise NotImplementedError  # return dx


# %% [markdown]
# ## Is it right?
#
# Run this cell as often as you like, or `python -m minidl grade convolution.py`. If all is right, a net with your
# layer learns handwritten digits, 400 of them: loops in Python take their time. How much faster is
# `minidl.layers.Conv2D(4, (3, 3))`?
#
# To try the layer by hand, build it in a net, which calls `build` with the shape of one example:
#
#     from minidl import Sequential
#     model = Sequential([Conv2D(4, (2, 3))], (1, 5, 5))
#     model.forward(np.random.normal(size=(2, 1, 5, 5)), training=True)

# %%
from minidl import Sequential, Trainer
from minidl.datasets import load_digits
from minidl.layers import Dense, Flatten, ReLU, Rescale
from minidl.optimizers import SGD
from minidl.testing import grade

if __name__ == "__main__" and grade(Conv2D):
    data = load_digits()
    model = Sequential([Rescale(1 / 16), Conv2D(4, (3, 3)), ReLU(), Flatten(), Dense(10)])
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1, momentum=0.9), metrics=["accuracy"])
    trainer.fit(data.X_train[:400], data.y_train[:400], epochs=5)
    print(trainer.evaluate(data.X_test[:100], data.y_test[:100]))
