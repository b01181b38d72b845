"""Weights of the classes, or of the channels, of a loss: a number for all, or one for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minidl.utils.validation import Shape, check_non_negative

Weights = float | Sequence[float] | None


def as_weights(name: str, weights: Any) -> Weights:
    """Returns a number, or several as a tuple; raises TypeError or ValueError unless all are finite and at least 0."""
    if weights is None:
        return None
    if isinstance(weights, np.ndarray) and weights.ndim == 1:
        weights = weights.tolist()
    if isinstance(weights, (Mapping, str)):
        raise TypeError(f"{name}: expected a number, or a list of one for each class, got {weights!r}")
    if not isinstance(weights, (tuple, list)):
        return check_non_negative(name, weights, "float32")
    if not weights:
        raise ValueError(f"{name}: expected at least one number, got none")
    return tuple(check_non_negative(name, weight, "float32") for weight in weights)


def by_channel(name: str, weights: Weights, shape: Shape) -> tuple[float, ...] | None:
    """Returns a number for each channel of outputs of this shape; None: ones.

    Raises ValueError, naming the argument, for another number of weights than of channels.
    """
    if isinstance(weights, float):
        return (weights,) * shape[0]
    if weights is not None and len(weights) != shape[0]:
        raise ValueError(f"{name}: expected a number, or {shape[0]} for outputs {shape}, got {len(weights)}")
    return None if weights is None else tuple(weights)
