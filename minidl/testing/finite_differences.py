"""Central finite differences: a check of gradients that also handles functions with kinks.

An element is moved up and down by STEP, and the outputs give the slope. If the gradient differs, there may be a kink in
between: a ReLU at 0, a tie of two maxima. The second difference of the outputs is then large, and a gradient that is
right on one side of the kink differs by no more than it; any larger error is wrong.

At the kink itself there is nothing to compare. The element is therefore moved to random points on both sides, close
ones first, where the gradient must be right.

At a tie there is: equal elements that are moved together stay equal, so the maximum follows them, and their gradients
must sum to its slope. One of them may have all of it, or each a share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from minidl.utils.arrays import Array

STEP = 1e-6  # approximately the cube root of float64's precision
NOISE = 4 * np.finfo(np.float64).eps / STEP  # rounding error of a difference, relative to its operands
RTOL, ATOL = 1e-5, 1e-6  # ATOL is relative to the largest element of the gradient, or to 1
DISTANCES = (1e-4, 1e-3, 1e-2, 0.1, 1.0)  # at which points without a kink are searched, in this order
MAX_TIES = 32  # values of a row whose ties are tried
RIGHT, KINK, WRONG = range(3)


@dataclass(frozen=True)
class Function:
    """The function sum(output(values) * dy), and its gradient as a layer computes it.

    name: of the gradient, for errors: "ReLU: dx".
    rows: the number of equal parts of the values (examples) that affect disjoint parts of the output. The same element
        of all rows is moved at once.
    """

    name: str
    values: Array
    output: Callable[[Array], Array]
    gradient: Callable[[Array], Array]
    dy: Array
    rows: int = 1


def check_gradient(f: Function, rng: np.random.Generator) -> None:
    """Raises AssertionError unless each element of the gradient is the slope, there or on both sides of a kink."""
    point = _Point(f, f.values)
    scale = max(float(np.abs(point.gradient).max(initial=0)), 1.0)
    for column in range(point.gradient.shape[1]):
        for row in np.flatnonzero(point.judge(column, scale) != RIGHT):
            point.raise_if_wrong(int(row), column)
            _check_sides(f, int(row), column, scale, rng)


def check_ties(f: Function) -> None:
    """Raises AssertionError unless the gradients of equal elements of a row sum to the slope of all of them together.

    Where outputs or gradients are not finite, and at kinks, there is nothing to compare.
    """
    point = _Point(f, f.values)
    if not np.isfinite(point.middle).all() or not np.isfinite(point.gradient).all():
        return
    scale = max(float(np.abs(point.gradient).max(initial=0)), 1.0)
    for tied in _tied_elements(f.values.reshape(f.rows, -1)):
        for row in np.flatnonzero(point.judge(tied, scale) == WRONG).tolist():
            expected, got = float(point.slopes[row]), float(point.gradient[row, tied[row]].sum())
            first, *others = np.flatnonzero(tied[row]).tolist()
            raise AssertionError(
                f"{_index_name(f, row, first)} and that of {len(others)} equal elements: expected a sum of "
                f"{expected:.8g} (finite differences, all moved together), got {got:.8g}; of equal maxima one takes "
                "the whole gradient, or all share it"
            )


def _tied_elements(values: Array) -> Iterator[Array]:
    """Yields masks of (rows, elements): in each row the elements that have one value, if there are several."""
    groups = []
    for row in values:
        found, counts = np.unique(row, return_counts=True)
        groups.append(found[counts > 1][:MAX_TIES])
    pairs = list(zip(values, groups, strict=True))
    for i in range(max(map(len, groups), default=0)):
        yield np.stack([row == group[i] if i < len(group) else row != row for row, group in pairs])


def _check_sides(f: Function, row: int, column: int, scale: float, rng: np.random.Generator) -> None:
    """Checks one element of the gradient at random points above and below it, further away while there are kinks."""
    sides = [1, -1]
    for distance in DISTANCES:
        for side in tuple(sides):
            point = _Point(f, _moved_copy(f, f.values, np.s_[row, column], side * distance * rng.uniform(0.5, 1.5)))
            if point.judge(column, scale)[row] == RIGHT:
                sides.remove(side)
            point.raise_if_wrong(row, column)
    assert not sides, (
        f"{_index_name(f, row, column)}: expected a slope, found kinks at "
        f"{f.values.reshape(f.rows, -1)[row, column]:.8g} and at all points tried, up to {DISTANCES[-1]} away"
    )


class _Point:
    """A function evaluated at some values."""

    def __init__(self, f: Function, values: Array) -> None:
        self.f, self.values, self.middle = f, values, f.output(values)
        self.gradient = f.gradient(values).reshape(f.rows, -1)
        self.noise = NOISE * float(np.abs(self.middle * f.dy).max(initial=0))

    def judge(self, where: int | Array, scale: float) -> Array:
        """Returns RIGHT, KINK or WRONG for the gradient's element in a column of each row, or the sum of several.

        where: the column, or a mask of (rows, elements). scale: the magnitude of the largest element of the gradient,
        at least 1.
        """
        f, index = self.f, where if isinstance(where, np.ndarray) else np.s_[:, where]
        up, down = (f.output(_moved_copy(f, self.values, index, step)) for step in (STEP, -STEP))
        self.slopes = ((up - down) * f.dy).reshape(f.rows, -1).sum(axis=1) / (2 * STEP)
        if isinstance(where, np.ndarray):
            gradients = np.where(where, self.gradient, 0).sum(axis=1)
        else:
            gradients = self.gradient[:, where]
        with np.errstate(invalid="ignore"):  # infinity and NaN are wrong
            errors = abs(self.slopes - gradients)
            beyond = errors - RTOL * abs(self.slopes) - ATOL * scale - self.noise
        self.verdicts = np.where(beyond <= 0, RIGHT, WRONG)
        if self.verdicts.any():
            bends = abs((up - 2 * self.middle + down) * f.dy).reshape(f.rows, -1).sum(axis=1) / (2 * STEP)
            self.verdicts[(beyond > 0) & (beyond <= bends)] = KINK
        return self.verdicts

    def raise_if_wrong(self, row: int, column: int) -> None:
        """Raises AssertionError if the element of this row is wrong, as judged by the last call of `judge`."""
        if self.verdicts[row] == WRONG:
            expected, got = float(self.slopes[row]), float(self.gradient[row, column])
            relative = abs(expected - got) / max(abs(expected), abs(got))
            raise AssertionError(
                f"{_index_name(self.f, row, column)}: expected {expected:.8g} (finite differences), got {got:.8g}, "
                f"a relative error of {relative:.2g}, at {self.values.reshape(self.f.rows, -1)[row, column]:.8g}"
            )


def _moved_copy(f: Function, values: Array, index: Any, by: float) -> Array:
    """Returns a copy of the values, with some elements moved: index is that of the array (rows, elements)."""
    copy = np.array(values, order="C")
    copy.reshape(f.rows, -1)[index] += by
    return copy


def _index_name(f: Function, row: int, column: int) -> str:
    """Returns the name of an element of the gradient in errors: "ReLU: dx[0, 3]"."""
    index = np.unravel_index(row * (f.values.size // f.rows) + column, f.values.shape)
    return f"{f.name}{[int(i) for i in index]}"
