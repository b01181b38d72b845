"""Examples to try a layer with: random numbers, or rows of what the layer's author gives."""

from __future__ import annotations

from typing import Any

import numpy as np

from minidl.utils.arrays import Array, as_array
from minidl.utils.validation import Shape

CLOSE = 1e-3  # to where kinks often are, and yet a thousand steps away


def draw(rng: np.random.Generator, shape: Shape) -> Array:
    """Normal numbers; some are beyond a bound such as that of ReLU6, some close to 0 or to the number beside them."""
    x = rng.standard_normal(shape) * rng.choice([1, 1, 6, CLOSE], shape)
    for axis in range(1, len(shape)):
        beside = np.roll(x, 1, axis) + CLOSE * rng.standard_normal(shape)
        x = np.where(rng.random(shape) < 0.1, beside, x)
    return x


class Samples:
    """Batches (n, *in_shape) of float64 for a layer. given: real numbers (m, *in_shape) to take the rows from, or None.

    Raises TypeError for what is no array of real numbers, ValueError for one of another shape, of less than two rows,
    of numbers that are not finite, or of integers that float32 does not have.
    """

    def __init__(self, in_shape: Shape, rng: np.random.Generator, given: Any = None) -> None:
        self.rng, self.shape = rng, tuple(in_shape)
        self.given = None if given is None else _checked(given, self.shape)

    @property
    def integers(self) -> bool:
        """Whether the numbers are integers, between which a layer has no values, and no slope."""
        return self.given is not None and self.given.dtype.kind != "f"

    def few(self, n: int) -> Array:
        """Random numbers, some close to kinks and ties."""
        return draw(self.rng, (n, *self.shape)) if self.given is None else self._rows(n)

    def many(self, n: int) -> Array:
        """Normal numbers."""
        return self.rng.standard_normal((n, *self.shape)) if self.given is None else self._rows(n)

    def unlike(self, x: Array) -> Array:
        """As many others as there are in x."""
        return 1 - x if self.given is None else self._rows(len(x))

    def _rows(self, n: int) -> Array:
        assert self.given is not None
        order = [self.rng.permutation(len(self.given)) for _ in range(n // len(self.given) + 1)]
        return self.given[np.concatenate(order)[:n]].astype("float64")


def _checked(given: Any, shape: Shape) -> Array:
    array = as_array(given, "x")
    if array.shape[1:] != shape or len(array) < 2:
        expected = ", ".join(("n", *map(str, shape)))
        raise ValueError(f"x: expected at least two examples, ({expected}), got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError("x: expected finite numbers, got NaN or infinity")
    if array.dtype.kind != "f" and (array.astype("float32").astype("float64") != array).any():
        raise ValueError("x: expected integers that float32 has, such as all up to 2**24, got larger ones")
    return array
