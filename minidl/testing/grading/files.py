"""Files with solutions: scripts, and notebooks, whose code cells are one program. They run as Python runs a program."""

from __future__ import annotations

import json
import linecache
import re
import sys
import warnings
from importlib.abc import InspectLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from minidl.testing.grading.exercises import EXERCISES
from minidl.testing.grading.grader import graded
from minidl.testing.grading.report import RIGHT, Report

NAMES = "|".join(EXERCISES)
DEFINES = re.compile(rf"^((class|def) +({NAMES})\b|({NAMES}) *=)", re.M)
# Lines of Jupyter, such as %time f(), !ls, name?, ??name, a = !ls: an indent, a name that is assigned, the command.
COMMAND = re.compile(r"(\s*)([\w.]+ *= *(?=[%!]))?([%!].*|\?{1,2}[\w.]+|[\w.]+\?{1,2})\s*")
NAME = "exercise"  # of the module: not "__main__", so that the last lines of an exercise do not grade it a second time


class Source(InspectLoader):
    """The source of a script or notebook, as a loader of a module.

    Raises OSError for a file that cannot be read, ValueError for one that is neither a script nor a notebook.
    """

    def __init__(self, path: str) -> None:
        self.path, self.places, self.left_out = path, list[str](), list[str]()
        try:
            self.text = Path(path).read_text(encoding="utf-8")
            if path.endswith(".ipynb"):
                cells = [(k, self._lines(cell, k)) for k, cell in enumerate(json.loads(self.text)["cells"], 1)]
                self.text = "\n".join(line for _, lines in cells for line in lines)
                self.places = [f"cell {k}, line {i}" for k, lines in cells for i in range(1, len(lines) + 1)]
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}: expected a Python script or a notebook, got {error!r}") from error
        linecache.cache[path] = len(self.text), None, self.text.splitlines(keepends=True), path  # for tracebacks

    def place(self, line: int) -> str:
        """Returns the name of a line: "line 3"; "cell 2, line 3" of a notebook."""
        return self.places[line - 1] if line <= len(self.places) else f"line {line}"

    def _lines(self, cell: Any, number: int) -> list[str]:
        """Returns the lines of a cell: none of text or of a cell that is left out; commands of Jupyter do nothing."""
        if cell["cell_type"] != "code":
            return []
        source = cell["source"]
        lines = (source if isinstance(source, str) else "".join(source)).splitlines()
        if _error(lines):
            lines = [COMMAND.sub(_nothing, line) if COMMAND.fullmatch(line) else line for line in lines]
        if (error := _error(lines)) and not DEFINES.search("\n".join(lines)):
            self.left_out.append(f"cell {number} is left out: it is no Python ({error.msg}: line {error.lineno})")
            return []
        return lines

    def get_source(self, fullname: str) -> str:
        """Returns the program."""
        return self.text

    def get_code(self, fullname: str) -> CodeType:
        """Returns the compiled program; raises SyntaxError."""
        return compile(self.text, self.path, "exec", dont_inherit=True)


def grade_file(path: str) -> bool:
    """Grades all exercises in a file; returns True if all is right.

    Raises OSError or ValueError for a file that cannot be read, or that has no exercise.
    """
    source = Source(path)
    spec = spec_from_loader(NAME, source, origin=path)
    assert spec is not None
    module = module_from_spec(spec)
    before = sys.path.copy()
    sys.path.insert(0, str(Path(path).parent))  # as if it were run
    sys.modules[NAME] = module
    try:
        return _grade(path, source, module)
    finally:
        sys.path[:] = before
        del sys.modules[NAME]


def _grade(path: str, source: Source, module: ModuleType) -> bool:
    for note in source.left_out:
        print(f"{path}: {note}")
    loading = Report(path, vars(module), source.place)
    outcome = loading.call(source.exec_module, module)
    if outcome.verdict != RIGHT:
        loading.add("program", outcome.verdict, outcome.says)
    answers = {
        name: value
        for name, value in vars(module).items()
        if name in EXERCISES and callable(value) and getattr(value, "__module__", "") == NAME
    }
    if not answers and outcome.verdict == RIGHT:
        raise ValueError(f"{path}: expected one of {', '.join(EXERCISES)}, defined in this file, found none")
    done = [
        graded(name, answer, Report(f"{path}: {name}", vars(module), source.place)) for name, answer in answers.items()
    ]
    return all(done) and outcome.verdict == RIGHT


def _error(lines: list[str]) -> SyntaxError | None:
    """Returns what is wrong with the syntax of a cell; None if nothing is."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile("\n".join(lines), "cell", "exec", dont_inherit=True)
    except SyntaxError as error:
        return error
    return None


def _nothing(command: re.Match[str]) -> str:
    """Returns Python that does nothing, in place of a command of Jupyter; a name that it assigns becomes None."""
    return command[1] + (f"{command[2]}None" if command[2] else "pass")
