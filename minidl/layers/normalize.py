"""Normalize: numbers of mean 0 and standard deviation 1."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidl.layers.base import Layer
from minidl.utils.arrays import as_array
from minidl.utils.validation import Shape, check_real
from minidl_c.kernels.normalize import NormalizeOp

CHUNK = 2**20  # numbers that are looked at together
EPS = float(np.finfo(np.float64).eps)

Doubles = NDArray[np.float64]


class Normalize(Layer):
    """y = (x - mean) / std, channel by channel: a model's first layer, as Rescale is. Any shape, channels first.

    mean, std: a number, or a list of one number a channel (of a vector: a feature). A std of 0, of a channel that is
        the same everywhere, counts as 1, as in scikit-learn's StandardScaler. `Normalize.from_data(X)` computes both.

    Raises TypeError or ValueError in build for numbers that are not finite, a negative std, or lists of another length.
    """

    def __init__(self, mean: float | Sequence[float], std: float | Sequence[float]) -> None:
        self.mean = mean
        self.std = std

    @classmethod
    def from_data(cls, X: Any) -> Normalize:
        """The layer for data X (n, channels, ...): numbers, or a memory map, which is read once and never copied whole.

        Means and standard deviations are those of all numbers of a channel, in float64. The std of a channel that is
        the same everywhere, but for rounding, is 0. Raises TypeError or ValueError for anything but finite real
        numbers.

        >>> Normalize.from_data([[0, 5], [2, 5]])
        Normalize(mean=[1.0, 5.0], std=[1.0, 0.0])
        """
        array = as_array(X, "X")
        if array.ndim < 2 or not array.size:
            raise ValueError(f"X: expected examples (n, channels, ...), at least one, got shape {array.shape}")
        count, mean, squares = 0, np.zeros(array.shape[1]), np.zeros(array.shape[1])
        with np.errstate(over="ignore", invalid="ignore"):
            for chunk in _chunks(array):
                here = chunk.mean(axis=1)
                offset, n = here - mean, chunk.shape[1]
                squares += ((chunk - here[:, np.newaxis]) ** 2).sum(axis=1) + offset**2 * (count * n / (count + n))
                mean += offset * (n / (count + n))
                count += n
        if not np.isfinite(squares).all():
            raise ValueError("X: expected numbers whose squares float64 can hold, got larger ones")
        return cls(mean.tolist(), np.sqrt(_without_rounding(squares / count, mean, count)).tolist())

    def build(self, in_shape: Shape) -> Shape:
        mean, std = (self._numbers(name, in_shape[0]) for name in ("mean", "std"))
        if min(std) < 0:
            raise ValueError(f"std: expected numbers of at least 0, got {min(std)}")
        self.op = NormalizeOp(in_shape, mean, [one or 1.0 for one in std], self.dtype)
        return in_shape

    def __repr__(self) -> str:
        """The constructor's call, long lists shortened."""
        return f"{type(self).__name__}(mean={_shown(self.mean)}, std={_shown(self.std)})"

    def _numbers(self, name: str, channels: int) -> list[float]:
        """`mean` or `std` as one number a channel."""
        value = getattr(self, name)
        if not isinstance(value, (list, tuple)):
            return [check_real(name, value, self.dtype)] * channels
        if len(value) != channels:
            raise ValueError(f"{name}: expected {channels} numbers, one a channel, got {len(value)}")
        return [check_real(name, one, self.dtype) for one in value]


def _shown(value: Any) -> str:
    if not isinstance(value, (list, tuple)) or len(value) <= 4:
        return repr(value)
    return f"[{', '.join(map(repr, value[:3]))}, ... {len(value)} numbers]"


def _chunks(array: NDArray[Any]) -> Iterator[Doubles]:
    """The numbers of some examples at a time, (channels, many) in float64; raises ValueError for NaN and infinity."""
    rows = max(1, CHUNK // math.prod(array.shape[1:]))
    for start in range(0, len(array), rows):
        chunk = array[start : start + rows].astype(np.float64)
        if not np.isfinite(chunk).all():
            raise ValueError("X: expected finite numbers, got NaN or infinity")
        yield np.moveaxis(chunk, 1, 0).reshape(array.shape[1], -1)


def _without_rounding(variance: Doubles, mean: Doubles, count: int) -> Doubles:
    """`variance`, and 0 where it is not more than rounding can make of equal numbers (scikit-learn's rule, and reason).

    scikit-learn, `_is_constant_feature` in sklearn/preprocessing/_data.py, after Chan, Golub, LeVeque: "Algorithms for
    computing the sample variance: analysis and recommendations", The American Statistician 37 (1983).
    """
    constant = variance <= count * EPS * variance + (count * mean * EPS) ** 2
    return np.where(constant, 0.0, variance)
