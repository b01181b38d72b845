"""Which of many cases `make test` runs, where each of them can find what another would: the rest is marked slow."""

import pytest


def slow_after(count, cases):
    """The cases as parameters, those after the first `count` marked slow."""
    cases = list(cases)
    return [*cases[:count], *slow(cases[count:])]


def slow(cases):
    """The cases as parameters, all marked slow; a tuple has the values of several arguments."""
    return [pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow) for case in cases]
