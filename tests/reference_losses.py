"""The element-wise losses in NumPy, float64: functions of one output x and its target t, averaged per example."""

import numpy as np


def sigmoid(x):
    return np.where(x < 0, np.exp(-np.abs(x)), 1) / (1 + np.exp(-np.abs(x)))


def log_sigmoid(x):
    return np.where(x < 0, x, 0) - np.log1p(np.exp(-np.abs(x)))


def huber(x, t, delta):
    d = np.abs(x - t)
    return np.where(d <= delta, 0.5 * d * d, delta * (d - 0.5 * delta))


# By name: the loss and its derivative with respect to x.
FUNCTIONS = {
    "mean_squared_error": (lambda x, t, delta: (x - t) ** 2, lambda x, t, delta: 2 * (x - t)),
    "mean_absolute_error": (lambda x, t, delta: np.abs(x - t), lambda x, t, delta: np.sign(x - t)),
    "huber": (huber, lambda x, t, delta: np.clip(x - t, -delta, delta)),
    "binary_cross_entropy": (
        lambda x, t, delta: -t * log_sigmoid(x) - (1 - t) * log_sigmoid(-x),
        lambda x, t, delta: sigmoid(x) - t,
    ),
    "poisson": (lambda x, t, delta: np.exp(x) - t * x, lambda x, t, delta: np.exp(x) - t),
}


def mean_of(name, scores, targets, delta=1.0):
    """Returns (losses (n,), dscores), for scores of any shape."""
    x, t = scores.astype(np.float64), targets.astype(np.float64)
    f, slope = FUNCTIONS[name]
    size = int(np.prod(x.shape[1:]))
    return f(x, t, delta).reshape(len(x), size).mean(axis=1), slope(x, t, delta) / size


def softmax_cross_entropy(scores, q, counts=None):
    """Returns (losses (n,), dscores) of targets q (n, classes, ...): means over the positions that count, (n, ...)."""
    x, q = scores.astype(np.float64), q.astype(np.float64)
    counts = np.ones(x.shape[:1] + x.shape[2:], bool) if counts is None else counts
    shifted = x - x.max(axis=1, keepdims=True)
    total, share = np.exp(shifted).sum(axis=1, keepdims=True), q.sum(axis=1, keepdims=True)
    losses = (share * np.log(total))[:, 0] - np.where(q > 0, q * np.where(q > 0, shifted, 0), 0).sum(axis=1)
    slopes = share * np.exp(shifted) / total - q
    axes = tuple(range(1, counts.ndim))
    number = np.maximum(counts.astype(int).sum(axis=axes, keepdims=True), 1)
    mean = (np.where(counts, losses, 0) / number).sum(axis=axes)
    return mean, np.where(counts[:, np.newaxis], slopes, 0) / number[:, np.newaxis]
