"""Jobs under the mpiexec that belongs to the Python that runs the tests, or to the system."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
MPIEXEC = shutil.which("mpiexec", path=os.path.dirname(sys.executable)) or shutil.which("mpiexec")
needs_mpi = pytest.mark.skipif(
    MPIEXEC is None or importlib.util.find_spec("mpi4py") is None, reason="needs mpi4py and mpiexec"
)


def is_open_mpi():
    told = subprocess.run([MPIEXEC, "--version"], capture_output=True, text=True)
    return "open" in (told.stdout + told.stderr).lower() and "hydra" not in told.stdout.lower()


def command(ranks, program, *args):
    """What starts a program of this folder, or a path; ranks None: without mpiexec."""
    python = [sys.executable, str(HERE / program), *map(str, args)]
    if ranks is None:
        return python
    return [MPIEXEC, *(["--oversubscribe"] if is_open_mpi() else []), "-n", str(ranks), *python]


def environment():
    """The clone and its tests on the path; Open MPI wants to be told that root may start jobs."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])])
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {**os.environ, "PYTHONPATH": path, **allowed}


def start(ranks, program, *args, cwd=None):
    """A job that runs, in a process group of its own."""
    return subprocess.Popen(
        command(ranks, program, *args),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), cwd=cwd, start_new_session=True,
    )  # fmt: skip


def run(ranks, program, *args, cwd=None, timeout=100):
    """A job from its start to its end: its exit code, and what it wrote."""
    job = start(ranks, program, *args, cwd=cwd)
    try:
        out, err = job.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, 9)
        out, err = job.communicate()
        raise AssertionError(f"{program} with {ranks} ranks hangs:\n{out}\n{err}") from None
    return job.returncode, out, err
