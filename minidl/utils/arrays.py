"""Conversion of array arguments: whatever is not an array of real numbers is rejected here.

A tensor of PyTorch on the CPU becomes an array of the same memory, a data frame of numbers one of a common dtype.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidl_c.array_args import is_readable

Array = NDArray[Any]
ARRAY_ATTRIBUTES = ("__array__", "dtype", "dtypes")  # of arrays of other libraries, and of data frames
REAL = "fiub"  # dtype kinds: floats, integers, bools
BLOCK = 16  # rows that are transposed at a time: a cache line of floats


def memory_order(array: Array) -> tuple[int, ...]:
    """Returns the axes of an array in the order of memory, the outermost first.

    >>> memory_order(np.zeros((3, 4)).T)
    (1, 0)
    """
    return tuple(sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis])))


def with_memory_order(flat: Array, shape: tuple[int, ...], order: tuple[int, ...]) -> Array:
    """Returns rows (..., size) as arrays (..., *shape) in the same memory; order: as `memory_order` returns it.

    >>> with_memory_order(np.arange(6), (3, 2), (1, 0))
    array([[0, 3],
           [1, 4],
           [2, 5]])
    """
    rows = flat.ndim - 1
    stored = flat.reshape((*flat.shape[:-1], *(shape[axis] for axis in order)))
    return stored.transpose(*range(rows), *(rows + order.index(axis) for axis in range(len(shape))))


def copy_into(target: Array, source: Array) -> None:
    """Copies an array into one of the same shape and another memory order, by blocks that fill cache lines of it.

    NumPy's own copy of a large transposed array takes ten times as long.

    >>> target = np.zeros((3, 2)).T
    >>> copy_into(target, np.arange(6.0).reshape(2, 3))
    >>> target
    array([[0., 1., 2.],
           [3., 4., 5.]])
    """
    innermost = memory_order(target)[-1] if target.ndim else 0
    if innermost == max(target.ndim - 1, 0):
        target[...] = source
        return
    target, source = np.moveaxis(target, innermost, 0), np.moveaxis(source, innermost, 0)
    for start in range(0, len(target), BLOCK):
        target[start : start + BLOCK] = source[start : start + BLOCK]


def zeros_view(shape: tuple[int, ...], dtype: str) -> Array:
    """Returns read-only zeros of any shape that take no memory: the values of parameters that are never read."""
    return np.broadcast_to(np.zeros((), dtype), shape)


def is_zeros_view(array: Array) -> bool:
    """True for an array that `zeros_view` could return."""
    return array.size > 1 and not any(array.strides) and not any(array[(0,) * array.ndim].tobytes())


def as_array(value: Any, name: str, kinds: str = REAL) -> Array:
    """Returns `value` as an array of real numbers of these dtype kinds, without a copy if possible.

    Raises TypeError, naming the argument, for None, sparse arrays, masked arrays (the mask would be ignored) and other
    dtypes; ValueError for lists of lists of different lengths, or images of several sizes.

    >>> as_array([1, 2], "y")
    array([1, 2])
    """
    array = check_array(value, name)
    if array.dtype.kind not in kinds:
        if array.dtype.kind == "O" and (images := _sizes_of_images(array)):
            raise ValueError(f"{name}: expected {images}")
        expected = "integers" if kinds == "iu" else "real numbers"
        raise TypeError(f"{name}: expected {expected}, got dtype {array.dtype}")
    return array


def as_plain(value: Any, name: str) -> Any:
    """Returns an array, a tensor or a series as a number or a list, which files can hold; others unchanged.

    Raises as `as_array`.

    >>> as_plain(np.ones((1, 2)), "mean"), as_plain((1, 2), "mean")
    ([[1.0, 1.0]], (1, 2))
    """
    return as_array(value, name).tolist() if hasattr(value, "__array__") else value


def check_unmasked(value: Any, name: str) -> None:
    """Raises TypeError for a masked array."""
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name}: expected an array without a mask, got a masked array: fill it first")


def check_array(value: Any, name: str) -> Array:
    """Returns `value` as an array of any dtype; otherwise raises as `as_array`.

    Raises TypeError for a tensor that NumPy cannot read, such as one on another device or of bfloat16.
    """
    if type(value) is np.ndarray:  # what each prediction asks: the checks of others take a sixth of its fixed costs
        return value
    if value is None:
        raise TypeError(f"{name}: expected an array, got None")
    check_unmasked(value, name)
    if _is_batches(value):
        raise TypeError(f"{name}: expected an array, got {type(value).__name__}; only `fit` takes batches")
    if hasattr(value, "toarray") and not isinstance(value, np.ndarray):
        raise TypeError(f"{name}: expected a dense array, got {type(value).__name__}: call its toarray()")
    if hasattr(value, "detach") and hasattr(value, "requires_grad"):  # a tensor of PyTorch
        value = value.detach()
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name}: expected {_sizes_of_images(value) or f'rows of one shape: {error}'}") from error
    except (TypeError, RuntimeError) as error:
        kind = getattr(value, "dtype", type(value).__name__)
        raise TypeError(f"{name}: expected an array that NumPy can read, got {kind}: {error}") from error
    is_frame = array.dtype.kind == "O" and hasattr(value, "columns") and hasattr(value, "items")
    return _from_columns(value, name) if is_frame else array


def _sizes_of_images(value: Any) -> str:
    """Returns what is wrong with images of several sizes, an empty string for other values."""
    with suppress(Exception):  # of any type: objects of other libraries
        first, *others = dict.fromkeys(np.shape(one) for one in value)
        if others and all(len(shape) in (2, 3) for shape in (first, *others)):
            remedy = (
                "crop or pad them to one size, or use a model with input_shape=(c, None, None) and batches of one size"
            )
            return f"images of one size, got {first} and {others[0]}: {remedy}"
    return ""


def _is_batches(value: Any) -> bool:
    """True for a generator, loader or sequence of batches. NumPy would read the last until it raises IndexError."""
    known = Sequence, Set, Mapping
    if isinstance(value, known) or any(hasattr(value, name) for name in ARRAY_ATTRIBUTES) or has_buffer(value):
        return False
    return hasattr(value, "__iter__") or (hasattr(value, "__len__") and hasattr(value, "__getitem__"))


def has_buffer(value: Any) -> bool:
    """True for an object whose memory NumPy can read, such as an array of the module array."""
    try:
        memoryview(value)
    except TypeError:
        return False
    return True


def _from_columns(frame: Any, name: str) -> Array:
    """Returns a data frame with columns of several dtypes as an array; raises TypeError, naming one without numbers."""
    columns = []
    for label, column in frame.items():
        columns.append(np.asarray(column))
        if columns[-1].dtype.kind not in REAL:
            dtype = getattr(column, "dtype", columns[-1].dtype)
            raise TypeError(f"{name}: expected columns of real numbers, got {dtype} in column {label!r}")
    return np.column_stack(columns)


def as_floats(value: Any, name: str) -> Array:
    """Returns `value` as a C-contiguous float32 or float64 array; raises as `as_array`, also for other dtypes."""
    array = as_array(value, name, "f")
    if array.dtype.newbyteorder("=") not in (np.float32, np.float64):
        raise TypeError(f"{name}: expected float32 or float64, got {array.dtype}")
    return np.require(array, array.dtype.newbyteorder("="), ["C_CONTIGUOUS", "ALIGNED"])


def as_dtype(array: Array, dtype: str, name: str) -> Array:
    """Returns `array`, C-contiguous and aligned, in another dtype; raises ValueError for values too large for it."""
    if is_readable(array, dtype):
        return array.astype(dtype, copy=False)
    with np.errstate(over="ignore"):
        converted = np.require(array, dtype, ["C_CONTIGUOUS", "ALIGNED"])
    if array.dtype.itemsize > converted.itemsize and np.isinf(converted).sum() != np.isinf(array).sum():
        raise ValueError(f"{name}: expected values that {dtype} can hold, got larger ones")
    return converted
