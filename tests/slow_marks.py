"""Marks most of many similar cases as slow: `make test` runs the first few, `make check` all of them."""

import pytest


def slow_after(count, cases):
    """Returns the cases as parameters, with all after the first `count` marked slow."""
    cases = list(cases)
    return [*cases[:count], *slow(cases[count:])]


def slow(cases):
    """Returns the cases as parameters, all marked slow. A tuple holds the values of several arguments."""
    return [pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow) for case in cases]
