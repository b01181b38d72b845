"""Inputs to check a layer with: random values, or rows of given examples."""

from __future__ import annotations

from typing import Any

import numpy as np

from minidl.utils.arrays import Array, as_array
from minidl.utils.validation import Shape

CLOSE = 1e-3  # the distance of some values to likely kinks: small, but a thousand finite-difference steps
OFF_KINKS = 0.25  # the distance of values that are tied, multiples of 0.5, to integers


def draw(rng: np.random.Generator, shape: Shape) -> Array:
    """Returns normal values; some exceed bounds such as that of ReLU6, some are close to 0 or to a neighbour."""
    x = rng.standard_normal(shape) * rng.choice([1, 1, 6, CLOSE], shape)
    for axis in range(1, len(shape)):
        neighbour = np.roll(x, 1, axis) + CLOSE * rng.standard_normal(shape)
        x = np.where(rng.random(shape) < 0.1, neighbour, x)
    return x


class Samples:
    """Batches (n, *in_shape) of float64 for a layer. given: real numbers (m, *in_shape) whose rows are used, or None.

    Raises TypeError unless `given` is an array of real numbers. Raises ValueError for another shape, fewer than two
    rows, non-finite values, or integers that float32 cannot represent.
    """

    def __init__(self, in_shape: Shape, rng: np.random.Generator, given: Any = None, name: str = "x") -> None:
        self.rng, self.shape = rng, tuple(in_shape)
        self.given = None if given is None else _check_given(given, self.shape, name)

    @property
    def integers(self) -> bool:
        """True if the values are integers, for which a layer has no slope."""
        return self.given is not None and self.given.dtype.kind != "f"

    def few(self, n: int) -> Array:
        """Returns n examples, some with values close to kinks and ties."""
        return draw(self.rng, (n, *self.shape)) if self.given is None else self._rows(n)

    def many(self, n: int) -> Array:
        """Returns n examples with normal values."""
        return self.rng.standard_normal((n, *self.shape)) if self.given is None else self._rows(n)

    def tied(self, n: int) -> Array:
        """Returns n examples with equal values, at none of the likely kinks; of given ones, those that there are."""
        return np.round(2 * self.few(n)) / 2 + OFF_KINKS if self.given is None else self._rows(n)

    def unlike(self, x: Array) -> Array:
        """Returns as many examples as x has, with other values."""
        return 1 - x if self.given is None else self._rows(len(x))

    def resized(self, shape: Shape) -> Samples:
        """Returns samples of another shape with as many axes, in which given values are repeated."""
        given = self.given
        if given is not None:
            for axis, size in enumerate(shape, 1):
                given = given.take(range(size), axis, mode="wrap")
        return Samples(shape, self.rng, given)

    def _rows(self, n: int) -> Array:
        assert self.given is not None
        order = [self.rng.permutation(len(self.given)) for _ in range(n // len(self.given) + 1)]
        return self.given[np.concatenate(order)[:n]].astype("float64")


def _check_given(given: Any, shape: Shape, name: str) -> Array:
    array = as_array(given, name)
    if array.shape[1:] != shape or len(array) < 2:
        expected = ", ".join(("n", *map(str, shape)))
        raise ValueError(f"{name}: expected at least two examples, ({expected}), got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name}: expected finite values, got NaN or infinity")
    if array.dtype.kind != "f" and (array.astype("float32").astype("float64") != array).any():
        expected = "expected integers that float32 can represent, such as all up to 2**24"
        raise ValueError(f"{name}: {expected}, got larger ones")
    return array
