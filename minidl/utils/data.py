"""ArraySource: validation of X, and reading it batch by batch without a copy of the whole."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minidl.utils.arrays import Array, as_array
from minidl.utils.errors import InputError, refusing_input
from minidl.utils.lazy import LazyRows, check_complete, is_lazy
from minidl.utils.sparse import SparseRows, is_sparse
from minidl.utils.validation import Shape
from minidl_c.array_args import all_finite, is_readable

Index = NDArray[np.int64]
READABLE = {np.dtype(name) for name in ("uint8", "float32", "float64")}  # by kernels, without conversion
CHUNK = 4096  # examples processed at a time when all of X is read
CHUNK_BYTES = 2**26  # limit of a converted chunk, and of what is checked as a whole
LAST_EXACT = 2**24  # up to which float32 holds all integers
MAX_NAMED_EXAMPLES = 5  # that a message names
MAX_INPUTS, MAX_CHANNELS = 16, 4  # arrays in a list that may be several inputs; channels of an image that is an example
SIDE_BY_SIDE = "docs/how-to/signals-and-tables.md"
MAX_STEP = 1e-3  # of float32's steps, as a part of the range of an element: above, too much is lost


class GatheredRows(NamedTuple):
    """Rows of X in an array that kernels can read."""

    x: Array  # (m, size)
    rows: Index  # their indices in x
    is_copy: bool  # x has these rows only


def shape_of_examples(X: Any, name: str = "X") -> Shape:
    """Returns the shape of one example of X; raises InputError unless X is an array of real numbers."""
    shape = getattr(X, "shape", None)
    if shape is None:
        with refusing_input():
            shape = as_numbers(X, name).shape
    return tuple(shape[1:])


class ArraySource:
    """Validated X: (n, size) rows that can be read in any order.

    X: real numbers of any dtype, layout and byte order, as an array, a list, a tensor, a data frame, a memory map or a
    lazy array (see LazyRows). The shape is (n, *shape), or 2-D of the same width; 2-D may also be a sparse matrix.
    uint8, float32 and float64 in C order are read without a copy; anything else is converted as it is read. shape: of
    an example; None: that of X, whatever it is.

    Raises InputError unless X holds real numbers, and for another shape, NaN or infinity (in a memory map or a lazy
    array: when the rows are read). check: whether now; otherwise `check_rows` looks at some rows only. missing: whether
    NaN is valid, as a missing value.
    """

    def __init__(
        self, X: Any, shape: Shape | None, dtype: str, name: str = "X", check: bool = True, missing: bool = False
    ) -> None:
        self.name, self.dtype, self.missing = name, dtype, missing
        self._is_checked = False
        if shape is not None and is_plain_batch(X, shape, dtype):  # what most calls have: nothing is left to check
            self.shape, self.size, self._array = shape, math.prod(shape), X
            self._is_on_disk, self._zero_copy, self._is_checked = False, True, True
            return
        if shape is not None and None in shape:
            expected = "expected a model of one size: model.at(X.shape[1:]) is one, with the same weights"
            raise ValueError(f"{name}: {expected}; got a model of images of any size, {shape}")
        with refusing_input():
            array = as_numbers(X, name)
        self.shape = shape = array.shape[1:] if shape is None else shape
        size = math.prod(shape)
        if array.shape[1:] != shape and (array.ndim != 2 or array.shape[1] != size):
            flat = "" if len(shape) == 1 else f" or (n, {size})"
            expected = "(n, " + ", ".join(map(str, shape)) + ")"
            hint = _shape_hint(name, array, shape)
            if array.ndim > 2 and isinstance(X, (list, tuple)) and len(X) * math.prod(array.shape[2:]) == size:
                hint = f", {_several_inputs(X, alike=True)}"
            raise InputError(f"{name}: expected shape {expected}{flat}, got {array.shape}{hint}")
        self.size, self._array = size, array
        self._is_on_disk = isinstance(array, LazyRows) or is_memory_map(array)
        self._zero_copy = isinstance(array, np.ndarray) and (
            array.dtype in READABLE and array.flags.c_contiguous and array.flags.aligned
        )
        if check:
            self.check_rows(np.arange(len(array)))

    def __len__(self) -> int:
        return len(self._array)

    @property
    def holds_bytes(self) -> bool:
        """True if the numbers of X are uint8, in whatever it holds them."""
        return bool(self._array.dtype == np.uint8)

    def check_rows(self, rows: Index) -> None:
        """Raises InputError, as the constructor with `check`, for NaN and infinity in these rows, if in memory."""
        if self._is_checked or self._is_on_disk or self._array.dtype.kind != "f":
            return
        is_whole = len(rows) == len(self)
        if isinstance(self._array, SparseRows):
            self._check(self._array.stored_values(None if is_whole else rows))
            return
        for start in range(0, len(rows), CHUNK):
            here = rows[start : start + CHUNK]
            self._check(self._array[start : start + CHUNK] if is_whole else self._array[here], here)

    @property
    def chunk_size(self) -> int:
        """The number of examples copied at a time: smaller for large examples, to limit the copy."""
        return max(1, min(CHUNK, CHUNK_BYTES // (self.size * np.dtype(self.dtype).itemsize)))

    def gather(self, rows: Index) -> GatheredRows:
        """Returns these rows in an array (m, size) that kernels can read: all of the data, or a converted copy."""
        if isinstance(self._array, (SparseRows, LazyRows)) or not self._zero_copy:
            return GatheredRows(self.gather_copy(rows), np.arange(len(rows)), True)
        if self._is_on_disk:
            self._check(self._read(rows), rows)
        return GatheredRows(self._array.reshape(len(self._array), self.size), rows, False)

    def chunk(self, start: int, stop: int) -> Array:
        """Returns rows start to stop as an array (m, size) that kernels can read: a view if possible."""
        stop = min(stop, len(self))
        if not self._zero_copy:
            return self.gather_copy(np.arange(start, stop))
        block = self._array[start:stop].reshape(stop - start, self.size)
        if self._is_on_disk:
            self._check(block, np.arange(start, stop))
        return block

    def chunks(self, limit: int) -> Iterator[tuple[slice, Array]]:
        """Yields all rows in chunks of at most `limit`, each with its slice."""
        step = min(limit, self.chunk_size)
        for start in range(0, len(self), step):
            yield slice(start, start + step), self.chunk(start, start + step)

    def gather_copy(self, rows: Index) -> Array:
        """Returns these rows as a new array (m, size) of the model's dtype."""
        block = self._read(rows)
        if self._is_on_disk:
            self._check(block, rows)
        return np.ascontiguousarray(block.reshape(len(rows), self.size), self.dtype)

    def _read(self, rows: Index) -> Array:
        """Returns these rows as they are; raises InputError for a lazy array that returns others."""
        with refusing_input():
            block: Array = self._array[rows]
        return block

    def fingerprint(self, limit: int | None = None) -> str:
        """Returns a hash of shape, dtype and values of at most `limit` rows; None: all, or CHUNK of those on disk."""
        if isinstance(self._array, SparseRows) and (limit is None or limit >= len(self)):
            return self._array.fingerprint()
        return fingerprint(self._array, some_rows(len(self), CHUNK if self._is_on_disk and limit is None else limit))

    def lost(self, rows: Index) -> str:
        """Returns what float32 loses of large numbers that lie close together; an empty string if that is not much.

        rows: at least one, the only ones that are read. Numbers on disk and sparse matrices are not looked at.
        """
        array = self._array
        if self._is_on_disk or isinstance(array, (SparseRows, LazyRows)) or np.can_cast(array.dtype, self.dtype):
            return ""
        flat = array.reshape(len(array), -1)
        parts = [rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK)]
        low, high = (  # of the numbers that are not missing
            f.reduce([f.reduce(flat[part]) for part in parts]).astype(np.float64) for f in (np.fmin, np.fmax)
        )
        largest = np.maximum(np.abs(low), np.abs(high))
        steps = np.spacing(largest.astype(self.dtype)).astype(np.float64)
        lost = (largest > LAST_EXACT) & (high > low) & (steps > MAX_STEP * (high - low))
        for k in np.flatnonzero(lost):
            if not np.array_equal(flat[rows, k].astype(self.dtype), flat[rows, k], equal_nan=True):
                where = f"where element {k} of the examples is, from {low[k]:.10g} to {high[k]:.10g}"
                late = "before the fit, as a Normalize comes too late"
                remedy = f"differences are lost; subtract an offset {late}, or use dtype='float64'"
                return f"{self.name}: {self.dtype} has steps of {steps[k]:g} {where}: {remedy}"
        return ""

    def _check(self, block: Array, rows: Index | None = None) -> None:
        """Raises InputError unless all values are finite in the model's dtype. rows: their indices, for the message."""
        if block.dtype.kind != "f":
            return
        if self._zero_copy and block.flags.c_contiguous and all_finite(block, self.dtype):
            return
        invalid = np.isinf(block) if self.missing else ~np.isfinite(block)
        if invalid.any():
            bad = invalid.reshape(len(block), -1).any(axis=1)
            where = "" if rows is None else f" (first in example {rows[bad.argmax()]})"
            what = "finite values or NaN, got infinity" if self.missing else "finite values, got NaN or infinity"
            raise InputError(f"{self.name}: expected {what}{where}")
        if block.size and block.dtype.itemsize > np.dtype(self.dtype).itemsize:
            largest = np.finfo(self.dtype).max
            if np.fmax(np.fmax.reduce(block, axis=None), -np.fmin.reduce(block, axis=None)) > largest:
                raise InputError(
                    f"{self.name}: expected values of at most {largest:.3g} ({self.dtype}), got larger ones"
                )


def is_plain_batch(X: Any, shape: Shape, dtype: str, limit: int = CHUNK) -> bool:
    """Whether X is an array (n, *shape) in memory, n <= limit, that a plan can read as it is."""
    if type(X) is not np.ndarray or X.ndim != len(shape) + 1 or X.shape[1:] != shape:
        return False
    if len(X) > limit or X.nbytes > CHUNK_BYTES:
        return False
    return not is_memory_map(X) and is_readable(X, dtype)


def largest_magnitude(array: Any) -> float:
    """Returns the largest absolute value of an array, a sparse matrix or a lazy array; 0 without elements."""
    if isinstance(array, LazyRows):
        parts = (array[start : start + CHUNK] for start in range(0, len(array), CHUNK))
        return max(map(largest_magnitude, parts), default=0.0)
    return float(max(array.max(), -float(array.min()))) if math.prod(array.shape) else 0.0


def _shape_hint(name: str, array: Array | SparseRows | LazyRows, shape: Shape) -> str:
    """Returns the remedy for a common mistake in the shape, or an empty string."""
    if array.shape == shape:
        return f": for a single example, {name}[np.newaxis]"
    if array.shape[1:] == shape[1:] and shape[0] == 1:
        return f": for one channel, {name}[:, np.newaxis]"
    if array.ndim == 4 and array.shape[1:] == (*shape[1:], shape[0]):
        return f": channels come first, {name}.transpose(0, 3, 1, 2)"
    if array.ndim == len(shape) + 1 > 2 and array.shape[1] == shape[0]:
        return f": a model with input_shape=({shape[0]}{', None' * (len(shape) - 1)}) takes any size"
    return ""


def as_numbers(X: Any, name: str) -> Array | SparseRows | LazyRows:
    """Returns X as an array of real numbers with at least two axes, without a copy if possible."""
    if is_sparse(X):
        return SparseRows(X, name)
    if is_lazy(X):
        return LazyRows(X, name)
    check_complete(X, name)
    if several := _several_inputs(X):
        raise ValueError(f"{name}: expected one array, got {several}")
    array = as_array(X, name)
    if array.shape == (0,):
        raise ValueError(f"{name}: expected examples in at least two axes, got shape (0,); none have (0, *input_shape)")
    if array.ndim < 2:
        raise ValueError(
            f"{name}: expected examples along the first of at least two axes, got shape {array.shape}; "
            f"for a single example, {name}[np.newaxis]"
        )
    return array


def _several_inputs(X: Any, alike: bool = False) -> str:
    """Returns what X is, and the remedy, if it is several inputs: arrays of one length in a list or dict; else "".

    alike: also for arrays of one shape in a list, which otherwise are examples, as images of one height may be.
    """
    given = list(X.values()) if isinstance(X, Mapping) else X
    if not isinstance(given, (list, tuple)) or not 1 < len(given) <= MAX_INPUTS:
        return ""
    shapes: list[Any] = [getattr(one, "shape", ()) for one in given]
    if not all(isinstance(shape, tuple) and shape for shape in shapes) or len({shape[0] for shape in shapes}) > 1:
        return ""
    of_one_rank = len({len(shape) for shape in shapes}) == 1
    may_be_examples = len(set(shapes)) == 1 or (of_one_rank and shapes[0][0] <= max(len(given), MAX_CHANNELS))
    if may_be_examples and not alike and not isinstance(X, Mapping):
        return ""
    got = f"a {type(X).__name__} of {len(shapes)} inputs, {' and '.join(map(str, shapes))}"
    side_by_side = "put them side by side, np.hstack([x.reshape(len(x), -1) for x in X])"
    return f"{got}: {side_by_side}, and begin the branches of a Parallel with Columns, as in {SIDE_BY_SIDE}"


def numbered(rows: Array) -> str:
    """Names examples of X, at most five of them."""
    if len(rows) == 1:
        return f"example {rows[0]} of X"
    more = f" and {len(rows) - MAX_NAMED_EXAMPLES} more" if len(rows) > MAX_NAMED_EXAMPLES else ""
    return f"examples {rows[:MAX_NAMED_EXAMPLES].tolist()}{more} of X"


def some_rows(n: int, limit: int | None) -> Index:
    """Returns at most `limit` of n row indices, evenly spaced; None: all."""
    return np.arange(n) if limit is None or n <= limit else np.linspace(0, n - 1, limit).astype(np.int64)


def fingerprint(array: Array | SparseRows | LazyRows, rows: Index) -> str:
    """Returns the SHA-256 of an array's shape and dtype, and of the values in these rows, independent of the layout."""
    digest = hashlib.sha256(f"{array.shape} {array.dtype.newbyteorder('=')}".encode())
    for start in range(0, len(rows), CHUNK):
        block = array[rows[start : start + CHUNK]]
        if array.dtype.kind == "O":  # arbitrary objects, as targets of a user's loss
            digest.update(repr(block.tolist()).encode())
        else:
            digest.update(np.ascontiguousarray(block, array.dtype.newbyteorder("=")).tobytes())
    return digest.hexdigest()


def epoch_order(n: int, seed: int, epoch: int, shuffle: bool) -> Index:
    """Returns the order of n examples in an epoch, a permutation that depends only on the arguments."""
    if not shuffle:
        return np.arange(n)
    return np.random.default_rng([seed, epoch]).permutation(n)


def is_memory_map(array: Any) -> bool:
    """Whether an array is a memory map, or a view of one, also by as_strided."""
    while array is not None:
        if isinstance(array, np.memmap):
            return True
        array = getattr(array, "base", None)
    return False
