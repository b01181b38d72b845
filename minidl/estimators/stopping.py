"""When an estimator's fit has come far enough, and how good it is on rows held back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.metrics import r2_score

from minidl.utils.arrays import Array


class NoImprovement:
    """A callback that stops a fit whose loss no longer falls by more than `tol`, `patience` epochs in a row.

    So does scikit-learn's MLPClassifier without early stopping, one epoch later; the last weights stay.
    """

    def __init__(self, tol: float, patience: int) -> None:
        self.tol, self.patience = tol, patience
        self._best, self._wait = math.inf, 0

    def on_epoch_end(self, trainer: Any, epoch: int, logs: dict[str, float]) -> None:
        """Counts the epochs that were no better than the best one before, by more than tol."""
        self._wait = 0 if logs["loss"] < self._best - self.tol else self._wait + 1
        self._best = min(self._best, logs["loss"])
        if self._wait >= self.patience:
            trainer.should_stop = True


def subset_accuracy(y: Array, scores: Array) -> float:
    """The share of rows all of whose labels are right: a label is predicted where its score is above 0."""
    return float(((scores > 0) == (y > 0)).all(axis=1).mean())


def r2(y: Array, scores: Array) -> float:
    """The coefficient of determination, the mean over outputs (sklearn.metrics.r2_score)."""
    return float(r2_score(y, scores))


def r2_of_rates(y: Array, scores: Array) -> float:
    """The same for scores that are logarithms, as the Poisson loss has them."""
    return float(r2_score(y, np.exp(scores)))
