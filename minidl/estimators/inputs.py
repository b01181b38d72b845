"""Validation of X of an estimator: tables, images, data frames and sparse matrices become rows of numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from minidl.sequential import Sequential
from minidl.utils.arrays import REAL, check_unmasked
from minidl.utils.data import as_numbers, is_memory_map
from minidl.utils.errors import refusing_input
from minidl.utils.lazy import LazyRows, is_lazy
from minidl.utils.validation import Shape, check_shape


def validate_input(estimator: Any, X: Any, reset: bool, **checks: Any) -> tuple[Any, Shape]:
    """Returns X as rows (n, size), an array or a CSR matrix, and the shape of one example.

    An array on disk and a view of windows are returned as they are, with rows of that shape. With a y in `checks`, the
    first result is (X, y).

    reset: whether the estimator is fitted from scratch and stores the number and names of features.
    Raises InputError, with the messages of scikit-learn's validate_data, and for examples of another shape.
    """
    declared = _declared_shape(estimator) if reset else estimator.input_shape_
    with refusing_input():
        check_unmasked(X, "X")
        X = np.asarray(X) if isinstance(X, (list, tuple)) else X
        kept = as_numbers(X, "X") if _would_be_copied(X) else None
        shape = _resolve_shape(declared, X if kept is None else kept)
        if kept is not None:
            kept = _of_shape(kept, shape)
            X = np.broadcast_to(np.uint8(0), (len(kept), math.prod(kept.shape[1:])))  # of which all else is checked
        elif getattr(X, "ndim", 2) > 2:
            X = np.asarray(X).reshape(len(X), math.prod(X.shape[1:]))
        validated = validate_data(estimator, X, reset=reset, accept_sparse="csr", **checks)
        rows, *y = validated if isinstance(validated, tuple) else (validated,)
        width = rows.shape[1]
        if shape is None:
            shape = (width,)
        if math.prod(shape) != width:
            raise ValueError(f"X: expected {math.prod(shape)} features, for examples of shape {shape}, got {width}")
    rows = rows if kept is None else kept
    return (rows, *y) if y else rows, shape


def _would_be_copied(X: Any) -> bool:
    """Whether X is an array on disk, or a view of overlapping windows: the trainer checks their numbers as it reads."""
    if is_lazy(X):
        return True
    if not isinstance(X, np.ndarray) or X.dtype.kind not in REAL or X.ndim < 2:
        return False
    return is_memory_map(X) or (X.ndim > 2 and not X.flags.c_contiguous)


def _of_shape(X: Any, shape: Shape | None) -> Any:
    """Returns X (n, ...) as (n, *shape), without a copy: shape has at most an axis of one channel more."""
    if X.ndim == 2 or shape is None or X.shape[1:] == shape:
        return X
    return LazyRows(X, "X", (len(X), *shape)) if isinstance(X, LazyRows) else X[:, np.newaxis]


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
    if len(shape) == 2 and shape != declared and (declared is None or declared[0] == 1):
        shape = (1, *shape)
    if declared is not None and shape != declared and shape != (math.prod(declared),):
        hint = ": channels come first, X.transpose(0, 3, 1, 2)" if shape == (*declared[1:], declared[0]) else ""
        raise ValueError(f"X: expected examples of shape {declared}, got {X.shape[1:]}{hint}")
    return shape if declared is None else declared
