"""Metrics of two classes that depend on the order of scores alone, and on no threshold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from minidl.metrics.counts import one_label
from minidl.utils.arrays import Array, as_array


def roc_auc(y: Array, scores: Array) -> float:
    """Returns the area under the ROC curve: how often an example of label 1 has a higher score than one of label 0.

    Equal scores count half. It is sklearn.metrics.roc_auc_score.

    Parameters
    ----------
    y : array-like of shape (n,) or (n, h, w)
        Labels 0 and 1.
    scores : array-like of shape (n, 1) or (n, 2), or with h and w as well
        Outputs of a model. Two scores are ordered by their difference, as the probabilities are.

    Returns
    -------
    float
        From 0 to 1, 0.5 for random scores; NaN unless both labels occur, and for scores that are NaN.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or shape.

    Examples
    --------
    >>> from minidl.metrics import roc_auc
    >>> roc_auc([0, 1, 0, 1], [[0.1], [0.4], [0.4], [0.9]])
    0.875
    """
    right, size = _of_thresholds("roc_auc", y, scores)
    positive, wrong = right.sum(), size - right
    if not positive or not wrong.sum():
        return float("nan")
    below = wrong.sum() - wrong.cumsum()  # examples of label 0 with a lower score
    return float((2 * right * below + right * wrong).sum() / (2 * positive * wrong.sum()))


def average_precision(y: Array, scores: Array) -> float:
    """Returns the mean precision over the examples of label 1, each at its own score as the threshold.

    It is sklearn.metrics.average_precision_score, which is 0 where this one is NaN without a label 1.

    Parameters
    ----------
    y : array-like of shape (n,) or (n, h, w)
        Labels 0 and 1.
    scores : array-like of shape (n, 1) or (n, 2), or with h and w as well
        Outputs of a model. Two scores are ordered by their difference, as the probabilities are.

    Returns
    -------
    float
        From 0 to 1, the share of label 1 for random scores; NaN without a label 1, and for scores that are NaN.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or shape.

    Examples
    --------
    >>> from minidl.metrics import average_precision
    >>> average_precision([0, 1, 0, 1], [[0.1], [0.3], [0.4], [0.9]])
    0.8333333333333333
    """
    right, size = _of_thresholds("average_precision", y, scores)
    if not right.sum():
        return float("nan")
    return float((right * (right.cumsum() / size.cumsum())).sum() / right.sum())


def _of_thresholds(name: str, y: Array, scores: Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns for each distinct score, from the highest, the number of examples of label 1, and of all.

    Of scores that are NaN: none. Raises TypeError or ValueError, beginning with `name`.
    """
    labels, _, classes = one_label(name, y, scores)
    outputs = np.moveaxis(as_array(scores, f"{name}: scores"), 1, -1).astype(np.float64)
    if classes != 2:
        raise ValueError(f"{name}: expected scores of one or two classes, got {classes}")
    if not np.isin(labels, (0, 1)).all():
        raise ValueError(f"{name}: expected labels 0 and 1, got other values")
    with np.errstate(invalid="ignore"):  # the difference of infinities
        order = (outputs[..., 0] if outputs.shape[-1] == 1 else outputs[..., 1] - outputs[..., 0]).ravel()
    if np.isnan(order).any():
        return np.zeros(1, np.int64), np.zeros(1, np.int64)
    _, places, size = np.unique(-order, return_inverse=True, return_counts=True)
    return np.bincount(places, labels, len(size)).astype(np.int64), size
