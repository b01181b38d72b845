"""The rows that early stopping holds out: a random fraction, whole groups, or those of a splitter of scikit-learn."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import GroupShuffleSplit
from sklearn.utils.validation import check_consistent_length, column_or_1d

from minidl.estimators.data import Data
from minidl.utils.arrays import Array
from minidl.utils.data import Index
from minidl.utils.errors import refusing_input
from minidl.utils.validation import check_fraction


def hold_out(estimator: Any, data: Data, groups: Any, seed: int) -> tuple[Data, dict[str, Any]]:
    """Returns the data to train on, and the argument of Trainer.fit that says which rows are held out.

    Raises InputError for `groups`, TypeError or ValueError for `validation_fraction` and `splitter` of the estimator.
    """
    splitter, name = copy.deepcopy(estimator.splitter), "splitter"  # that draws: each fit draws the same
    if splitter is None:
        name = "groups"
        share = _validation_fraction(estimator.validation_fraction, data.n_active)
        if groups is None:
            n_held = math.ceil(share * data.n_active)
            return replace(data, n_active=data.n_active - n_held), {"validation_split": share}
        splitter = GroupShuffleSplit(1, test_size=share, random_state=seed)
    used = np.arange(len(data.y)) if data.weights is None else np.flatnonzero(data.weights)
    groups = None if groups is None else _check_groups(groups, data.labels, used)
    train, held = _split(name, splitter, data.X, data.labels, groups, used)
    return data.only(train), {"validation_data": data.only(held).triple}


def _validation_fraction(given: Any, examples: int) -> float:
    fraction = check_fraction("validation_fraction", given)
    if fraction * examples <= 1:
        expected = f"a fraction of {examples} examples that is more than one of them"
        raise ValueError(f"validation_fraction: expected {expected}, got {fraction}")
    return fraction


def _check_groups(groups: Any, X: Any, used: Index) -> Array:
    """Returns the group of each row of X; raises InputError unless each used row has one."""
    with refusing_input():
        try:
            array: Array = column_or_1d(groups)
            check_consistent_length(array, X)
        except ValueError as error:
            raise ValueError(f"groups: expected one for each row of X: {error}") from error
        if any(group is None or group != group for group in (array[used] if array.dtype.kind in "fOmM" else ())):
            raise ValueError("groups: expected one for each row of X, got NaN or None")
    return array


def _split(name: str, splitter: Any, X: Any, y: Array, groups: Array | None, used: Index) -> tuple[Index, Index]:
    """Returns the rows to train on, and those to hold out: those of the splitter's first split of the `used` rows.

    A row may be neither, such as one in a gap. Raises TypeError or ValueError for other objects, and for a split that
    would train on rows that it holds out. name: of the argument that the splitter comes from, for errors.
    """
    if not callable(getattr(splitter, "split", None)) or isinstance(splitter, (str, bytes, type)):
        expected = "expected an object with `split`, such as GroupShuffleSplit(1), or None"
        raise TypeError(f"splitter: {expected}, got {splitter!r:.100}")
    if len(used) < len(y):
        X, y, groups = X[used], y[used], None if groups is None else groups[used]
    try:
        splits = splitter.split(X, y) if groups is None else splitter.split(X, y, groups)
        first = next(iter(splits), None)
    except ValueError as error:
        hint = "; fit takes groups=" if groups is None and "groups" in str(error) else ""
        raise ValueError(f"{name}: {error}{hint}") from error
    if not isinstance(first, (tuple, list)) or len(first) != 2:
        raise TypeError(f"splitter: expected it to yield (train, test) indices of rows, got {first!r:.100}")
    train, held = (_mask(part, len(used)) for part in first)
    if not train.any() or not held.any() or (train & held).any():
        got = f"{train.sum()} and {held.sum()}, of which {(train & held).sum()} are in both"
        raise ValueError(f"splitter: expected rows to train on, and others to hold out, got {got}")
    return used[train], used[held]


def _mask(rows: Any, n: int) -> NDArray[np.bool_]:
    """Returns a mask of n rows, from their indices or a mask; raises TypeError or ValueError for anything else."""
    rows = np.asarray(rows)
    if rows.ndim != 1 or rows.dtype.kind not in "iub" or (rows.dtype.kind == "b" and len(rows) != n):
        raise TypeError(f"splitter: expected it to yield indices of rows, got {rows.dtype} {rows.shape}")
    if rows.dtype.kind == "b":
        return rows
    if len(rows) and not 0 <= rows.min() <= rows.max() < n:
        raise ValueError(f"splitter: expected indices of rows from 0 to {n - 1}, got {rows.min()} to {rows.max()}")
    mask = np.zeros(n, bool)
    mask[rows] = True
    if mask.sum() < len(rows):
        raise ValueError("splitter: expected each row once, got some twice")
    return mask
