"""Incremental training
=======================

`partial_fit` trains a net on data that arrives in portions, as scikit-learn's estimators do.

Run it with: `python examples/sklearn_partial_fit.py`

Each portion is predicted before it is trained on, so the accuracy is that on unseen examples.
"""

import pickle

import numpy as np
from sklearn.datasets import load_digits

from minidl.estimators import SequentialClassifier
from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, ReLU, Rescale

# %%
# The digits come in random order, in portions of 100. `partial_fit` needs all labels that will occur.

X, y = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(X))
X, y = X[order], y[order]

layers = [Rescale(1 / 16), Conv2D(16, 3, padding=1), ReLU(), MaxPool2D(2), Flatten(), Dense(64), ReLU(), Dense(10)]
net = SequentialClassifier(layers, input_shape=(1, 8, 8), batch_size=16, lr=0.003, dtype="float32", random_state=0)
classes = np.unique(y)

# %%
# Each portion is predicted, then trained on. Halfway the net is pickled and loaded, as after a restart: the state of
# the optimizer is kept, too.

right = []
for start in range(0, len(X), 100):
    portion = slice(start, start + 100)
    if start:
        right.append((net.predict(X[portion]) == y[portion]).mean())
        print(f"after {start:4} examples: {right[-1]:5.1%} of the next {len(X[portion])} are right")
    if start == 900:
        net = pickle.loads(pickle.dumps(net))
    net.partial_fit(X[portion], y[portion], classes)

print(f"Accuracy on the last portions {np.mean(right[-5:]):.1%}")
