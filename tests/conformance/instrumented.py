"""Copies of minidl built with sanitizers, and processes that use them; for sanitize.py, race.py and poison.py."""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

from conformance.copies import ROOT, Copy, common_isa, update

CONFORMANCE = Path(__file__).parent
COMPILER = "gcc"  # the runtimes below belong to it
RUNTIMES = {"address": ("libasan.so", "libubsan.so"), "thread": ("libtsan.so",)}
ADDR_NO_RANDOMIZE = 0x0040000  # ThreadSanitizer does not support all random addresses
OPTIONS = {
    # Python frees little at exit; tests let NumPy request more memory than there is
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=0:exitcode=66:report_signal_unsafe=0",
}


class InstrumentedCopy(Copy):
    """A copy of minidl built with a sanitizer: "address" (with undefined behavior) or "thread"."""

    def __init__(self, sanitizer: str, isa: str | None = None) -> None:
        self.sanitizer, self.isa = sanitizer, isa or common_isa()
        name = f"{sanitizer}-{self.isa}"
        super().__init__(name, CC=COMPILER, MINIDL_SANITIZE=sanitizer, MINIDL_BUILD_ISA=self.isa)

    def build(self) -> None:
        """Updates and builds the copy and the canary op. Exits if that fails."""
        if shutil.which(COMPILER) is None:
            sys.exit(f"{COMPILER} is needed for a build with sanitizers")
        super().build()
        canary = self.folder / "build" / "canary"
        update(ROOT / "tests" / "user_kernel" / "setup.py", canary / "setup.py")
        update(CONFORMANCE / "canary_op.pyx", canary / "canary_op.pyx")
        status, said = self.run("setup.py", "build_ext", "--inplace", cwd=canary)  # it imports minidl_c
        if status:
            sys.exit(f"{canary}: the build failed\n{said[-4000:]}")

    def path(self) -> list[Path]:
        """Returns the folders of PYTHONPATH."""
        return [*super().path(), self.folder / "build" / "canary"]

    def settings(self) -> dict[str, str]:
        """Returns environment variables of each process: they load the sanitizer before all else."""
        preload = " ".join(_runtime(name) for name in RUNTIMES[self.sanitizer])
        isa = {"MINIDL_ISA": self.isa, "CC": COMPILER}
        return OPTIONS | {"LD_PRELOAD": preload, "PYTHONMALLOC": "malloc", "OPENBLAS_NUM_THREADS": "1"} | isa

    def options(self) -> dict:
        """Returns arguments of Popen for each process."""
        return {"preexec_fn": _fixed_addresses if self.sanitizer == "thread" else None}


def _runtime(name: str) -> str:
    run = subprocess.run([COMPILER, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    path = run.stdout.strip()
    if not os.path.isabs(path):
        sys.exit(f"{COMPILER} has no {name}: install its sanitizer runtimes")
    return path


def _fixed_addresses() -> None:
    ctypes.CDLL(None).personality(ADDR_NO_RANDOMIZE)  # if this is forbidden, the sanitizer may still work
