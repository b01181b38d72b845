"""Comparison of a student's numbers with the right ones: where they differ, and which known mistake gives them.

A mistake is a sentence and a function of the case that computes what one gets with it. The student's numbers have the
first mistake of the catalogue that gives just them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minidl.testing.grading.report import RIGHT, WRONG, Outcome, Report
from minidl.utils.arrays import Array

Mistake = tuple[str, Callable[[Any], Any]]
Mistakes = Sequence[Mistake]
RTOL, ATOL = 1e-5, 1e-8
WANTED, GOT = r"(?P<wanted>\([\d, ]+\))", r"(?P<got>\([\d, ]+\))"
REFUSED = (  # errors of assignments: of Param, and of NumPy for a[...] = b, a += b, and a smaller a += b
    rf"expected shape {WANTED}, got {GOT}",
    rf"from shape {GOT} into shape {WANTED}",
    rf"together with shapes {WANTED} {GOT} (?P=wanted)",
    rf"output operand with shape {WANTED} doesn't match the broadcast shape {GOT}",
)


def compare(
    report: Report, label: str, outcome: Outcome, case: Any, name: str, catalogue: Mistakes, otherwise: str = ""
) -> None:
    """Adds the line of one result to a report.

    outcome.value: the student's numbers. name: the attribute of the case with the right ones, such as "dW". otherwise:
    what to say about wrong numbers of no known mistake.
    """
    expected = getattr(case, name)
    if outcome.verdict != RIGHT:
        report.add(label, outcome.verdict, named_by_shape(outcome.says, case, name, catalogue), outcome.says)
    elif outcome.value is None:
        report.add(label, WRONG, "it returns nothing: is a `return` missing?")
    elif isinstance(outcome.value, (list, tuple)):
        report.add(label, WRONG, f"expected an array of numbers, got a {type(outcome.value).__name__}")
    else:
        try:
            got = np.asarray(outcome.value, "float64")
        except (TypeError, ValueError):
            report.add(label, WRONG, f"expected an array of numbers, got {type(outcome.value).__name__}")
            return
        if equal(got, expected):
            report.add(label)
            return
        known = (says for says, makes in catalogue if equal(got, made(makes, case)))
        says = next(known, None) or pattern(got, expected, case.n) or otherwise
        report.add(label, WRONG, says, place(name, got, expected))


def place(name: str, got: Array, expected: Array) -> str:
    """Returns where numbers are wrong: the first of them, and their count. name: "dW"."""
    if got.shape != expected.shape:
        return f"expected the shape {expected.shape}, got {got.shape}"
    bad = ~np.isclose(got, expected, RTOL, ATOL)
    first = tuple(int(i) for i in np.argwhere(bad)[0])
    count = f"{np.count_nonzero(bad)} of {bad.size} numbers are wrong"
    return f"{name}{list(first) or ''}: expected {expected[first]:.5g}, got {got[first]:.5g}; {count}"


def equal(got: Array, expected: Array) -> bool:
    """True if the numbers are equal to rounding, and have one shape."""
    return got.shape == expected.shape and np.allclose(got, expected, RTOL, ATOL, equal_nan=True)


def made(makes: Callable[[Any], Any], case: Any) -> Array:
    """Returns what a mistake gives."""
    with np.errstate(all="ignore"):
        return np.asarray(makes(case), "float64")


def named_by_shape(error: str, case: Any, name: str, catalogue: Mistakes) -> str:
    """Returns the known mistake that gives an array of the shape that an assignment refused; else ""."""
    for form in REFUSED:
        for found in re.finditer(form, error):
            wanted, got = (tuple(map(int, re.findall(r"\d+", found[group]))) for group in ("wanted", "got"))
            if wanted == getattr(case, name).shape:
                return next((says for says, makes in catalogue if made(makes, case).shape == got), "")
    return ""


def pattern(got: Array, expected: Array, n: int) -> str:
    """Returns what wrong numbers of no known mistake look like, if they have a simple pattern; else ""."""
    if got.shape != expected.shape:
        if got.shape == (n, *expected.shape):
            return "there is a result for each example: the sum over the batch is missing"
        return "it is transposed" if got.T.shape == expected.shape and np.allclose(got.T, expected) else ""
    if np.isnan(got).any():
        return "there are NaN: 0 / 0, infinity minus infinity, the logarithm of a negative number, or np.empty"
    if not got.any():
        return "all numbers are 0"
    if expected.any():
        largest = np.unravel_index(np.abs(expected).argmax(), expected.shape)
        factor = float(got[largest] / expected[largest])
        if equal(got, factor * expected):
            return f"all numbers are {factor:.4g} times the right ones"
    return ""
