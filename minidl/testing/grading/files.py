"""Files with solutions: scripts, and notebooks, whose code cells are one program. They run as Python runs a program."""

from __future__ import annotations

import json
import linecache
import sys
from importlib.abc import InspectLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from minidl.testing.grading.exercises import EXERCISES
from minidl.testing.grading.grader import graded
from minidl.testing.grading.report import RIGHT, Report

NAME = "exercise"  # of the module: not "__main__", so that the last lines of an exercise do not grade it a second time


class Source(InspectLoader):
    """The source of a script or notebook, as a loader of a module.

    Raises OSError for a file that cannot be read, ValueError for one that is neither a script nor a notebook.
    """

    def __init__(self, path: str) -> None:
        self.path, self.places = path, list[str]()
        try:
            self.text = Path(path).read_text(encoding="utf-8")
            if path.endswith(".ipynb"):
                cells = [(k, _lines(cell)) for k, cell in enumerate(json.loads(self.text)["cells"], 1)]
                self.text = "\n".join(line for _, lines in cells for line in lines)
                self.places = [f"cell {k}, line {i}" for k, lines in cells for i in range(1, len(lines) + 1)]
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}: expected a Python script or a notebook, got {error!r}") from error
        linecache.cache[path] = len(self.text), None, self.text.splitlines(keepends=True), path  # for tracebacks

    def place(self, line: int) -> str:
        """Returns the name of a line: "line 3"; "cell 2, line 3" of a notebook."""
        return self.places[line - 1] if line <= len(self.places) else f"line {line}"

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
    loading = Report(path, vars(module), source.place)
    outcome = loading.call(source.exec_module, module)
    if outcome.verdict != RIGHT:
        loading.add("program", outcome.verdict, outcome.says)
    answers = [
        value
        for name, value in vars(module).items()
        if name in EXERCISES and getattr(value, "__name__", "") == name and getattr(value, "__module__", "") == NAME
    ]
    if not answers and outcome.verdict == RIGHT:
        raise ValueError(f"{path}: expected one of {', '.join(EXERCISES)}, defined in this file, found none")
    done = [graded(answer, Report(f"{path}: {answer.__name__}", vars(module), source.place)) for answer in answers]
    return all(done) and outcome.verdict == RIGHT


def _lines(cell: Any) -> list[str]:
    """Returns the lines of a cell of a notebook; none of text, and empty ones for commands of Jupyter."""
    if cell["cell_type"] != "code":
        return []
    source = cell["source"]
    lines = (source if isinstance(source, str) else "".join(source)).splitlines()
    return ["" if line.startswith(("%", "!")) else line for line in lines]
