"""Copies of minidl that are built in another way, in build/<name>: the ordinary build is not touched.

Rebuilding compiles only changed files.
"""

import os
import subprocess
import sys
from pathlib import Path

import minidl_c

ROOT = Path(__file__).parents[2]
SOURCES = ("minidl", "minidl_c", "build_tools", "tests", "benchmarks")
SOURCES += ("setup.py", "pyproject.toml", "README.md", "LICENSE")
ISAS = ("v2", "v3", "v4", "base")
SUFFIXES = {".py", ".pyx", ".pxd", ".h", ".toml", ".md", ".c", ""}


class Copy:
    """A copy of minidl. python: the interpreter that builds and runs it; variables: the environment of its build."""

    def __init__(self, name: str, python: str | Path = sys.executable, **variables: str) -> None:
        self.folder, self.python, self.variables = ROOT / "build" / name, str(python), variables

    def build(self) -> None:
        """Updates and builds the copy. Exits if that fails."""
        self.update()
        self.setup(self.folder, **self.variables)

    def update(self) -> None:
        """Copies sources, and the C files into which Cython has translated them."""
        mirror(SOURCES, ROOT, self.folder)
        for path in (ROOT / "build").glob("cython-*/**/*.c"):
            if path.parent.name not in ISAS:
                update(path, self.folder / path.relative_to(ROOT))

    def setup(self, folder: Path, *command: str, **variables: str) -> None:
        """Runs the setup.py of a folder; without a command, it builds the extensions in place."""
        command = [self.python, "setup.py", *(command or ("build_ext", "--inplace"))]
        environment = os.environ | {"PYTHONPATH": str(self.folder)} | variables
        run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        if run.returncode:
            sys.exit(f"{folder}: the build failed\n{run.stdout[-4000:]}{run.stderr[-4000:]}")
        self.log = run.stdout + run.stderr

    def start(self, *command: str, cwd: Path | None = None, **variables: str) -> subprocess.Popen:
        """Starts Python in the copy or in cwd, with the copy first on its path; the caller reads `stdout`."""
        return subprocess.Popen(
            [self.python, *command],
            cwd=cwd or self.folder,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, self.path()))} | self.settings() | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            **self.options(),
        )

    def run(self, *command: str, cwd: Path | None = None, **variables: str) -> tuple[int, str]:
        """Runs a Python command in this copy; returns its exit code and output."""
        return finished(self.start(*command, cwd=cwd, **variables))

    def path(self) -> list[Path]:
        """Returns the folders of PYTHONPATH."""
        return [self.folder, self.folder / "tests"]

    def settings(self) -> dict[str, str]:
        """Returns environment variables of each process."""
        return {}

    def options(self) -> dict:
        """Returns arguments of Popen for each process."""
        return {}


def finished(process: subprocess.Popen) -> tuple[int, str]:
    """Waits for a process; returns its exit code and output."""
    said = process.communicate()[0]
    return process.returncode, said


def common_isa() -> str:
    """Returns the most common instruction set, for what one is enough for."""
    supported = minidl_c.cpu.supported() or minidl_c.cpu.known()[-1:]
    return "v3" if "v3" in supported else supported[0]


def mirror(names: tuple[str, ...], source: Path, target: Path) -> None:
    """Copies changed files and removes deleted ones; unchanged files keep their builds."""
    paths = [path for name in names for path in (source / name, *(source / name).rglob("*"))]
    kept = {path.relative_to(source) for path in paths if path.is_file() and path.suffix in SUFFIXES}
    for path in kept:
        update(source / path, target / path)
    for name in names:
        for path in (target / name).rglob("*"):
            if path.is_file() and path.suffix in SUFFIXES and path.relative_to(target) not in kept:
                path.unlink()


def update(source: Path, target: Path) -> None:
    """Copies a file if it differs, so that a build does not see it as changed otherwise."""
    if not target.exists() or target.read_bytes() != source.read_bytes():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
