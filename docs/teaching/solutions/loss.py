"""A solution of the exercise softmax_cross_entropy."""

import numpy as np


def softmax_cross_entropy(scores, y):
    """The loss -log(p[y]) of each example, where p is the softmax of its scores, and its gradient p - (1 at y)."""
    losses = np.zeros(len(scores), scores.dtype)
    dscores = np.zeros_like(scores)
    for n in range(len(scores)):
        shifted = scores[n] - scores[n].max()
        log_p = shifted - np.log(np.exp(shifted).sum())
        losses[n] = -log_p[y[n]]
        dscores[n] = np.exp(log_p)
        dscores[n, y[n]] -= 1
    return losses, dscores
