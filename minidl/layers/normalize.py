"""Normalize: standardization of each channel to mean 0 and standard deviation 1."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minidl.layers.base import Layer
from minidl.utils.arrays import as_array, as_plain
from minidl.utils.data import as_numbers
from minidl.utils.text import shorten
from minidl.utils.validation import Shape, check_bool, check_real
from minidl_c.kernels.normalize import NormalizeOp

CHUNK = 2**20  # elements read at a time
EPS = float(np.finfo(np.float64).eps)

Doubles = NDArray[np.float64]


class Normalize(Layer):
    """Standardization: subtracts a mean from each channel, and divides it by a standard deviation.

    Computes `y = (x - mean) / std` for each channel, which comes first. Any shape, which is unchanged. Like `Rescale`,
    it is meant as the first layer of a model, which then takes raw data. `Normalize.from_data(X)` computes both
    statistics.

    Parameters
    ----------
    mean : float or array-like of float
        A number, or one number per channel (per feature, for vectors), which is kept as a list. An array
        (1, channels, 1, ...) is right as well, such as `X.mean((0, 2, 3), keepdims=True)`.
    std : float or array-like of float
        Likewise, at least 0. A std of 0, that of a constant channel, counts as 1, as in scikit-learn's StandardScaler.

    Raises
    ------
    TypeError, ValueError
        In `build`, for non-finite values, a negative std, or lists of another length. In the constructor, for an array
        that does not hold real numbers.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import Normalize
    >>> X = [[0, 5], [2, 5]]  # the second feature is constant
    >>> layer = Normalize.from_data(X)
    >>> layer
    Normalize(mean=[1.0, 5.0], std=[1.0, 0.0])
    >>> Sequential([layer], input_shape=(2,)).predict(X).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """

    def __init__(self, mean: ArrayLike, std: ArrayLike) -> None:
        self.mean = _as_plain("mean", mean)
        self.std = _as_plain("std", std)

    @classmethod
    def from_data(cls, X: Any, skipna: bool = False) -> Normalize:
        """Returns a layer with the statistics of data.

        Means and standard deviations are over all elements of a channel, in float64. The std of a channel that is
        constant, up to rounding, is 0.

        Parameters
        ----------
        X : array of shape (n, channels, ...)
            An array, a memory map or a lazy array, which is read once and never copied as a whole.
        skipna : bool, default False
            Whether to leave out elements that are NaN, as gaps of a series; else they are refused. A model refuses them
            in any case: fill gaps, or give such rows a `sample_weight` of 0.

        Returns
        -------
        Normalize
            A layer with one mean and std per channel.

        Raises
        ------
        TypeError, ValueError
            Unless `X` contains finite real numbers only (with `skipna` also NaN), whose squares float64 can hold, and
            at least one number in each channel.

        Examples
        --------
        >>> from minidl.layers import Normalize
        >>> images = [[[[1, 3]], [[5, 5]]], [[[3, 1]], [[5, 5]]]]  # (2, 2, 1, 2): two images of two channels
        >>> Normalize.from_data(images)
        Normalize(mean=[2.0, 5.0], std=[1.0, 0.0])
        """
        array, skipna = as_numbers(X, "X"), check_bool("skipna", skipna)
        if not math.prod(array.shape):
            raise ValueError(f"X: expected examples (n, channels, ...), at least one, got shape {array.shape}")
        count, mean, squares = (np.zeros(array.shape[1]) for _ in range(3))
        with np.errstate(over="ignore", invalid="ignore"):
            for chunk in _read_chunks(array, skipna):
                known: Any = ~np.isnan(chunk) if skipna else True
                n = known.sum(axis=1) if skipna else chunk.shape[1]
                chunk_mean, both = chunk.sum(axis=1, where=known) / np.maximum(n, 1), np.maximum(count + n, 1)
                offset = chunk_mean - mean
                deviations = chunk - chunk_mean[:, np.newaxis]
                squares += (deviations**2).sum(axis=1, where=known) + offset**2 * (count * n / both)
                mean += offset * (n / both)
                count += n
        if not count.all():
            raise ValueError(f"X: expected a number in each channel, got NaN alone in channel {count.argmin()}")
        if not np.isfinite(squares).all():
            raise ValueError("X: expected values whose squares float64 can hold, got larger ones")
        return cls(mean.tolist(), np.sqrt(_zero_constant(squares / count, mean, count)).tolist())

    def build(self, in_shape: Shape) -> Shape:
        mean, std = (self._per_channel(name, in_shape[0]) for name in ("mean", "std"))
        if min(std) < 0:
            raise ValueError(f"std: expected values of at least 0, got {min(std)}")
        self.op = NormalizeOp(in_shape, mean, [value or 1.0 for value in std], self.dtype)
        return in_shape

    def __repr__(self) -> str:
        """The constructor's call, with long lists shortened."""
        return f"{type(self).__name__}(mean={shorten(self.mean)}, std={shorten(self.std)})"

    def _per_channel(self, name: str, channels: int) -> list[float]:
        """Returns `mean` or `std` as a list of one number per channel."""
        value = getattr(self, name)
        if not isinstance(value, (list, tuple)):
            return [check_real(name, value, self.dtype)] * channels
        if len(value) != channels:
            raise ValueError(f"{name}: expected {channels} values, one per channel, got {len(value)}")
        return [check_real(name, element, self.dtype) for element in value]


def _as_plain(name: str, value: Any) -> Any:
    """Returns an array, a tensor or a series as a number or a list, which files can hold; others unchanged."""
    if hasattr(value, "__array__"):
        array = as_array(value, name)
        value = array.reshape(-1) if array.ndim > 1 and array.size == array.shape[1] else array  # (1, channels, 1, ...)
    return as_plain(value, name)


def _read_chunks(array: Any, skipna: bool) -> Iterator[Doubles]:
    """Yields chunks of examples, float64 (channels, m); raises ValueError for infinity, and for NaN unless skipped."""
    rows = max(1, CHUNK // math.prod(array.shape[1:]))
    for start in range(0, len(array), rows):
        chunk = array[start : start + rows].astype(np.float64)
        if np.isinf(chunk).any() if skipna else not np.isfinite(chunk).all():
            hint = "" if skipna else "; skipna=True leaves NaN out"
            raise ValueError(f"X: expected finite values, got {'infinity' if skipna else 'NaN or infinity'}{hint}")
        yield np.moveaxis(chunk, 1, 0).reshape(array.shape[1], -1)


def _zero_constant(variance: Doubles, mean: Doubles, count: Doubles) -> Doubles:
    """Returns `variance`, with 0 for channels whose variance is within the rounding error of equal values.

    scikit-learn, `_is_constant_feature` in sklearn/preprocessing/_data.py, after Chan, Golub, LeVeque: "Algorithms for
    computing the sample variance: analysis and recommendations", The American Statistician 37 (1983).
    """
    constant = variance <= count * EPS * variance + (count * mean * EPS) ** 2
    return np.where(constant, 0.0, variance)
