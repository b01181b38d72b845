"""A trained net as a feature extractor
=======================================

A convolutional net that was trained on five digits makes features of the other five.

Run it with: `python examples/sklearn_features.py`

A logistic regression learns a few examples of each of the digits 5 to 9, from pixels or from the net's features, which
`transform` returns. Both are scikit-learn pipelines.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedShuffleSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from minidl.estimators import SequentialClassifier
from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, RandomShift, ReLU

# %%
# The net
# -------
# It learns the digits 0 to 4. Layer 6 is `Flatten`: its outputs are the features.

X, y = load_digits(return_X_y=True)
X = (X / 16).astype(np.float32)
low, high = y < 5, y >= 5

layers = [
    RandomShift(1),
    Conv2D(16, 3, padding=1), ReLU(),
    Conv2D(32, 3, padding=1), ReLU(), MaxPool2D(2),
    Flatten(), Dense(64), ReLU(), Dense(5),
]  # fmt: skip
net = SequentialClassifier(layers, input_shape=(1, 8, 8), epochs=30, random_state=0).fit(X[low], y[low])
features = FunctionTransformer(lambda X: net.transform(X, layer=6))

# %%
# The comparison
# --------------
# The regression learns 5 to 9 from a few examples of each; accuracies are means of ten draws.

for each in (3, 10, 30):
    draws = StratifiedShuffleSplit(10, train_size=5 * each, random_state=0)
    regression = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    of_pixels = cross_val_score(regression, X[high], y[high], cv=draws).mean()
    of_features = cross_val_score(make_pipeline(features, regression), X[high], y[high], cv=draws).mean()
    print(f"{each:2} examples of each digit: pixels {of_pixels:.1%}, features {of_features:.1%}")
