"""TableEncoder: the columns of a data frame as the inputs of a network, numbers first, then codes of categories."""

from __future__ import annotations

import datetime
import decimal
import math
import numbers
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array

from minidl.layers.piecewise_linear_encoding import quantile_edges
from minidl.utils.arrays import Array

Doubles = NDArray[np.float64]

BINS, MIN_BINS = 48, 4  # of a column of numbers
MOST_BINS = 128  # of a column of mostly one value
MAX_BINS = 4096  # of all columns: more made wide tables slower and less accurate
MIN_ROWS = 5  # of a category with a code of its own
MAX_CATEGORIES = 254  # of a column; the most frequent ones


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers with the edges of its bins. missing: what a missing one is, NaN if the fit has some.

    kind: "number", "date" (seconds since 1970, UTC) or "duration" (seconds).
    """

    name: Any
    edges: list[float]
    missing: float
    kind: str

    @property
    def has_missing(self) -> bool:
        """Whether missing numbers have an output of their own; otherwise they are the median."""
        return math.isnan(self.missing)

    def read(self, column: Array) -> Doubles:
        """Returns the inputs of a column; raises TypeError or ValueError for values of another kind."""
        values, kind = _as_numbers(self.name, column)
        if values is None or (kind != self.kind and not np.isnan(values).all()):
            odd = next(value for value in column if not _is_missing(value) and _kind_of(value) != self.kind)
            raise TypeError(f"X: column {self.name!r}: expected {self.kind}s, as in fit, got {odd!r:.100}")
        limits = self.edges or [0.0]  # beyond which the encoding is constant
        return np.where(np.isnan(values), self.missing, np.clip(values, limits[0], limits[-1]))

    def describe(self) -> dict[str, Any]:
        """Returns what the input is, as JSON's values."""
        missing = "NaN" if self.has_missing else self.missing
        kind = {"date": "seconds since 1970-01-01 (UTC)", "duration": "seconds"}.get(self.kind, self.kind)
        return {"column": str(self.name), "kind": kind, "missing": missing}


@dataclass(frozen=True)
class CategoryColumn:
    """A column of categories: their codes are 0, 1, ... in this order, then those of missing values and of rare ones.

    has_missing, has_rare: whether rows of the fit have them. A value that the fit has not seen counts as rare; without
    rare ones its code is -1. types: those of the values in the fit; of numbers, "number".
    """

    name: Any
    categories: tuple[Any, ...]
    has_missing: bool
    has_rare: bool
    types: frozenset[str]

    @property
    def n_codes(self) -> int:
        """The number of codes, without -1."""
        return len(self.categories) + self.has_missing + self.has_rare

    @property
    def other(self) -> int:
        """The code of values that the fit has not seen."""
        return self.n_codes - 1 if self.has_rare else -1

    def read(self, column: Array) -> Doubles:
        """Returns the code of each value of a column; raises TypeError if all are of other types than in the fit."""
        keys = _as_keys(self.name, column)
        present = {type(key) for key in keys if key is not None}
        if self.types and present and not self.types & set(map(_type_name, present)):
            expected, odd = " or ".join(sorted(self.types)), next(key for key in keys if key is not None)
            raise TypeError(f"X: column {self.name!r}: expected values of type {expected}, as in fit, got {odd!r:.100}")
        codes = {category: code for code, category in enumerate(self.categories)}
        if self.has_missing:
            codes[None] = len(self.categories)
        return np.array([codes.get(key, self.other) for key in keys], np.float64)

    def describe(self) -> dict[str, Any]:
        """Returns what the input is, as JSON's values: the code of a category is its place in the list."""
        missing = len(self.categories) if self.has_missing else self.other
        whole = (int(c) if isinstance(c, float) and c.is_integer() else c for c in self.categories)  # 7.0 beside NaN
        codes = [str(category) for category in whole]
        return {"column": str(self.name), "kind": "code", "codes": codes, "missing": missing, "others": self.other}


class TableEncoder:
    """Columns of a table as inputs of a network: numbers, NaN for missing ones, then codes of categories.

    Booleans and dates are numbers: 0 and 1, and seconds since 1970 (UTC). Strings, objects and the dtype `category` are
    categories, unless all objects are numbers. Columns that are constant in the fit are left out.

    numbers, categories: the columns that are used, by their indices, in the order of the inputs.
    """

    def __init__(self) -> None:
        self.names: list[Any] | None = None  # of a frame's columns
        self.numbers: dict[int, NumberColumn] = {}
        self.categories: dict[int, CategoryColumn] = {}

    def fit(self, X: Any, used: NDArray[np.bool_], categorical: Any = "from_dtype") -> TableEncoder:
        """Learns bins and codes from the `used` rows of a frame or an array.

        categorical: the columns with categories, as their names or indices, or "from_dtype".
        Raises TypeError or ValueError, naming the column, for values that are neither numbers nor categories.
        """
        categorical, self.names = _indices(categorical, X), _names_of(X)
        bins = min(BINS, max(MIN_BINS, MAX_BINS // X.shape[1]))
        for index, name, is_category, column in _columns_of(X):
            values, kind = (None, "") if is_category or index in categorical else _as_numbers(name, column[used])
            if values is not None:
                if found := _number_column(name, values, kind, bins):
                    self.numbers[index] = found
                continue
            codes = _category_column(name, _as_keys(name, column[used]))
            if codes.n_codes > 1:
                self.categories[index] = codes
        if not self.n_inputs:
            expected = "expected a column that varies"
            raise ValueError(f"X: {expected}, got {X.shape[1]} constant ones in n_samples = {int(used.sum())}")
        return self

    @property
    def n_inputs(self) -> int:
        """The number of inputs of the network."""
        return len(self.numbers) + len(self.categories)

    @property
    def dtype(self) -> str:
        """float32, or float64 if some edges are equal in float32."""
        with np.errstate(over="ignore", invalid="ignore"):
            widths = [np.diff(np.array(column.edges, np.float32)) for column in self.numbers.values()]
        least = np.finfo(np.float32).tiny
        return "float32" if all((np.isfinite(of) & (of >= least)).all() for of in widths) else "float64"

    def transform(self, X: Any) -> Doubles:
        """Returns the inputs of the network, (n, n_inputs).

        Raises TypeError or ValueError, naming the column, for values of another kind than in the fit.
        """
        if self.names and (names := _names_of(X)) and names != self.names:
            raise ValueError(f"X: expected the columns {self.names!r:.200}, as in fit, got {names!r:.200}")
        columns = {index: column for index, _, _, column in _columns_of(X)}
        inputs = np.empty((len(X), self.n_inputs))
        for at, (index, known) in enumerate((self.numbers | self.categories).items()):
            inputs[:, at] = known.read(columns[index])
        return inputs

    def describe(self) -> list[dict[str, Any]]:
        """Returns what each input is, as JSON's values, for those who make them without Python."""
        return [*(c.describe() for c in self.numbers.values()), *(c.describe() for c in self.categories.values())]


def _indices(categorical: Any, X: Any) -> set[int]:
    """Returns the indices of the columns that an argument declares to have categories."""
    if isinstance(categorical, str) and categorical == "from_dtype":
        return set()
    expected = f"categorical_features: expected names or indices of {X.shape[1]} columns, or 'from_dtype'"
    if isinstance(categorical, str) or not isinstance(categorical, Iterable):
        raise TypeError(f"{expected}, got {categorical!r:.100}")
    names = {name: index for index, name in enumerate(X.columns)} if hasattr(X, "iloc") else {}
    found = set()
    for column in categorical:
        index = names.get(column, column) if _is_hashable(column) else column
        if isinstance(index, (bool, np.bool_)) or not isinstance(index, (int, np.integer)):
            raise TypeError(f"{expected}, got {column!r:.100}")
        if not 0 <= index < X.shape[1]:
            raise ValueError(f"{expected}, got {column!r:.100}")
        found.add(int(index))
    return found


def as_table(X: Any) -> Any:
    """Returns a data frame of pandas as it is, one of another library as pandas', and anything else as an array.

    Raises TypeError or ValueError for sparse matrices, complex numbers, other shapes than (n, columns), and no rows.
    """
    if not hasattr(X, "iloc") and hasattr(X, "to_pandas"):
        X = X.to_pandas()
    if isinstance(X, (list, tuple)):
        X = np.asarray(X, object)  # which keeps numbers beside strings
    if not hasattr(X, "iloc") or X.ndim != 2 or not len(X):
        return check_array(X, dtype=None, ensure_all_finite=False)
    if not X.shape[1]:
        raise ValueError(f"X: expected at least one column, got 0 feature(s) (shape={X.shape})")
    if len({isinstance(name, str) for name in X.columns}) > 1:
        expected = "expected names of columns that are all strings, or none: X.columns = X.columns.astype(str)"
        raise ValueError(f"X: {expected}; got {X.columns.tolist()!r:.200}")
    if not X.columns.is_unique:
        twice = X.columns[X.columns.duplicated()].tolist()
        raise ValueError(f"X: expected columns whose names differ, got several of {', '.join(map(repr, twice))}")
    return X


def _names_of(X: Any) -> list[Any] | None:
    return X.columns.tolist() if hasattr(X, "iloc") else None


def _columns_of(X: Any) -> Iterator[tuple[int, Any, bool, Array]]:
    """Yields the index of each column, its name or again its index, whether its dtype is `category`, and its values."""
    for index in range(X.shape[1]):
        if hasattr(X, "iloc"):
            column = X.iloc[:, index]
            yield index, X.columns[index], str(column.dtype) == "category", _as_array(column)
        else:
            yield index, index, False, X[:, index]


def _as_array(column: Any) -> Array:
    """Returns the values of a column of a frame: numbers, dates in UTC, or objects, with None or NaN if missing."""
    if str(column.dtype).startswith("period"):
        column = column.dt.to_timestamp()
    kind = getattr(column.dtype, "kind", "O")
    if kind == "M":
        return np.asarray(column.to_numpy("datetime64[ns]" if "[ns" in str(column.dtype) else "datetime64[us]"))
    if kind in "biuf" and not isinstance(column.dtype, np.dtype):  # nullable
        return np.asarray(column.to_numpy(np.float64, na_value=np.nan))
    return np.asarray(column) if isinstance(column.dtype, np.dtype) else np.asarray(column.to_numpy(object))


def _as_numbers(name: Any, column: Array) -> tuple[Doubles | None, str]:
    """Returns a column as float64, with NaN for missing values, and its kind; None if it has categories."""
    kind = column.dtype.kind
    if kind in "mM":
        fine = np.datetime_data(column.dtype)[0] in ("ns", "ps", "fs", "as")
        ticks, per_second = (column.astype(f"{kind}8[ns]"), 1e9) if fine else (column.astype(f"{kind}8[us]"), 1e6)
        values = np.where(np.isnat(column), np.nan, ticks.view(np.int64) / per_second)
        return values, "date" if kind == "M" else "duration"
    if kind in "biuf":
        values, found = column.astype(np.float64), {"number"}
    elif kind == "O":
        known = ~np.fromiter(map(_is_missing, column), bool, len(column))
        found = {_kind_of(value) for value in column[known]} or {"number"}
        if len(found) > 1 or "" in found:
            return None, ""
        values = np.full(len(column), np.nan)
        try:
            values[known] = [_seconds_or_number(value) for value in column[known]]
        except OverflowError as error:
            raise ValueError(f"X: column {name!r}: expected numbers that float64 can hold: {error}") from error
    elif kind in "US":
        return None, ""
    else:
        raise TypeError(f"X: column {name!r}: expected numbers, dates or categories, got {column.dtype}")
    if np.isinf(values).any():
        raise ValueError(f"X: column {name!r}: expected finite numbers, or NaN for missing ones, got infinity")
    return values, found.pop()


def _kind_of(value: Any) -> str:
    """Returns the kind of a number; an empty string for other values."""
    if isinstance(value, (numbers.Real, decimal.Decimal, np.bool_)):
        return "number"
    if isinstance(value, (datetime.date, np.datetime64)):
        return "date"
    return "duration" if isinstance(value, (datetime.timedelta, np.timedelta64)) else ""


def _seconds_or_number(value: Any) -> float:
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return float(value.astype(f"{value.dtype.kind}8[us]").astype(np.int64) / 1e6)
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, datetime.date):
        moment = value if isinstance(value, datetime.datetime) else datetime.datetime(*value.timetuple()[:3])
        zone = moment.tzinfo or datetime.UTC
        return moment.replace(tzinfo=zone).timestamp()
    return float(value)


def _is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, NaT or pandas.NA, which differ from themselves, or cannot say so."""
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError, ArithmeticError):  # pandas.NA; an array as a value; a signaling NaN
        return type(value).__name__ in ("NAType", "Decimal")


def _as_keys(name: Any, column: Array) -> list[Any]:
    """Returns the categories of a column, None if missing; raises TypeError for values without a hash."""
    keys = [None if _is_missing(value) else value for value in column.tolist()]
    try:
        hash(tuple(keys))
    except TypeError:
        odd = next(key for key in keys if not _is_hashable(key))
        raise TypeError(f"X: column {name!r}: expected categories, got {odd!r:.100}") from None
    return keys


def _is_hashable(key: Any) -> bool:
    try:
        hash(key)
    except TypeError:
        return False
    return True


def _number_column(name: Any, values: Doubles, kind: str, bins: int) -> NumberColumn | None:
    """Returns what is known of a column of numbers, NaN if missing; None if it is constant."""
    is_missing = np.isnan(values)
    known = values[~is_missing]
    _, counts = np.unique(known, return_counts=True)
    if bins == BINS and len(counts) <= MOST_BINS + 1 and counts.max(initial=0) > len(known) / 2:
        bins = MOST_BINS  # each rare value matters, as quantiles would merge them
    edges = quantile_edges(known, bins, "float64").tolist()
    if not edges and len(known) in (0, len(values)):
        return None
    return NumberColumn(name, edges, math.nan if is_missing.any() else float(np.median(known)), kind)


def _category_column(name: Any, keys: Sequence[Any]) -> CategoryColumn:
    counts = Counter(keys)
    has_missing = counts.pop(None, 0) > 0
    order = {key: (type(key).__name__, str(key)) for key in counts}
    frequent = sorted((key for key, n in counts.items() if n >= MIN_ROWS), key=lambda key: (-counts[key], *order[key]))
    categories = tuple(sorted(frequent[:MAX_CATEGORIES], key=order.__getitem__))
    types = frozenset(_type_name(type(key)) for key in counts)
    return CategoryColumn(name, categories, has_missing, len(categories) < len(counts), types)


def _type_name(cls: type) -> str:
    return "number" if issubclass(cls, (numbers.Real, np.bool_)) else cls.__name__
