"""Starts MPI jobs with the mpiexec installed beside the running Python, or with that of the system."""

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
    version = subprocess.run([MPIEXEC, "--version"], capture_output=True, text=True)
    return "open" in (version.stdout + version.stderr).lower() and "hydra" not in version.stdout.lower()


def command(ranks, program, *args):
    """Returns the command that starts a program of this folder, or at a path; ranks=None: without mpiexec."""
    python = [sys.executable, str(HERE / program), *map(str, args)]
    if ranks is None:
        return python
    return [MPIEXEC, *(["--oversubscribe"] if is_open_mpi() else []), "-n", str(ranks), *python]


def environment():
    """Returns the environment of a job: the repository and its tests on the path; Open MPI may run as root."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])])
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {**os.environ, "PYTHONPATH": path, **allowed}


def start(ranks, program, *args, cwd=None):
    """Starts a job in its own process group; returns the process."""
    return subprocess.Popen(
        command(ranks, program, *args),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), cwd=cwd, start_new_session=True,
    )  # fmt: skip


def run(ranks, program, *args, cwd=None, timeout=100):
    """Runs a job to its end; returns (exit code, stdout, stderr). Raises AssertionError if it hangs."""
    job = start(ranks, program, *args, cwd=cwd)
    try:
        out, err = job.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, 9)
        out, err = job.communicate()
        raise AssertionError(f"{program} with {ranks} ranks hangs:\n{out}\n{err}") from None
    return job.returncode, out, err
