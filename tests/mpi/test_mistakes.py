"""A mistake on one rank raises a clear error on every rank, and none hangs."""

import functools
import subprocess
import sys

import pytest
from mpi.jobs import needs_mpi, run

SAME = "expected the same on all ranks,"
DIFFERENT = f"{SAME} rank 2 has another one than rank 0"
ERRORS = {  # on rank 2, which makes the mistake, and on the others if they differ
    "X": f"ValueError: X: {DIFFERENT}",
    "y": f"ValueError: y: {DIFFERENT}",
    "fewer rows": f"ValueError: X: {DIFFERENT}",
    "sample_weight": f"ValueError: sample_weight: {DIFFERENT}",
    "validation_data": f"ValueError: validation_data: {DIFFERENT}",
    "epochs": f"ValueError: epochs: {SAME} rank 0 has 2, rank 2 has 3",
    "batch_size": f"ValueError: batch_size: {SAME} rank 0 has 16, rank 2 has 17",
    "callbacks": f"ValueError: callbacks (without rank_zero_only): {SAME} rank 0 has none, rank 2 has EarlyStopping",
    "seed": f"ValueError: model seed: {SAME} rank 0 has 0, rank 2 has 1",
    "weights": f"ValueError: model/2.weight: {DIFFERENT}",
    "layers": f"ValueError: model layers: {DIFFERENT}",
    "dtype": f"ValueError: model dtype: {SAME} rank 0 has float32, rank 2 has float64",
    "optimizer": f'ValueError: optimizer: {SAME} rank 0 has {{"minidl": ["SGD", {{"lr": 0.1',
    "clip": f'ValueError: clip: {SAME} rank 0 has {{"clip_norm": null',
    "shuffle": f"ValueError: shuffle: {SAME} rank 0 has true, rank 2 has false",
    "validation_split": f"ValueError: validation_split: {SAME} rank 0 has 0.2, rank 2 has 0.3",
    "gradient_accumulation_steps": f"ValueError: gradient_accumulation_steps: {SAME} rank 0 has 1, rank 2 has 2",
    "velocity": f"ValueError: update/velocity/2.weight: {DIFFERENT}",
    "steps": f"ValueError: steps done: {SAME} rank 0 has 0, rank 2 has 3",
    "rate": f"ValueError: learning rate: {SAME} rank 0 has 0.1, rank 2 has 0.5",
    "called": f"ValueError: called: {SAME} rank 0 has fit, rank 2 has train_batch",
    "wrong y": ("InputError: y: expected labels", "InputError: rank 2 of 3: InputError: y: expected labels"),
    "wrong X": ("InputError: X: expected shape", "InputError: rank 2 of 3: InputError: X: expected shape"),
    "wrong epochs": ("ValueError: epochs: expected", "ValueError: rank 2 of 3: ValueError: epochs: expected"),
    "unseeded": f"ValueError: 3.weight: {SAME} rank 1 has another one than rank 0",
    "callback": ("OSError: no space left", "OSError: rank 2 of 3: OSError: no space left"),
    "odd name": ("OSError: no file caf?", "OSError: rank 2 of 3: OSError: no file caf?"),
    "metric": ("KeyError: 'no such class'", "RuntimeError: rank 2 of 3: KeyError: 'no such class'"),
    "failing rate": ("OSError: no table of rates", "OSError: rank 2 of 3: OSError: no table of rates"),
    "every": f"ValueError: callbacks (without rank_zero_only): {SAME} rank 0 has RateChanger 2, rank 2 has RateChanger",
    "infinite": "FloatingPointError: ",
    "batch": f"ValueError: X: {DIFFERENT}",
    "timeout": f"ValueError: timeout: {SAME} rank 0 has 5.0, rank 2 has 6.0",
    "wrong batch": ("InputError: X: expected at least", "InputError: rank 2 of 3: InputError: X: expected at least"),
    "end": "fine",
}
NOTICES = {
    "python layer": "each of 3 ranks does all of each step: Noise is a layer in NumPy",
    "python step": "each of 3 ranks does all of each step: the optimizer is in Python",
    "few slots": "1 of 3 ranks have nothing to do in steps of 20 examples",
    "alone": "this trainer was made without it, so each rank trains alone",
}


@functools.cache
def errors():
    """Runs all cases on three ranks; returns the error of each by "<rank> <case>"."""
    code, out, err = run(3, "mistakes.py")
    assert code == 0, err
    return dict(line.split(" | ", 1) for line in out.splitlines() if " | " in line)


@needs_mpi
@pytest.mark.parametrize("case", ERRORS)
def test_a_mistake_of_one_rank_is_refused_by_all(case):
    expected = ERRORS[case] if isinstance(ERRORS[case], tuple) else (ERRORS[case], ERRORS[case])
    for rank in range(3):
        assert errors()[f"{rank} {case}"].startswith(expected[rank != 2])


@needs_mpi
def test_only_rank_0_prints_writes_and_runs_observer_callbacks(tmp_path):
    """Except for a trainer without `distributed`. Fits that cannot use all ranks print a notice."""
    code, out, err = run(3, "notices.py", tmp_path)
    assert code == 0, err
    assert [out.count(f"distributed: {notice}") for notice in NOTICES.values()] == [1, 1, 1, 3]
    assert out.count("distributed: ") == 6
    assert out.count("epoch 1/1") == 3 + 3 + 1
    assert (out.count("observing"), out.count("participating")) == (1, 3)
    assert [path.name for path in tmp_path.iterdir()] == ["rank 0"]


@pytest.mark.slow
@needs_mpi
def test_more_ranks_than_slots_are_allowed():
    """Six ranks, batches of one and two slots: see nets.py, "lenet with few tiles"."""
    code, out, err = run(6, "nets.py", "lenet with few tiles")
    assert code == 0, err
    assert len(set(out.splitlines())) == 1 and len(out.splitlines()) == 6


@pytest.mark.parametrize(
    "missing, message",
    [
        ("mpi4py", 'minidl.distributed needs mpi4py: pip install "minidl[mpi]"'),
        ("mpi4py.MPI", "minidl.distributed: mpi4py finds no MPI: take the machine's Open MPI or MPICH, or pip install"),
    ],
)
def test_a_missing_mpi4py_or_mpi_names_what_to_install(missing, message):
    program = f"import sys; sys.modules[{missing!r}] = None\nfrom minidl.distributed import MPI\nMPI()"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.returncode == 1 and f"ImportError: {message}" in found.stderr
