"""Typical wrong solutions of the course's exercises: each is refused with a message that names its mistake."""

import contextlib
import io
import re
from pathlib import Path

import pytest
from teaching.wrong_layers import DENSE, RELU
from teaching.wrong_steps import LOSS, OPTIMIZER
from teaching.wrong_windows import CONVOLUTION, MAX_POOL

from minidl.testing.grading.files import grade_file

SOLUTIONS = Path(__file__).parents[2] / "docs" / "teaching" / "solutions"
WRONG = {
    "dense": DENSE,
    "relu": RELU,
    "max_pool": MAX_POOL,
    "convolution": CONVOLUTION,
    "loss": LOSS,
    "optimizer": OPTIMIZER,
}
CASES = [pytest.param(name, *case, id=f"{name}: {case[2][:60]}") for name, cases in WRONG.items() for case in cases]
GENERIC = re.compile(r"all numbers are|there is a result for each|it is transposed")


def graded(name, text, folder):
    """Returns whether a solution is right, and the lines of its report as one text each: "dW: wrong ..."."""
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        right = grade_file(str(path))
    return right, out.getvalue()


def sentences(report):
    """Returns what a report says of each line that is wrong: "dW: what is said"."""
    joined = re.sub(r"\n {16}", " ", report)
    return [f"{label.strip()}: {says}" for label, says in re.findall(r"^  (.{14})wrong: (.*)$", joined, re.M)]


@pytest.mark.parametrize("name", WRONG)
def test_there_are_twelve(name):
    assert len({message for _, _, message in WRONG[name]}) >= 12


@pytest.mark.parametrize(("name", "old", "new", "message"), CASES)
def test_a_wrong_solution_is_refused_by_name(name, old, new, message, tmp_path):
    text = (SOLUTIONS / f"{name}.py").read_text(encoding="utf-8")
    assert text.count(old) == 1, old
    right, report = graded(name, text.replace(old, new), tmp_path)
    assert not right
    found = sentences(report)
    assert re.match(message, found[0]), report
    assert not any(map(GENERIC.search, found)), report
