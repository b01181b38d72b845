"""Report: the lines of a grading, each printed as soon as it is known; calls of a student's code on its behalf."""

from __future__ import annotations

import io
import linecache
import re
import textwrap
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any

import numpy as np

RIGHT, WRONG, UNWRITTEN, UNTRIED = "right", "wrong", "not written yet", "not tried"
WIDTH, INDENT = 110, 16
PRINTED = 5  # lines of what the code prints that are shown, for each line of the report
SHAPES = re.compile(r"shape|dimension|broadcast|operand|out of bounds|subscript", re.I)  # in errors of NumPy
SIGNATURE = re.compile(r"matmul: Input operand .* with gufunc signature \S+ ")
ERRORS = {"truth value": "if, max and min take single numbers; arrays need a function that works number by number"}
HINTS = {  # what a contract's message means for beginners
    r"(an output|dx) of float\d\d, got float": "make arrays with the dtype of x: np.zeros(shape) has float64",
    r"inference changed": "keep arrays for backward only `if training`",
    r"a batch of 0 failed.*expected \w+ to return shape": (
        "make the result with its shape first, np.zeros((len(x), ...), x.dtype): an array of a list of no examples has "
        "lost the other axes"
    ),
    r"a batch of 0 failed(?!.*expected \w+ to return shape)": (
        "loops over the examples take care of it, indices such as x[0] do not"
    ),
    r"frozen": "keep what belongs to a parameter by its name in params",
    r"does it accumulate\?|another dx": "each backward starts with arrays of zeros",
}


@dataclass(frozen=True)
class Outcome:
    """What a call of the student's code returned; or else a verdict, what to say, and the lines that failed."""

    value: Any = None
    verdict: str = RIGHT
    says: str = ""
    lines: tuple[str, ...] = ()  # of the student's code in the traceback, the innermost first


class Report:
    """Prints a title, and then a line for each thing that is graded.

    namespace: the globals of the student's code; errors name the last of its lines. place(line): how a line is named.
    """

    def __init__(self, title: str, namespace: dict[str, Any], place: Callable[[int], str] = "line {}".format) -> None:
        self.namespace, self.place, self.verdicts, self.stopped = namespace, place, list[str](), False
        self.printed: list[str] = []
        self.title = title

    def all_right(self) -> bool:
        """True if all lines so far are right."""
        return all(verdict == RIGHT for verdict in self.verdicts)

    def add(self, label: str, verdict: str = RIGHT, *says: str) -> None:
        """Prints a line, and after it what the student's code has printed."""
        if not self.verdicts:
            print(self.title)
        self.verdicts.append(verdict)
        first, *rest = [text for text in says if text] or [""]
        head = f"  {label:<{INDENT - 2}}{verdict}{': ' if first else ''}"
        indent = " " * INDENT
        print(textwrap.fill(first, WIDTH, initial_indent=head, subsequent_indent=indent) if first else head)
        for text in rest:
            print(textwrap.fill(text, WIDTH, initial_indent=indent, subsequent_indent=indent))
        for line in self.printed[:PRINTED]:
            print(f"{indent}| {line}")
        if len(self.printed) > PRINTED:
            print(f"{indent}| ... and {len(self.printed) - PRINTED} more lines that the code prints")
        self.printed = []
        print(end="", flush=True)

    def end(self) -> bool:
        """Prints the result; returns True if all is right."""
        done = self.verdicts.count(RIGHT)
        print(
            f"All {done} lines are right." if self.all_right() else f"{done} of {len(self.verdicts)} lines are right."
        )
        return self.all_right()

    def call(self, function: Callable[..., Any], *arguments: Any, reads: str = "", shapes: str = "") -> Outcome:
        """Calls the student's code.

        reads: the names of the arguments that it must not write into. shapes: those of all arrays, for errors.
        """
        if self.stopped:
            return Outcome(None, UNTRIED)
        out = io.StringIO()
        try:
            with redirect_stdout(out), warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                return Outcome(function(*arguments))
        except KeyboardInterrupt as error:
            self.stopped = True
            return Outcome(None, WRONG, f"interrupted{self._where(error)}")
        except NotImplementedError:
            return Outcome(None, UNWRITTEN)
        except (Exception, SystemExit) as error:
            lines = tuple(code for _, code in self._lines(error))
            return Outcome(None, WRONG, self.explain(error, reads, shapes), lines)
        finally:
            self.printed += out.getvalue().splitlines()

    def contract(self, check: Callable[..., None], *arguments: Any) -> Outcome:
        """Runs check_layer or one of its kind, which calls the student's code often: what that prints is not shown."""
        before = list(self.printed)
        outcome = self.call(check, *arguments)
        self.printed = before
        hints = [hint for pattern, hint in HINTS.items() if re.search(pattern, outcome.says)]
        return Outcome(outcome.value, outcome.verdict, "; ".join([outcome.says, *hints]))

    def explain(self, error: BaseException, reads: str = "", shapes: str = "") -> str:
        """Returns what to say about an exception of the student's code, or of a check of it."""
        if isinstance(error, SyntaxError):
            return (
                f"{type(error).__name__}: {error.msg} ({self.place(error.lineno or 0)}: {(error.text or '').strip()})"
            )
        frames = list(traceback.walk_tb(error.__traceback__))
        where = self._where(error) or (self._where(error.__cause__) if error.__cause__ else "")
        if isinstance(error, AssertionError) and frames[-1][0].f_globals is not self.namespace:
            return str(error).partition(": ")[2].replace(" (couples_examples=True if it should)", "") + where
        if "read-only" in str(error) and reads:
            return f"writes into {reads}, which others use, too: make an array of your own{where}"
        message = SIGNATURE.sub("sizes do not fit in a product: ", str(error))
        named = f"{type(error).__name__}: {message}" if message else type(error).__name__
        says = "; ".join([named + where, *(h for p, h in ERRORS.items() if p in message)])
        return f"{says}; {shapes}" if shapes and SHAPES.search(str(error)) else says

    def _where(self, error: BaseException) -> str:
        """Returns the last line of the student's code in a traceback, in parentheses; "" if there is none."""
        for number, code in self._lines(error):
            return f" ({self.place(number)}{': ' * bool(code)}{code})"
        return ""

    def _lines(self, error: BaseException) -> Iterator[tuple[int, str]]:
        """Yields the lines of the student's code in a traceback, the innermost first: their numbers and their text."""
        for frame, number in reversed(list(traceback.walk_tb(error.__traceback__))):
            if frame.f_globals is self.namespace:
                yield number, linecache.getline(frame.f_code.co_filename, number, frame.f_globals).strip()
