# %% [markdown]
# # Exercise 6: an optimizer
#
# Backward computes gradients; an optimizer changes the parameters. Gradient descent with *momentum* keeps a velocity
# v for each parameter w with gradient g, which begins at 0:
#
#     v = momentum * v + g
#     w = w - lr * v
#
# lr is the learning rate. It may be another one in each step, so `step` gets it as an argument.
#
# | name | what it is |
# |---|---|
# | `params` | a dict from names, such as "0.weight", to parameters |
# | `p.value` | the array w of a parameter p, which `step` changes in place: `p.value -= ...` |
# | `p.grad` | the array g, already divided by the number of examples; `step` only reads it |
# | `lr` | the rate of this step; the attribute `self.lr` is for the Trainer |
#
# ## What to do
#
# 1. On paper: w = 1, a gradient of 1 in each step, momentum 0.5, lr 0.1. What are v and w after one, two and three
#    steps? Towards which number does v go?
# 2. Write `step`. The velocities are in the dict `self.velocity`, each by the name of its parameter.
#
# `p.grad` is the same array in each step, with other numbers: what you keep has to be an array of your own. Some
# parameters may be missing in a step: layers can be frozen.

# %%


class SGD:
    def __init__(self, lr, momentum=0.9):
        self.lr = lr
        self.momentum = momentum
        self.velocity = {}

    def step(self, params, lr):
        raise NotImplementedError


# %% [markdown]
# ## Is it right?
#
# Run this cell as often as you like, or `python -m minidl grade optimizer.py`. If all is right, a net learns
# handwritten digits with your optimizer. How well does it do with a momentum of 0?

# %%
from minidl import Sequential, Trainer
from minidl.datasets import load_digits
from minidl.layers import Dense, Flatten, ReLU, Rescale
from minidl.testing import grade

if __name__ == "__main__" and grade(SGD):
    data = load_digits()
    model = Sequential([Rescale(1 / 16), Flatten(), Dense(32), ReLU(), Dense(10)])
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1, momentum=0.9), metrics=["accuracy"])
    trainer.fit(data.X_train, data.y_train, epochs=10, verbose=0)
    print(trainer.evaluate(data.X_test, data.y_test))
