"""What the C compiler accepts, and what its programs find out about this machine."""

import os
import subprocess
import tempfile
from pathlib import Path

from setuptools.errors import PlatformError

from distutils.ccompiler import new_compiler  # isort: skip - setuptools provides distutils
from distutils.sysconfig import customize_compiler  # isort: skip

EMPTY_PROGRAM = "int main(void) { return 0; }\n"
OPENMP_PROGRAM = "#include <omp.h>\nint main(void) { return omp_get_max_threads() < 1; }\n"
LEVEL_PROGRAM = '#include "minidl_c/cpu_level.h"\nint main(void) { return x86_64_level(); }\n'


class Probe:
    """Tests the compiler that setuptools uses: that of CC, or of Python's own build."""

    def __init__(self):
        compiler = new_compiler()
        customize_compiler(compiler)
        if not hasattr(compiler, "compiler_so"):
            raise PlatformError(f"minidl needs gcc or clang, found {type(compiler).__name__}")
        self.compile, self.link, self.link_program = compiler.compiler_so, compiler.linker_so, compiler.linker_exe

    def accepts(self, *flags: str) -> bool:
        """True if the compiler accepts these flags without a warning."""
        return self._builds(EMPTY_PROGRAM, "-Werror", *flags)

    def links(self, *flags: str) -> bool:
        """True if a module links with these flags."""
        return self._builds(EMPTY_PROGRAM, link=[*self.link, *flags])

    def openmp(self) -> list[str]:
        """Returns the flags for OpenMP; none if it is missing."""
        return ["-fopenmp"] if self._builds(OPENMP_PROGRAM, "-fopenmp", link=[*self.link, "-fopenmp"]) else []

    def level(self) -> int:
        """Returns this processor's level of x86-64. Raises PlatformError if compiled programs do not run here."""
        level = self._builds(LEVEL_PROGRAM, "-I.", link=self.link_program, run=True)
        if not 1 <= level <= 4:
            raise PlatformError(
                f"MINIDL_BUILD_ISA=native: programs of {self.compile[0]} do not run here; name the instruction sets"
            )
        return level

    def version(self) -> str:
        """Returns the first line of the compiler's version message."""
        run = subprocess.run([self.compile[0], "--version"], capture_output=True, text=True)
        return (run.stdout.splitlines() or [self.compile[0]])[0]

    def _builds(self, program: str, *flags: str, link: list[str] | None = None, run: bool = False) -> int:
        """Compiles a program, and links it; returns 1 if that succeeds, or with `run` the exit code of the program."""
        with tempfile.TemporaryDirectory() as folder:
            source, obj, linked = (os.path.join(folder, name) for name in ("probe.c", "probe.o", "probe"))
            Path(source).write_text(program)
            commands = [[*self.compile, *flags, "-c", source, "-o", obj]]
            if link is not None:
                commands.append([link[0], obj, "-o", linked, *link[1:]])
            if any(subprocess.run(command, capture_output=True).returncode for command in commands):
                return 0
            return subprocess.run([linked]).returncode if run else 1
