"""A rank that raises, exits or is killed ends the whole job; its checkpoint resumes on any number of ranks."""

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
from mpi.long_job import EPOCHS, STEPS
from slow_marks import slow, slow_after

pytestmark = needs_mpi
KILLS = int(os.environ.get("MINIDL_KILLS", "2"))
SECONDS = 100  # seconds after which a job counts as hanging


@functools.cache
def uninterrupted():
    """Returns the hash of an uninterrupted training in one process."""
    with tempfile.TemporaryDirectory() as folder:
        return common_hash(run(None, "long_job.py", folder), 1)


def common_hash(found, ranks):
    """Returns the hash that all ranks print at their end; checks that they agree."""
    code, out, err = found
    assert code == 0, err
    ends = re.findall(r"rank \d+ has (\w+ at \d+)", out)
    assert len(ends) == ranks and len(set(ends)) == 1, out
    return ends[0]


def wait_for_failure(job):
    """Returns (stdout, stderr) of a job that must end on its own with an error."""
    try:
        out, err = job.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, 9)
        raise
    assert job.returncode != 0
    return out, err


def wait_for_start(job, ranks):
    """Waits until all ranks have begun their fit; returns their process ids by rank."""
    processes = {}
    while len(processes) < ranks:
        found = re.match(r"rank (\d+) is (\d+)", job.stdout.readline())
        assert found, job.stderr.read()
        processes[int(found[1])] = int(found[2])
    return processes


@pytest.mark.parametrize(
    "fault, message",
    [
        ("raise in a callback", "ZeroDivisionError: something went wrong"),
        ("exit before", "rank 1 has ended"),
        *slow(
            [
                ("raise before", "ZeroDivisionError: something went wrong"),
                ("fail in a step", "MemoryError: no room"),
                ("raise after", "ZeroDivisionError: something went wrong"),
                ("leave before", "rank 1 has ended"),
                ("exit in a callback", "rank 1 of 2: SystemExit: 3"),
            ]
        ),
    ],
)
def test_a_failing_rank_ends_the_job(tmp_path, fault, message):
    _, err = wait_for_failure(start(2, "long_job.py", tmp_path, fault))
    assert message in err and "rank 1" in err, err
    if fault in ("raise in a callback", "exit in a callback", "fail in a step"):  # after step 12, which was saved
        assert common_hash(run(3, "long_job.py", tmp_path), 3) == uninterrupted()


def test_one_rank_stops_all(tmp_path):
    assert common_hash(run(3, "long_job.py", tmp_path, "stop"), 3).endswith("at 12")


def test_one_rank_stops_all_from_another_thread(tmp_path):
    """All ranks stop after the same step: the one running when `should_stop` is set, or the next."""
    _, _, step = common_hash(run(2, "long_job.py", tmp_path, "stop from a thread"), 2).rpartition(" ")
    assert int(step) in (12, 13, 14)


def test_a_sigterm_that_one_rank_ignores_ends_the_job(tmp_path):
    job = start(2, "long_job.py", tmp_path, "ignore", "0.01", "held")
    processes = wait_for_start(job, 2)
    os.kill(processes[0], signal.SIGTERM)
    (tmp_path / "release").touch()
    wait_for_failure(job)
    assert common_hash(run(1, "long_job.py", tmp_path), 1) == uninterrupted()


@pytest.mark.parametrize(
    ("number", "receivers"),
    [
        (signal.SIGTERM, "one rank"),
        (signal.SIGINT, "all ranks"),
        *slow([(signal.SIGTERM, "all ranks"), (signal.SIGINT, "one rank")]),
    ],
)
def test_a_signal_ends_the_job_between_two_steps(tmp_path, receivers, number):
    job = start(2, "long_job.py", tmp_path, "", "0.01", "held")
    processes = wait_for_start(job, 2)
    for process in list(processes.values())[: 1 if receivers == "one rank" else 2]:
        os.kill(process, number)
    (tmp_path / "release").touch()
    _, err = wait_for_failure(job)
    if number == signal.SIGTERM:
        assert "ends all processes" not in err  # every rank gets the signal and exits
        assert common_hash(run(1, "long_job.py", tmp_path), 1) == uninterrupted()


@pytest.mark.parametrize("seed", slow_after(1, range(KILLS)))
def test_a_killed_rank_ends_the_job(tmp_path, seed):
    """The kill comes at any time up to step HELD; the checkpoint resumes on another number of ranks to the same end."""
    draw = random.Random(seed)
    ranks, pause = draw.choice([2, 3, 4]), draw.choice([0, 0.002, 0.02])
    job = start(ranks, "long_job.py", tmp_path, "", pause, "held")
    processes = wait_for_start(job, ranks)
    time.sleep(
        draw.uniform(0, 0.05 + EPOCHS * STEPS * pause)
    )  # the instant depends on the machine, the result does not
    os.kill(processes[draw.randrange(ranks)], signal.SIGKILL)
    wait_for_failure(job)
    other = draw.choice([n for n in (1, 2, 3, 4) if n != ranks])
    assert common_hash(run(other, "long_job.py", tmp_path), other) == uninterrupted()
