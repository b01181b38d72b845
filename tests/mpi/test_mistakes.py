"""What is wrong in one rank is told in all of them, in words, and none hangs."""

import functools
import subprocess
import sys

import pytest
from mpi.jobs import needs_mpi, run

SAME = "expected the same on all ranks, rank 2 has other ones than rank 0"
TOLD = {  # by rank 2, which makes the mistake; and by the others, if that is something else
    "X": f"ValueError: X: {SAME}",
    "y": f"ValueError: y: {SAME}",
    "fewer rows": f"ValueError: X: {SAME}",
    "sample_weight": f"ValueError: sample_weight: {SAME}",
    "validation_data": f"ValueError: validation_data: {SAME}",
    "epochs": f"ValueError: epochs: {SAME}",
    "batch_size": f"ValueError: batch_size: {SAME}",
    "callbacks": f"ValueError: callbacks: {SAME}",
    "seed": f"ValueError: model: {SAME}",
    "weights": f"ValueError: model/2.weight: {SAME}",
    "layers": f"ValueError: model: {SAME}",
    "dtype": f"ValueError: model: {SAME}",
    "optimizer": f"ValueError: optimizer: {SAME}",
    "clip": f"ValueError: clip: {SAME}",
    "shuffle": f"ValueError: shuffle: {SAME}",
    "wrong y": (
        "ValueError: y: expected labels",
        "ValueError: rank 2 of 3: ValueError: y: expected labels",
    ),
    "wrong X": ("ValueError: X: expected shape", "ValueError: rank 2 of 3: ValueError: X: expected shape"),
    "unseeded": "ValueError: 3.weight: expected the same on all ranks, ranks 1, 2 have other ones than rank 0",
    "callback": ("OSError: no space left", "OSError: rank 2 of 3: OSError: no space left"),
    "infinite": "FloatingPointError: ",
    "batch": f"ValueError: X: {SAME}",
    "wrong batch": ("ValueError: X: expected at least", "ValueError: rank 2 of 3: ValueError: X: expected at least"),
    "end": "fine",
}


@functools.cache
def told():
    """What each of three ranks said, by the name of the case."""
    code, out, err = run(3, "mistakes.py")
    assert code == 0, err
    return dict(line.split(" | ", 1) for line in out.splitlines())


@needs_mpi
@pytest.mark.parametrize("case", TOLD)
def test_all_ranks_refuse_what_one_does(case):
    expected = TOLD[case] if isinstance(TOLD[case], tuple) else (TOLD[case], TOLD[case])
    for rank in range(3):
        assert told()[f"{rank} {case}"].startswith(expected[rank != 2])


@needs_mpi
def test_more_ranks_than_slots_is_no_mistake():
    """Six ranks, batches of one and two slots: see nets.py, "lenet with few tiles"."""
    code, out, err = run(6, "nets.py", "lenet with few tiles")
    assert code == 0, err
    assert len(set(out.splitlines())) == 1 and len(out.splitlines()) == 6


@pytest.mark.parametrize("missing", ["mpi4py", "mpi4py.MPI"])
def test_without_mpi4py_or_an_mpi_it_says_what_to_install(missing):
    program = f"import sys; sys.modules[{missing!r}] = None\nfrom minidl.distributed import MPI\nMPI()"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.returncode == 1
    assert "ImportError: minidl.distributed needs mpi4py, and an MPI" in found.stderr
    assert 'pip install "minidl[mpi]"' in found.stderr
