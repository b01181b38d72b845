# %% [markdown]
# # Exercise 5: a loss
#
# A net for classification returns a score for each class. The softmax makes probabilities of the scores of an
# example, and the loss is small if that of the right class is large:
#
#     p[k] = exp(scores[k]) / (the sum of exp(scores) over all classes)
#     loss = -log(p[label])
#
# A loss also starts backward: it returns its own gradient. Both are computed example by example, and nothing is
# averaged over the batch: the Trainer does that.
#
# | array | shape | what it is |
# |---|---|---|
# | `scores` | (n, classes) | the outputs of the net |
# | `y` | (n,) | the labels, whole numbers from 0 to classes - 1 |
# | `losses` | (n,) | the first result: a loss for each example |
# | `dscores` | (n, classes) | the second result: row i is the gradient of `losses[i]` with respect to `scores[i]` |
#
# ## What to do
#
# 1. On paper: one example with three classes. Write the loss as a function of the three scores, without p, and take
#    its derivative with respect to the score of the label, and to another one. The result is short; what do the three
#    numbers add up to?
# 2. Write `losses`, and return `losses, None` for now. `exp(1000)` is infinite, and scores may be that large. The
#    loss does not change if one number is subtracted from all scores of an example: choose it well.
# 3. Write `dscores`.
#
# Neither `scores` nor `y` is changed.

# %%
import numpy as np


def softmax_cross_entropy(scores, y):
    raise NotImplementedError  # return losses, dscores


# %% [markdown]
# ## Is it right?
#
# Run this cell as often as you like, or `python -m minidl grade loss.py`. If all is right, a net learns handwritten
# digits with your loss.

# %%
from minidl import Sequential, Trainer
from minidl.datasets import load_digits
from minidl.layers import Dense, Flatten, ReLU, Rescale
from minidl.optimizers import SGD
from minidl.testing import grade

if __name__ == "__main__" and grade(softmax_cross_entropy):
    data = load_digits()
    model = Sequential([Rescale(1 / 16), Flatten(), Dense(32), ReLU(), Dense(10)])
    trainer = Trainer(model, softmax_cross_entropy, SGD(0.1, momentum=0.9), metrics=["accuracy"])
    trainer.fit(data.X_train, data.y_train, epochs=10, verbose=0)
    print(trainer.evaluate(data.X_test, data.y_test))
