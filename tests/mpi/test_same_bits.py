"""Any number of ranks gives the same hash of weights, history and predictions."""

import functools
import re

import pytest
from mpi.jobs import ROOT, needs_mpi, run
from mpi.nets import CASES
from slow_marks import slow

import minidl_c

pytestmark = needs_mpi


@functools.cache
def alone():
    """Returns the sorted lines that a process without MPI prints."""
    code, out, err = run(None, "nets.py", "alone")
    assert code == 0 and len(out.splitlines()) == len(CASES), err
    return sorted(out.splitlines())


@pytest.mark.parametrize("ranks", [2, *slow([1, 3, 4])])
def test_number_of_ranks_changes_no_bit(ranks):
    code, out, err = run(ranks, "nets.py")
    assert code == 0, err
    assert sorted(out.splitlines()) == sorted(alone() * ranks)


@pytest.mark.slow
@pytest.mark.skipif(minidl_c.isa == "v2", reason="v2 has different bits")
def test_docs_print_what_they_say(tmp_path):
    page = (ROOT / "docs" / "how-to" / "distributed.md").read_text(encoding="utf-8")
    program = re.search(r"^```python\n(# train\.py\n.*?)^```$", page, re.M | re.S)[1]
    (tmp_path / "train.py").write_text(program, encoding="utf-8")
    said = re.findall(r"^    (\d \d\.\d{4} \w{16})$", page, re.M)
    assert [line[0] for line in said] == ["1", "2", "3"]
    for line in said:
        code, out, err = run(int(line[0]), tmp_path / "train.py", cwd=tmp_path)
        assert (code, out.splitlines()) == (0, [line]), err


@pytest.mark.slow
def test_the_example_resumes_with_more_ranks(tmp_path):
    example = ROOT / "examples" / "distributed_mnist.py"
    ends = set()
    for ranks, resume in ((2, []), (3, ["--resume"])):
        code, out, err = run(ranks, example, "--digits", "--epochs", "2", *resume, cwd=tmp_path)
        assert code == 0, err
        ends.add(out.splitlines()[-1].replace(f"in {ranks} processes", ""))
        assert [out.count(f"epoch {number}/2") for number in (1, 2)] == [0 if resume else 1] * 2  # rank 0's
    assert len(ends) == 1 and "accuracy" in ends.pop()
