"""Right solutions of the course's exercises are accepted, in any style; unfinished ones are said to be unfinished."""

import inspect
from pathlib import Path

import pytest
from teaching import right_solutions

from minidl.testing import grade
from minidl.testing.grading.exercises import EXERCISES
from minidl.testing.grading.files import grade_file

TEACHING = Path(__file__).parents[2] / "docs" / "teaching"
FILES = ("dense", "relu", "max_pool", "convolution", "loss", "optimizer")
OTHER = [value for name, value in vars(right_solutions).items() if name in EXERCISES]


@pytest.mark.parametrize("name", FILES)
def test_the_solutions_are_right(name, capsys):
    assert grade_file(str(TEACHING / "solutions" / f"{name}.py"))
    assert "lines are right.\n" in capsys.readouterr().out


@pytest.mark.parametrize("answer", OTHER, ids=lambda answer: answer.__name__)
def test_other_styles_are_right(answer, capsys):
    assert grade(answer), capsys.readouterr().out


def test_there_is_one_of_each():
    assert {answer.__name__ for answer in OTHER} == EXERCISES.keys()
    assert {path.stem for path in (TEACHING / "exercises").glob("*.py")} == set(FILES)
    assert {path.stem for path in (TEACHING / "solutions").glob("*.py")} == set(FILES)
    assert all(inspect.getdoc(answer) for answer in OTHER)
