"""Copies of minidl built with sanitizers, and Python processes that use them; for sanitize.py, race.py and poison.py.

A copy is in build/<sanitizer>-<isa>, so the ordinary build is not touched. Rebuilding compiles only changed files.
"""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONFORMANCE = Path(__file__).parent
SOURCES = ("minidl", "minidl_c", "tests", "setup.py", "pyproject.toml")
SUFFIXES = {".py", ".pyx", ".pxd", ".h", ".toml"}
COMPILER = "gcc"  # the runtimes below belong to it
RUNTIMES = {"address": ("libasan.so", "libubsan.so"), "thread": ("libtsan.so",)}
ADDR_NO_RANDOMIZE = 0x0040000  # ThreadSanitizer does not support all random addresses
OPTIONS = {
    # Python frees little at exit; tests let NumPy request more memory than there is
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=0:exitcode=66:report_signal_unsafe=0",
}


class Copy:
    """A copy of minidl built with a sanitizer: "address" (with undefined behavior) or "thread"."""

    def __init__(self, sanitizer: str, isa: str | None = None) -> None:
        self.sanitizer, self.isa = sanitizer, isa or _isa()
        self.folder = ROOT / "build" / f"{sanitizer}-{self.isa}"

    def build(self) -> None:
        """Updates and builds the copy and the canary op. Exits if that fails."""
        if shutil.which(COMPILER) is None:
            sys.exit(f"{COMPILER} is needed for a build with sanitizers")
        _mirror(SOURCES, ROOT, self.folder)
        self._setup(self.folder, MINIDL_SANITIZE=self.sanitizer, MINIDL_BUILD_ISA=self.isa)
        canary = self.folder / "build" / "canary"
        _update(ROOT / "tests" / "user_kernel" / "setup.py", canary / "setup.py")
        _update(CONFORMANCE / "canary_op.pyx", canary / "canary_op.pyx")
        self._setup(canary)

    def _setup(self, folder: Path, **variables: str) -> None:
        command = [sys.executable, "setup.py", "build_ext", "--inplace"]
        environment = os.environ | {"CC": COMPILER, "PYTHONPATH": str(self.folder)} | variables
        run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        if run.returncode:
            sys.exit(f"{folder}: the build failed\n{run.stdout[-4000:]}{run.stderr[-4000:]}")

    def start(self, *command: str, **variables: str) -> subprocess.Popen:
        """Starts Python in the copy, which is first on its path; the caller reads `stdout`."""
        path = [self.folder, self.folder / "tests", self.folder / "build" / "canary"]
        environment = os.environ | OPTIONS | {"PYTHONPATH": os.pathsep.join(map(str, path)), "PYTHONMALLOC": "malloc"}
        environment |= {"LD_PRELOAD": " ".join(_runtime(name) for name in RUNTIMES[self.sanitizer])}
        environment |= {"OPENBLAS_NUM_THREADS": "1", "MINIDL_ISA": self.isa, "CC": COMPILER} | variables
        return subprocess.Popen(
            [sys.executable, *command],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            preexec_fn=_fixed_addresses if self.sanitizer == "thread" else None,
        )

    def run(self, *command: str, **variables: str) -> tuple[int, str]:
        """Runs a Python command in this copy; returns its exit code and output."""
        return finished(self.start(*command, **variables))


def finished(process: subprocess.Popen) -> tuple[int, str]:
    """Waits for a process; returns its exit code and output."""
    said = process.communicate()[0]
    return process.returncode, said


def _isa() -> str:
    """Returns the most common instruction set: one is enough to detect out-of-bounds reads."""
    sys.path.insert(0, str(ROOT / "minidl_c"))
    import cpu

    supported = cpu.supported() or cpu.known()[-1:]
    return "v3" if "v3" in supported else supported[0]


def _runtime(name: str) -> str:
    run = subprocess.run([COMPILER, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    path = run.stdout.strip()
    if not os.path.isabs(path):
        sys.exit(f"{COMPILER} has no {name}: install its sanitizer runtimes")
    return path


def _fixed_addresses() -> None:
    ctypes.CDLL(None).personality(ADDR_NO_RANDOMIZE)  # if this is forbidden, the sanitizer may still work


def _mirror(names: tuple[str, ...], source: Path, target: Path) -> None:
    """Copies changed files and removes deleted ones; unchanged files keep their builds."""
    paths = [p for name in names for p in ([source / name] if "." in name else (source / name).rglob("*"))]
    kept = {path.relative_to(source) for path in paths if path.suffix in SUFFIXES}
    for path in kept:
        _update(source / path, target / path)
    for name in names:
        for path in (target / name).rglob("*"):
            if path.suffix in SUFFIXES and path.relative_to(target) not in kept:
                path.unlink()


def _update(source: Path, target: Path) -> None:
    if not target.exists() or target.read_bytes() != source.read_bytes():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
