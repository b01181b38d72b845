# %% [markdown]
# # Exercise 2: ReLU
#
# An activation is a function of single numbers. ReLU keeps what is above 0, and replaces the rest by 0:
#
#     y = max(x, 0)
#
# It has no parameters, so nothing is summed over the batch: each number of `dx` belongs to one number of `x`.
#
# | array | shape | what it is |
# |---|---|---|
# | `x` | (n, ...) | n examples, of any shape |
# | `y` | (n, ...) | what `forward` returns |
# | `dy` | (n, ...) | the gradient of the loss with respect to y, which `backward` gets |
# | `dx` | (n, ...) | the gradient with respect to x, which `backward` returns |
#
# ## What to do
#
# 1. On paper: draw the function, and its slope below it. At x = 0 there is none; minidl takes 0, and so do you.
# 2. Write `forward` for arrays: functions such as `np.maximum` work number by number.
# 3. Write `backward`. By the chain rule, a number of dx is the slope at x times the number of dy.
#
# Neither method writes into an array that it gets: make new ones, with the same dtype.

# %%
import numpy as np

from minidl import Layer


class ReLU(Layer):
    def forward(self, x, training):
        if training:
            self.x = x  # for backward
        raise NotImplementedError  # return y

    def backward(self, dy):
        raise NotImplementedError  # return dx


# %% [markdown]
# ## Is it right?
#
# Run this cell as often as you like, or `python -m minidl grade relu.py`. If all is right, a net with your layer learns
# which points of a square lie in a circle. How well does it do without the line `ReLU(),`?
#
# To try the layer by hand, build it in a net, which calls `build` with the shape of one example:
#
#     from minidl import Sequential
#     model = Sequential([ReLU()], (4,))
#     model.forward(np.random.normal(size=(2, 4)), training=True)

# %%
from minidl import Sequential, Trainer
from minidl.layers import Dense
from minidl.optimizers import SGD
from minidl.testing import grade

if __name__ == "__main__" and grade(ReLU):
    X = np.random.default_rng(0).uniform(-1, 1, (2000, 2))
    y = (np.hypot(*X.T) < 0.8).astype(int)
    layers = [
        Dense(16),
        ReLU(),
        Dense(2),
    ]
    trainer = Trainer(Sequential(layers), "softmax_cross_entropy", SGD(0.1, momentum=0.9), metrics=["accuracy"])
    trainer.fit(X[:1000], y[:1000], epochs=50, verbose=0)
    print(trainer.evaluate(X[1000:], y[1000:]))
