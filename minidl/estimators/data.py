"""The data of a fit of an estimator, validated: X, y and weights, also those that each epoch is measured on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils.validation import _check_sample_weight, column_or_1d

from minidl.estimators.inputs import validate_input
from minidl.estimators.targets import Targets, check_one_type
from minidl.utils.arrays import Array, check_unmasked
from minidl.utils.data import Index
from minidl.utils.errors import kind_of, refusing_input
from minidl.utils.lazy import LazyRows, is_lazy
from minidl.utils.weights import Weights, product


@dataclass(frozen=True)
class Validation:
    """What fit is given to measure each epoch on, not validated: other data, or groups to hold out some of."""

    X: Any = None
    y: Any = None
    sample_weight: Any = None
    groups: Any = None


@dataclass(frozen=True)
class Data:
    """Validated data. n_active: the number of examples with a weight above 0."""

    X: Any  # rows (n, size), an array or a CSR matrix; or (n, *shape), if that would be copied
    y: Array  # as the loss takes it
    labels: Array  # as given
    targets: Targets
    weights: Weights | None
    sample_weight: Weights | None  # as given, without those of classes
    n_active: int

    @property
    def triple(self) -> tuple[Any, Array, Weights | None]:
        """X, y and weights, as Trainer.fit takes them."""
        return self.X, self.y, self.weights

    def only(self, rows: Index) -> Data:
        """Returns the same data with a weight of 0 for the other rows."""
        weights = np.zeros(len(self.y))
        weights[rows] = 1.0 if self.weights is None else self.weights[rows]
        return replace(self, weights=weights, n_active=len(rows))


def check_data(
    estimator: Any, X: Any, y: Any, sample_weight: Any, known: Targets | None, reset: bool, trained: Data | None = None
) -> Data:
    """Returns the validated data; stores the number and names of features and the shape of an example in the estimator.

    known: the Targets of previous fits, which y must match. reset: whether features and shape are those of this X.
    trained: the data that decide on balanced weights of classes; None: these.

    Raises InputError for X, y and weights, and TypeError or ValueError for class weights.
    """
    with refusing_input():
        check_unmasked(y, "y")
        check_unmasked(sample_weight, "sample_weight")
        given = _check_weights(sample_weight, X)
        is_weighted = given is not None or getattr(estimator, "class_weight", None) is not None
        finite = {"ensure_all_finite": not is_weighted}  # otherwise the trainer checks the rows of weight above 0
        y = _without_zeros(LazyRows(y, "y")[:] if is_lazy(y) else y, given)
        (X, y), shape = validate_input(
            estimator, X, reset, y=y, multi_output=True, y_numeric=estimator._numeric, **finite
        )
        estimator.input_shape_ = shape
        y = y.toarray() if hasattr(y, "toarray") else y
        y = column_or_1d(y, warn=True) if y.ndim == 2 and y.shape[1] == 1 else y
        check_one_type(y)
    weights = _combine_weights(estimator, y, given, known, trained)
    used = np.ones(len(y), bool) if weights is None else weights > 0
    with refusing_input():
        encoded, targets = estimator._encode_targets(y, used, known)
    return Data(X, encoded, y, targets, weights, given, int(used.sum()))


def _check_weights(sample_weight: Any, X: Any) -> Weights | None:
    if sample_weight is None:
        return None
    given: Weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not np.isfinite(given).all():  # scikit-learn does not check a single number
        raise ValueError("sample_weight: expected finite weights, got NaN or infinity")
    if not given.any():
        raise ValueError("sample_weight: expected at least one weight above 0, got zeros")
    return given


def _combine_weights(
    estimator: Any, y: Array, given: Weights | None, known: Targets | None, trained: Data | None
) -> Weights | None:
    """Returns sample_weight times class weights, which are computed without rows of weight 0; None: ones."""
    used: Any = slice(None) if given is None else given > 0
    own = np.ones(len(y)) if given is None else given[used]
    of_classes = estimator._class_weights(y[used], own, known, trained)
    if of_classes is None:
        return given
    weights = np.zeros(len(y))
    weights[used] = product(own, of_classes)
    return weights


def check_validation(estimator: Any, given: Validation, data: Data, stops: bool) -> Data | None:
    """Returns the validated data to measure each epoch on; None: none were given.

    Raises InputError for these data, by the names of fit, and ValueError for groups that hold out no rows.
    """
    if given.groups is not None and (given.X is not None or not stops):
        got = "X_val" if given.X is not None else "early_stopping=False"
        raise ValueError(f"groups: expected None unless early_stopping holds out some of them, got groups with {got}")
    if given.X is None and given.y is None and given.sample_weight is None:
        return None
    for name, value in ("X_val", given.X), ("y_val", given.y):
        if value is None:
            raise ValueError(f"{name}: expected X_val and y_val or neither, got None")
    with naming_validation():
        return check_data(estimator, given.X, given.y, given.sample_weight, data.targets, reset=False, trained=data)


@contextmanager
def naming_validation() -> Iterator[None]:
    """A context in which refused input is named X_val, y_val and sample_weight_val."""
    try:
        yield
    except (TypeError, ValueError) as error:
        words, n = re.subn(r"\b(X|y|sample_weight)\b", r"\1_val", str(error), count=1)
        raise kind_of(error)(words if n else f"X_val, y_val: {words}") from error


def _without_zeros(y: Any, weights: Weights | None) -> Any:
    """Returns y with the target of a used row in each row of weight 0, which may hold anything, such as NaN."""
    if weights is None or weights.all() or hasattr(y, "toarray") or np.shape(y)[:1] != weights.shape:
        return y
    filled = np.array(y)
    filled[weights == 0] = filled[weights.argmax()]
    return filled
