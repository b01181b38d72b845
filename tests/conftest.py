"""Shared fixtures: random numbers, threads, custom kernels, MNIST if it is cached; skips tests whose oracle is missing.

Prints at the end of the run how many geometries were compared with a reference.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import minidl_c
from minidl_c.runtime.threads import set_thread_choice

collect_ignore = ["conformance"]  # programs, not tests

USER_KERNELS = Path(__file__).parent / "user_kernel"
GENERATED = shutil.ignore_patterns("*.c", "*.so", "build")
COMPARED = pytest.StashKey[Counter]()


def pytest_configure(config):
    config.stash[COMPARED] = Counter()
    set_thread_choice(False)  # predictions use all threads that a test asks for, however little work they have
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background; tests and their processes inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionfinish(session):
    """Sends the counts of a pytest-xdist worker to the process that prints the summary."""
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput["compared"] = [[*key, count] for key, count in config.stash[COMPARED].items()]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Adds the counts of a worker; a crashed worker sent none."""
    for operation, dtype, count in getattr(node, "workeroutput", {}).get("compared", ()):
        node.config.stash[COMPARED][operation, dtype] += count


def pytest_terminal_summary(terminalreporter, config):
    compared = config.stash[COMPARED]
    if compared:
        parts = [f"{name} {dtype} {count}" for (name, dtype), count in sorted(compared.items())]
        terminalreporter.write_line(f"compared geometries: {sum(compared.values())} ({', '.join(parts)})")


def pytest_addoption(parser):
    parser.addoption("--require", default="", help="modules, as a,b,c, which must not be missing")


def pytest_collection_modifyitems(items, config):
    """Skips oracle tests whose module is missing; the default oracle is PyTorch."""
    for item in items:
        oracle = item.get_closest_marker("oracle")
        for name in (oracle.args or ("torch",)) if oracle else ():
            if find_spec(name) is None:
                if name in config.getoption("--require").split(","):
                    raise pytest.UsageError(f"{item.nodeid} compares with {name}, which is missing")
                item.add_marker(pytest.mark.skip(reason=f"compares with {name}, which is missing"))


@pytest.fixture(scope="session")
def compared(pytestconfig):
    """The number of geometries compared with a reference, by operation and dtype."""
    return pytestconfig.stash[COMPARED]


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def frequent_thread_switches():
    """Makes Python switch threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def build_kernels(folder):
    """Builds the kernels of a folder with its setup.py."""
    package = str(Path(minidl_c.__file__).parents[1])
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace", "--parallel", "2"]
    build = subprocess.run(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": package}, capture_output=True, text=True
    )
    assert build.returncode == 0, build.stdout + build.stderr


def import_kernels(folder):
    """Returns the modules of a folder by name."""
    sys.path.insert(0, str(folder))
    try:
        return SimpleNamespace(**{path.stem: import_module(path.stem) for path in sorted(folder.glob("*.pyx"))})
    finally:
        sys.path.remove(str(folder))


@pytest.fixture(scope="session")
def made_once(tmp_path_factory):
    """A function that returns a folder, filled by `make(folder)` once for all workers. Skips on Windows."""
    fcntl = pytest.importorskip("fcntl")
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def make_once(name, make):
        folder = base / name
        with open(folder.with_suffix(".lock"), "w") as lock:  # one worker makes it, the others wait
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                unfinished = tmp_path_factory.mktemp("unfinished") / name
                make(unfinished)
                unfinished.rename(folder)
        return folder

    return make_once


@pytest.fixture(scope="session")
def kernels_of(made_once):
    """A function that returns the modules of kernels by name; `write(folder)` writes sources and setup.py."""

    def import_built(name, write):
        def make(folder):
            write(folder)
            build_kernels(folder)

        return import_kernels(made_once(name, make))

    return import_built


@pytest.fixture(scope="session")
def user(kernels_of):
    """The modules of user_kernel/, built in a folder outside the package."""
    return kernels_of("user_kernel", lambda folder: shutil.copytree(USER_KERNELS, folder, ignore=GENERATED))


@pytest.fixture(scope="session")
def mnist():
    """MNIST from the local cache. Skips if it is not there: a test never downloads."""
    home = Path(os.environ.get("SCIKIT_LEARN_DATA") or "~/scikit_learn_data").expanduser()
    copies = (*home.glob("minidl/mnist_784*"), *home.glob("openml/**/*mnist_784*"))
    if not any(path.is_file() for path in copies):  # a failed fetch leaves folders
        pytest.skip(f"no MNIST in {home}")
    from minidl.datasets import load_mnist

    return load_mnist()
