"""Runs the programs in benchmarks/."""

import json
import os
import subprocess
import sys

import pytest
from benchmark_programs import FOLDER


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Returns a function that runs a program and returns the finished process. The probe is built once."""
    cache = tmp_path_factory.mktemp("cache")

    def start_program(name, *args):
        command = [sys.executable, str(FOLDER / name), *map(str, args)]
        env = {**os.environ, "PYTHONPATH": str(FOLDER.parent), "XDG_CACHE_HOME": str(cache)}
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)

    return start_program


@pytest.fixture(scope="module")
def run(start):
    """Returns a function that runs a program and returns what it printed, and what it wrote if `json` is requested."""

    def run_program(name, *args, json_file=None):
        done = start(name, *args, *(["--json", json_file] if json_file else []))
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout, json.loads(json_file.read_text()) if json_file else None

    return run_program
