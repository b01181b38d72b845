"""A rank that raises, leaves or is killed ends all of them within seconds; what was saved goes on with any number."""

import functools
import os
import random
import re
import signal
import subprocess
import tempfile
import time

import pytest
from mpi.jobs import needs_mpi, run, start
from mpi.lasting import EPOCHS, STEPS
from slow_marks import slow, slow_after

pytestmark = needs_mpi
KILLS = int(os.environ.get("MINIDL_KILLS", "2"))
SECONDS = 100  # after which a job that should end counts as one that hangs


@functools.cache
def uninterrupted():
    """The hash of an undisturbed training, in one process."""
    with tempfile.TemporaryDirectory() as folder:
        return hashes(run(None, "lasting.py", folder), 1)


def hashes(found, ranks):
    """The one hash that all ranks print at their end."""
    code, out, err = found
    assert code == 0, err
    ends = re.findall(r"rank \d+ has (\w+ at \d+)", out)
    assert len(ends) == ranks and len(set(ends)) == 1, out
    return ends[0]


def ended(job):
    """What a job wrote that had to end by itself."""
    try:
        out, err = job.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, 9)
        raise
    assert job.returncode != 0
    return out, err


def begun(job, ranks):
    """The processes of a job, by rank, when all of them have begun their fit."""
    processes = {}
    while len(processes) < ranks:
        found = re.match(r"rank (\d+) is (\d+)", job.stdout.readline())
        assert found, job.stderr.read()
        processes[int(found[1])] = int(found[2])
    return processes


@pytest.mark.parametrize(
    "deed, told",
    [
        ("raise in a callback", "ZeroDivisionError: something went wrong"),
        ("exit before", "rank 1 has ended"),
        *slow(
            [
                ("raise before", "ZeroDivisionError: something went wrong"),
                ("fail in a step", "MemoryError: no room"),
                ("raise after the fit", "ZeroDivisionError: something went wrong"),
                ("leave before", "rank 1 has ended"),
                ("exit in a callback", "rank 1 of 2: SystemExit: 3"),
            ]
        ),
    ],
)
def test_a_rank_that_fails_ends_all(tmp_path, deed, told):
    _, err = ended(start(2, "lasting.py", tmp_path, deed))
    assert told in err and "rank 1" in err, err
    if deed in ("raise in a callback", "exit in a callback", "fail in a step"):  # after step 12, which was saved
        assert hashes(run(3, "lasting.py", tmp_path), 3) == uninterrupted()


def test_one_rank_stops_all(tmp_path):
    assert hashes(run(3, "lasting.py", tmp_path, "stop"), 3).endswith("at 12")


def test_one_rank_stops_all_from_outside(tmp_path):
    """Between the hooks of two steps: all ranks stop after the same step, the current one or the next."""
    _, _, step = hashes(run(2, "lasting.py", tmp_path, "stop from outside"), 2).rpartition(" ")
    assert int(step) in (12, 13, 14)


def test_a_sigterm_that_one_rank_ignores_ends_all(tmp_path):
    job = start(2, "lasting.py", tmp_path, "ignore", "0.01", "held")
    processes = begun(job, 2)
    os.kill(processes[0], signal.SIGTERM)
    (tmp_path / "release").touch()
    ended(job)
    assert hashes(run(1, "lasting.py", tmp_path), 1) == uninterrupted()


@pytest.mark.parametrize(
    ("number", "who"),
    [
        (signal.SIGTERM, "one rank"),
        (signal.SIGINT, "all ranks"),
        *slow([(signal.SIGTERM, "all ranks"), (signal.SIGINT, "one rank")]),
    ],
)
def test_a_signal_ends_all_between_two_steps(tmp_path, who, number):
    job = start(2, "lasting.py", tmp_path, "", "0.01", "held")
    processes = begun(job, 2)
    for process in list(processes.values())[: 1 if who == "one rank" else 2]:
        os.kill(process, number)
    (tmp_path / "release").touch()
    _, err = ended(job)
    if number == signal.SIGTERM:
        assert "ends all processes" not in err  # all of them know, and exit
        assert hashes(run(1, "lasting.py", tmp_path), 1) == uninterrupted()


@pytest.mark.parametrize("seed", slow_after(1, range(KILLS)))
def test_a_rank_that_is_killed_ends_all(tmp_path, seed):
    """At any time up to step HELD; what was saved goes on with another number of ranks, to the same end."""
    draw = random.Random(seed)
    ranks, pause = draw.choice([2, 3, 4]), draw.choice([0, 0.002, 0.02])
    job = start(ranks, "lasting.py", tmp_path, "", pause, "held")
    processes = begun(job, ranks)
    time.sleep(draw.uniform(0, 0.05 + EPOCHS * STEPS * pause))  # what it finds depends on the machine, what follows not
    os.kill(processes[draw.randrange(ranks)], signal.SIGKILL)
    ended(job)
    other = draw.choice([n for n in (1, 2, 3, 4) if n != ranks])
    assert hashes(run(other, "lasting.py", tmp_path), other) == uninterrupted()
