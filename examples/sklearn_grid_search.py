"""Grid search in two processes
===============================

A grid search over two architectures and two learning rates. The scores do not depend on the number of processes, bit
for bit.

Run it with: `python examples/sklearn_grid_search.py`

Each process uses half of the cores.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV

from minidl.estimators import SequentialClassifier
from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, ReLU


def dense_net(outputs):
    """Returns one hidden layer."""
    return [Flatten(), Dense(64), ReLU(), Dense(outputs)]


def conv_net(outputs):
    """Returns the same after a convolution."""
    return [Conv2D(16, 3, padding=1), ReLU(), MaxPool2D(2), *dense_net(outputs)]


def main():
    """Searches and prints the results."""
    X, y = load_digits(return_X_y=True)
    X = (X / 16).astype(np.float32)
    net = SequentialClassifier(input_shape=(1, 8, 8), epochs=15, random_state=0)
    grid = {"model": [dense_net, conv_net], "lr": [0.001, 0.01]}
    search = GridSearchCV(net, grid, cv=3, n_jobs=2).fit(X, y)

    found = search.cv_results_
    for options, mean, seconds in zip(found["params"], found["mean_test_score"], found["mean_fit_time"], strict=True):
        print(f"{options['model'].__name__:10} lr {options['lr']:<6} accuracy {mean:.2%}, {seconds:.2f} s a fit")
    print(f"\nThe best: {search.best_params_['model'].__name__}, lr {search.best_params_['lr']}")


if __name__ == "__main__":  # the processes import this file
    main()
