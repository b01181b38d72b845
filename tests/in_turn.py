"""Runs many quick cases as one test, because a test of its own costs milliseconds; a failure names its case."""

import functools
import inspect


def in_turn(names, cases):
    """Returns a decorator like pytest.mark.parametrize, whose cases are one test; not for tests that skip."""
    names = [name.strip() for name in names.split(",")]

    def decorate(test):
        @functools.wraps(test)
        def run_all(*args, **kwargs):
            for case in cases:
                values = dict(zip(names, case if len(names) > 1 else (case,), strict=True))
                try:
                    test(*args, **kwargs, **values)
                except Exception as error:
                    error.add_note(f"in the case {values}")
                    raise

        signature = inspect.signature(test)
        kept = [p for name, p in signature.parameters.items() if name not in names]
        run_all.__signature__ = signature.replace(parameters=kept)
        return run_all

    return decorate
