"""Validation of X of an estimator: tables, images, data frames and sparse matrices become rows of numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from minidl.sequential import Sequential
from minidl.utils.arrays import check_unmasked
from minidl.utils.errors import refusing_input
from minidl.utils.validation import Shape, check_shape


def validate_input(estimator: Any, X: Any, reset: bool, **checks: Any) -> tuple[Any, Shape]:
    """Returns X as rows (n, size), an array or a CSR matrix, and the shape of one example.

    With a y in `checks`, the first result is (X, y).

    reset: whether the estimator is fitted from scratch and stores the number and names of features.
    Raises InputError, with the messages of scikit-learn's validate_data, and for examples of another shape.
    """
    declared = _declared_shape(estimator) if reset else estimator.input_shape_
    with refusing_input():
        check_unmasked(X, "X")
        X = np.asarray(X) if isinstance(X, (list, tuple)) else X
        shape = _resolve_shape(declared, X)
        if getattr(X, "ndim", 2) > 2:
            X = np.asarray(X).reshape(len(X), math.prod(X.shape[1:]))
        rows = validate_data(estimator, X, reset=reset, accept_sparse="csr", **checks)
        width = (rows[0] if isinstance(rows, tuple) else rows).shape[1]
        if shape is None:
            shape = (width,)
        if math.prod(shape) != width:
            raise ValueError(f"X: expected {math.prod(shape)} features, for examples of shape {shape}, got {width}")
    return rows, shape


def _declared_shape(estimator: Any) -> Shape | None:
    """Returns the shape of one example in the estimator's arguments: its input_shape, or that of a built model."""
    model = estimator.model
    if isinstance(model, Sequential) and model.sizes is not None:
        model.check_one_size("model")
    if estimator.input_shape is None and isinstance(model, Sequential) and model.network is not None:
        return model.input_shape
    return None if estimator.input_shape is None else check_shape("input_shape", estimator.input_shape)


def _resolve_shape(declared: Shape | None, X: Any) -> Shape | None:
    """Returns the shape of one example: the declared one, or else that of X; None: a vector of all features."""
    if getattr(X, "ndim", 2) <= 2:
        return declared
    shape = tuple(X.shape[1:])
    if len(shape) == 2 and (declared is None or declared[0] == 1):
        shape = (1, *shape)
    if declared is not None and shape != declared and shape != (math.prod(declared),):
        hint = ": channels come first, X.transpose(0, 3, 1, 2)" if shape == (*declared[1:], declared[0]) else ""
        raise ValueError(f"X: expected examples of shape {declared}, got {X.shape[1:]}{hint}")
    return shape if declared is None else declared
