# %% [markdown]
# # Exercise 1: a dense layer
#
# A dense layer multiplies each example by a matrix and adds a vector:
#
#     y = W x + b
#
# A *batch* has several examples, one in each row. Forward treats each row by itself. So does backward, with one
# exception: the gradients of W and b, which all examples share, are *sums* over the batch.
#
# | array | shape | what it is |
# |---|---|---|
# | `x` | (n, inputs) | n examples |
# | `self.weight.value`, W | (units, inputs) | a row for each output |
# | `self.bias.value`, b | (units,) | a number for each output |
# | `y` | (n, units) | what `forward` returns |
# | `dy` | (n, units) | the gradient of the loss with respect to y, which `backward` gets |
# | `dx` | (n, inputs) | the gradient with respect to x, which `backward` returns |
# | `self.weight.grad`, dW | (units, inputs) | the gradient with respect to W, which `backward` writes |
# | `self.bias.grad`, db | (units,) | the gradient with respect to b, which `backward` writes |
#
# ## What to do
#
# 1. On paper: one example with 2 inputs and 2 outputs. Write down both outputs, and their derivatives with respect to
#    each of the weights, each bias and each input.
# 2. Write `forward`, for all examples of a batch. `y` has the dtype of x: `np.zeros(shape, x.dtype)`.
# 3. Write `backward`. By the chain rule, a gradient is dy times a derivative, summed over all outputs in which the
#    number occurs. Assign the gradients of the parameters: `self.weight.grad = ...`, `self.bias.grad = ...`. Nothing
#    is divided by n: the Trainer does that.
#
# Neither method writes into an array that it gets. A batch may have any number of examples, also none.

# %%
import numpy as np

from minidl import Layer
from minidl.initializers import he_normal, zeros


class Dense(Layer):
    def __init__(self, units):
        self.units = units

    def build(self, in_shape):
        (inputs,) = in_shape
        self.weight = self.param("weight", (self.units, inputs), he_normal)
        self.bias = self.param("bias", (self.units,), zeros)
        return (self.units,)

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
# Run this cell as often as you like, or `python -m minidl grade dense.py`. If all is right, a net with your layer
# learns handwritten digits.
#
# To try the layer by hand, build it in a net, which calls `build` with the shape of one example:
#
#     from minidl import Sequential
#     model = Sequential([Dense(3)], (4,))
#     model.forward(np.random.normal(size=(2, 4)), training=True)

# %%
from minidl import Sequential, Trainer
from minidl.datasets import load_digits
from minidl.layers import Flatten, ReLU, Rescale
from minidl.optimizers import SGD
from minidl.testing import grade

if __name__ == "__main__" and grade(Dense):
    data = load_digits()
    model = Sequential([Rescale(1 / 16), Flatten(), Dense(32), ReLU(), Dense(10)])
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1, momentum=0.9), metrics=["accuracy"])
    trainer.fit(data.X_train, data.y_train, epochs=10, verbose=0)
    print(trainer.evaluate(data.X_test, data.y_test))
