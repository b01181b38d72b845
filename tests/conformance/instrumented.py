"""Copies of minidl built with sanitizers, and Python run in them: what sanitize.py, race.py and poison.py share.

A copy lies in build/<sanitizer>, so the ordinary build is left alone. Its next build compiles only what has changed.
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
COMPILER = "gcc"  # the runtimes below are its own
RUNTIMES = {"address": ("libasan.so", "libubsan.so"), "thread": ("libtsan.so",)}
ADDR_NO_RANDOMIZE = 0x0040000  # ThreadSanitizer's memory map has no place for every random address
OPTIONS = {
    # Python frees little at its end; NumPy asks for more than there is, and may
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=0:exitcode=66:report_signal_unsafe=0",
}


class Copy:
    """minidl built with a sanitizer, "address" (and undefined behaviour) or "thread"."""

    def __init__(self, sanitizer: str, isa: str | None = None) -> None:
        self.sanitizer, self.isa = sanitizer, isa or _isa()
        self.folder = ROOT / "build" / f"{sanitizer}-{self.isa}"

    def build(self) -> None:
        """Brings the copy up to date, also with kernels for the canaries. Ends the program if that fails."""
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
        """Python with this copy first on its path, started in the copy; its output is to be read from `stdout`."""
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
        """The exit code of a Python command in this copy, and all it printed."""
        return finished(self.start(*command, **variables))


def finished(process: subprocess.Popen) -> tuple[int, str]:
    """The exit code of a process, and all it printed."""
    said = process.communicate()[0]
    return process.returncode, said


def _isa() -> str:
    """One instruction set is enough to see a read out of bounds: the one that most machines run."""
    sys.path.insert(0, str(ROOT / "minidl_c"))
    import cpu

    supported = cpu.supported() or cpu.known()[-1:]
    return "v3" if "v3" in supported else supported[0]


def _runtime(name: str) -> str:
    run = subprocess.run([COMPILER, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    path = run.stdout.strip()
    if not os.path.isabs(path):
        sys.exit(f"{COMPILER} has no {name}: install the sanitizers that belong to it")
    return path


def _fixed_addresses() -> None:
    ctypes.CDLL(None).personality(ADDR_NO_RANDOMIZE)  # where it is forbidden, the sanitizer may still find its place


def _mirror(names: tuple[str, ...], source: Path, target: Path) -> None:
    """Copies what has changed and removes what is gone; what was built from the rest stays up to date."""
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
