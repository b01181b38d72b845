"""Stopping criterion of an estimator's fit, and its metrics on held-out rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.metrics import d2_pinball_score

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


def d2_of_quantiles(y: Any, predicted: Array, quantiles: float | Sequence[float], weights: Any = None) -> float:
    """Returns the mean over quantiles of scikit-learn's d2_pinball_score; predicted: (n,), or (n, quantiles)."""
    columns = predicted.reshape(len(predicted), -1).T
    pairs = zip(columns, np.atleast_1d(quantiles), strict=True)
    return float(np.mean([d2_pinball_score(y, one, alpha=q, sample_weight=weights) for one, q in pairs]))


class D2OfQuantiles:
    """Metric: the score of a regressor with a Pinball loss, of all quantiles at once, as each epoch needs it."""

    __name__ = "d2_pinball"

    def __init__(self, quantiles: float | Sequence[float]) -> None:
        self.quantiles = quantiles

    def __call__(self, y: Array, scores: Array) -> float:
        """Returns `d2_of_quantiles`; NaN for fewer than two rows, and for scores that are not finite."""
        if len(y) < 2 or not np.isfinite(scores).all():
            return math.nan
        numbers, levels = y[:, :1].astype(np.float64), np.atleast_1d(self.quantiles)

        def losses(predicted: Array) -> Array:
            missing = numbers - predicted
            return np.asarray(np.maximum(levels * missing, (levels - 1) * missing).mean(axis=0))

        ours, best_constant = losses(scores), losses(np.quantile(numbers, levels))
        shares = np.divide(ours, best_constant, out=np.sign(ours), where=best_constant > 0)
        return float(1 - shares.mean())
