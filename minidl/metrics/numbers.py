"""Metrics of numbers: errors over all outputs, and the coefficient of determination."""

from __future__ import annotations

import numpy as np

from minidl.metrics.counts import of_equal_shapes
from minidl.utils.arrays import Array
from minidl.utils.optional import needs


def mae(y: Array, scores: Array) -> float:
    """Returns the mean absolute error over all outputs.

    It is sklearn.metrics.mean_absolute_error.

    Parameters
    ----------
    y : array-like of the shape of `scores`, or (n,) for scores (n, 1)
        Targets.
    scores : array-like of shape (n, outputs), or with more axes
        Outputs of a model.

    Returns
    -------
    float
        At least 0; NaN without examples.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or shape.

    Examples
    --------
    >>> from minidl.metrics import mae
    >>> mae([1, 2], [[2], [4]])
    1.5
    """
    targets, outputs = _numbers("mae", y, scores)
    return float(np.abs(outputs - targets).mean()) if targets.size else float("nan")


def mse(y: Array, scores: Array) -> float:
    """Returns the mean squared error over all outputs.

    It is sklearn.metrics.mean_squared_error.

    Parameters
    ----------
    y : array-like of the shape of `scores`, or (n,) for scores (n, 1)
        Targets.
    scores : array-like of shape (n, outputs), or with more axes
        Outputs of a model.

    Returns
    -------
    float
        At least 0; NaN without examples.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or shape.

    Examples
    --------
    >>> from minidl.metrics import mse
    >>> mse([1, 2], [[2], [4]])
    2.5
    """
    targets, outputs = _numbers("mse", y, scores)
    return float(np.square(outputs - targets).mean()) if targets.size else float("nan")


def rmse(y: Array, scores: Array) -> float:
    """Returns the root of the mean squared error over all outputs, as of `mse`.

    Parameters
    ----------
    y : array-like of the shape of `scores`, or (n,) for scores (n, 1)
        Targets.
    scores : array-like of shape (n, outputs), or with more axes
        Outputs of a model.

    Returns
    -------
    float
        At least 0; NaN without examples.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or shape.

    Examples
    --------
    >>> from minidl.metrics import rmse
    >>> rmse([0, 0], [[1], [7]])
    5.0
    """
    targets, outputs = _numbers("rmse", y, scores)
    return float(np.sqrt(np.square(outputs - targets).mean())) if targets.size else float("nan")


def r2(y: Array, scores: Array) -> float:
    """Returns the coefficient of determination, averaged over outputs.

    It is sklearn.metrics.r2_score.

    Parameters
    ----------
    y : array-like of the shape of `scores`, or (n,) for scores (n, 1)
        Targets.
    scores : array-like of shape (n, outputs), or with more axes
        Outputs of a model.

    Returns
    -------
    float
        At most 1; NaN for fewer than two rows, and for outputs that are not finite.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or shape.

    Examples
    --------
    >>> from minidl.metrics import r2
    >>> r2([1, 2, 3], [[1], [2], [4]])
    0.5
    """
    targets, outputs = _numbers("r2", y, scores)
    if len(targets) < 2 or not targets.size or not np.isfinite(outputs).all():
        return float("nan")
    with needs("sklearn", "the metric r2"):
        from sklearn.metrics import r2_score  # imports scipy: not before it is needed
    return float(r2_score(targets.reshape(len(targets), -1), outputs.reshape(len(outputs), -1)))


def _numbers(name: str, y: Array, scores: Array) -> tuple[Array, Array]:
    """Returns targets and scores in float64, of equal shapes; y may be (n,) for scores (n, 1)."""
    y, scores = of_equal_shapes(name, y, scores)
    return y.astype(np.float64), scores.astype(np.float64)
