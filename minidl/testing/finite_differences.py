"""Finite differences: what a gradient has to equal, also where a function has kinks.

A number is moved up and down by STEP, and the outputs tell the slope. Where the gradient is another, there may be a
kink in between: a ReLU at 0, a tie of two maxima. Then the outputs bend, and what is right on one side of the kink is
off by no more than the bend; anything else is wrong. At the kink itself there is nothing to compare, but nothing can
hide behind it: the number is taken to random places on both sides, close ones first, and there it has to be right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from minidl.utils.arrays import Array

STEP = 1e-6  # the cube root of float64's precision, about
NOISE = 4 * np.finfo(np.float64).eps / STEP  # of a difference, as a share of what it is a difference of
RTOL, ATOL = 1e-5, 1e-6  # the second as a share of the largest gradient, or of 1
DISTANCES = (1e-4, 1e-3, 1e-2, 0.1, 1.0)  # to which a number is taken from a kink, until there is none
RIGHT, KINK, WRONG = range(3)


@dataclass(frozen=True)
class Function:
    """The sum of output(values) * dy, and what a layer takes for its gradient.

    name: of the gradient, for errors: "ReLU: dx".
    rows: so many equal parts of the values (examples) make parts of the output of their own, and are moved together.
    """

    name: str
    values: Array
    output: Callable[[Array], Array]
    gradient: Callable[[Array], Array]
    dy: Array
    rows: int = 1


def check_gradient(f: Function, rng: np.random.Generator) -> None:
    """Raises AssertionError unless each number of the gradient is the slope, there or on both sides of a kink."""
    here = _Point(f, f.values)
    scale = max(float(np.abs(here.gradient).max(initial=0)), 1.0)
    for column in range(here.gradient.shape[1]):
        for row in np.flatnonzero(here.judge(column, scale) != RIGHT):
            here.blame(int(row), column)
            _check_sides(f, int(row), column, scale, rng)


def _check_sides(f: Function, row: int, column: int, scale: float, rng: np.random.Generator) -> None:
    """One number of the gradient, at random places above and below. Where there is a kink too, it goes further."""
    sides = [1, -1]
    for distance in DISTANCES:
        for side in tuple(sides):
            there = _Point(f, _moved(f, f.values, row, column, side * distance * rng.uniform(0.5, 1.5)))
            if there.judge(column, scale)[row] == RIGHT:
                sides.remove(side)
            there.blame(row, column)
    assert not sides, (
        f"{_place(f, row, column)}: expected a slope, found kinks at {f.values.reshape(f.rows, -1)[row, column]:.8g} "
        f"and wherever else it was looked for, up to {DISTANCES[-1]} away"
    )


class _Point:
    """A function at some values."""

    def __init__(self, f: Function, values: Array) -> None:
        self.f, self.values, self.middle = f, values, f.output(values)
        self.gradient = f.gradient(values).reshape(f.rows, -1)
        self.noise = NOISE * float(np.abs(self.middle * f.dy).max(initial=0))

    def judge(self, column: int, scale: float) -> Array:
        """RIGHT, KINK or WRONG: the gradient's number in this column, for each row. scale: the size of a large one."""
        f = self.f
        up, down = (f.output(_moved(f, self.values, slice(None), column, step)) for step in (STEP, -STEP))
        self.slopes = ((up - down) * f.dy).reshape(f.rows, -1).sum(axis=1) / (2 * STEP)
        with np.errstate(invalid="ignore"):  # an infinity is wrong, and so is a NaN
            errors = abs(self.slopes - self.gradient[:, column])
            beyond = errors - RTOL * abs(self.slopes) - ATOL * scale - self.noise
        self.verdicts = np.where(beyond <= 0, RIGHT, WRONG)
        if self.verdicts.any():
            bends = abs((up - 2 * self.middle + down) * f.dy).reshape(f.rows, -1).sum(axis=1) / (2 * STEP)
            self.verdicts[(beyond > 0) & (beyond <= bends)] = KINK
        return self.verdicts

    def blame(self, row: int, column: int) -> None:
        """Raises AssertionError if the number judged last is wrong."""
        if self.verdicts[row] == WRONG:
            expected, got = float(self.slopes[row]), float(self.gradient[row, column])
            relative = abs(expected - got) / max(abs(expected), abs(got))
            raise AssertionError(
                f"{_place(self.f, row, column)}: expected {expected:.8g} (finite differences), got {got:.8g}, "
                f"a relative error of {relative:.2g}, at {self.values.reshape(self.f.rows, -1)[row, column]:.8g}"
            )


def _moved(f: Function, values: Array, row: int | slice, column: int, by: float) -> Array:
    """A copy of the values, with the number in one column of a row, or of all rows, moved."""
    copy = np.array(values, order="C")
    copy.reshape(f.rows, -1)[row, column] += by
    return copy


def _place(f: Function, row: int, column: int) -> str:
    """What an error calls a number of the gradient: "ReLU: dx[0, 3]"."""
    index = np.unravel_index(row * (f.values.size // f.rows) + column, f.values.shape)
    return f"{f.name}{[int(i) for i in index]}"
