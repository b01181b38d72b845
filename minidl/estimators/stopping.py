"""Stopping criterion of an estimator's fit, and its metrics on held-out rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minidl.metrics import r2
from minidl.utils.arrays import Array


class NoImprovement:
    """Callback that stops a fit after `patience` consecutive epochs whose loss has not fallen by more than `tol`.

    scikit-learn's MLPClassifier without early stopping does the same one epoch later. The last weights stay.
    """

    def __init__(self, tol: float, patience: int) -> None:
        self.tol, self.patience = tol, patience
        self._best, self._wait = math.inf, 0

    def on_epoch_end(self, trainer: Any, epoch: int, logs: dict[str, float]) -> None:
        """Counts consecutive epochs whose loss is not below the best one by more than tol."""
        self._wait = 0 if logs["loss"] < self._best - self.tol else self._wait + 1
        self._best = min(self._best, logs["loss"])
        if self._wait >= self.patience:
            trainer.should_stop = True


def r2_of_rates(y: Array, scores: Array) -> float:
    """Returns R² of the exponentials of scores, which are logarithms with the Poisson loss."""
    return r2(y, np.exp(scores))
