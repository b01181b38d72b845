"""grade: checks a student's solution of an exercise, and prints what is right and what is not."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

from minidl.testing.grading.exercises import EXERCISES
from minidl.testing.grading.report import Report


def grade(answer: Callable[..., Any]) -> bool:
    """Checks a solution of an exercise of the course, and prints line by line what is right and what is not.

    Forward and each gradient have a line of their own, compared with what minidl computes. A wrong one says where, what
    was expected and what came, and names the mistake if it is a known one. If all are right, `check_layer`,
    `check_loss` or `check_optimizer` tests the rest. The solution is never shown.

    `python -m minidl grade exercise.py` does the same for files.

    Parameters
    ----------
    answer : class or function
        A layer Dense, ReLU, MaxPool2D or Conv2D, a loss softmax_cross_entropy, or an optimizer SGD. Its name says which
        exercise it solves. A lambda, and an object that can be called, have the name to which they are assigned.

    Returns
    -------
    bool
        True if all lines are right.

    Raises
    ------
    TypeError, ValueError
        For anything else.

    See Also
    --------
    check_layer : The test of any layer.
    check_loss : The test of any loss.
    check_optimizer : The test of any optimizer.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Layer
    >>> from minidl.testing import grade
    >>> class ReLU(Layer):
    ...     def forward(self, x, training):
    ...         if training:
    ...             self.x = x
    ...         return np.maximum(x, 0)
    ...
    ...     def backward(self, dy):
    ...         return dy * (dy > 0)
    >>> grade(ReLU)
    ReLU
      build         right
      forward       right
      dx            wrong: the sign of dy decides; that of x does, as in forward
                    dx[0, 0, 2]: expected 0, got 4; 28 of 60 numbers are wrong
      contract      not tried: when all lines above are right, check_layer tests the rest
    2 of 4 lines are right.
    False
    """
    name = name_of(answer)
    if name not in EXERCISES:
        expected = f"expected a class or function with one of the names {', '.join(EXERCISES)}"
        hint = f"; pass the class {type(answer).__name__}" if type(answer).__name__ in EXERCISES else ""
        raise (ValueError if name else TypeError)(f"answer: {expected}, got {answer!r}{hint}")
    return graded(name, answer, Report(name, globals_of(answer)))


def name_of(answer: Callable[..., Any]) -> str:
    """Returns the name of a class or a function; else that of an exercise to which a callable object is assigned."""
    name: str = getattr(answer, "__name__", "")
    if name in EXERCISES or not callable(answer):
        return name
    namespace = globals_of(answer)
    return next((known for known in EXERCISES if namespace.get(known) is answer), name)


def graded(name: str, answer: Callable[..., Any], report: Report) -> bool:
    """Grades a solution of an exercise; returns True if all is right."""
    EXERCISES[name].grade(answer, report)  # type: ignore[arg-type]
    return report.end()


def globals_of(answer: Callable[..., Any]) -> dict[str, Any]:
    """Returns the globals of the code of a class or a function."""
    parts = [answer, *(vars(answer).values() if inspect.isclass(answer) else ())]
    functions = [inspect.unwrap(part) for part in parts if inspect.isfunction(part)]
    return functions[0].__globals__ if functions else vars(sys.modules[answer.__module__])
