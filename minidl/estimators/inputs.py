"""What scikit-learn hands to an estimator as X: tables, images, data frames and sparse matrices, as rows of numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from minidl.sequential import Sequential
from minidl.utils.arrays import check_unmasked
from minidl.utils.validation import Shape, check_input_shape


def validate_input(estimator: Any, X: Any, reset: bool, **checks: Any) -> tuple[Any, Shape]:
    """X as rows (n, size), an array or a CSR matrix, and the shape of one example; with a y in `checks`, (X, y) first.

    reset: whether the estimator is fitted anew, and learns the number and the names of features.
    Raises TypeError or ValueError as scikit-learn's validate_data, and for examples of another shape.
    """
    check_unmasked(X, "X")
    X = np.asarray(X) if isinstance(X, (list, tuple)) else X
    shape = _shape(_told(estimator) if reset else estimator.input_shape_, X)
    if getattr(X, "ndim", 2) > 2:
        X = np.asarray(X).reshape(len(X), math.prod(X.shape[1:]))
    rows = validate_data(estimator, X, reset=reset, accept_sparse="csr", **checks)
    width = (rows[0] if isinstance(rows, tuple) else rows).shape[1]
    if shape is None:
        shape = (width,)
    if math.prod(shape) != width:
        raise ValueError(f"X: expected {math.prod(shape)} features, for examples of shape {shape}, got {width}")
    return rows, shape


def _told(estimator: Any) -> Shape | None:
    """The shape of one example that an estimator was made with: its input_shape, or that of a model that is built."""
    model = estimator.model
    if estimator.input_shape is None and isinstance(model, Sequential) and model.network is not None:
        return model.input_shape
    return None if estimator.input_shape is None else check_input_shape(estimator.input_shape)


def _shape(told: Shape | None, X: Any) -> Shape | None:
    """The shape of one example: what was told, or else that of X; None: as many features as X has."""
    if getattr(X, "ndim", 2) <= 2:
        return told
    found = tuple(X.shape[1:])
    if len(found) == 2 and (told is None or told[0] == 1):
        found = (1, *found)
    if told is not None and found != told and found != (math.prod(told),):
        hint = ": channels come first, X.transpose(0, 3, 1, 2)" if found == (*told[1:], told[0]) else ""
        raise ValueError(f"X: expected examples of shape {told}, got {X.shape[1:]}{hint}")
    return found if told is None else told
