"""Builds minidl_c: every .pyx is translated once and compiled once per instruction set.

    minidl_c/kernels/relu.pyx -> build/.../relu.c -> minidl_c/v3/kernels/relu.so, minidl_c/v4/kernels/relu.so, ...

This file is the only place with compiler flags and Cython directives. Environment variables:

    MINIDL_BUILD_ISA   native (the default), all, or a list of v2,v3,v4 (other processors: base)
    MINIDL_NO_OPENMP   1 builds without OpenMP: every kernel runs on one thread
    MINIDL_SANITIZE    address or thread: builds with sanitizers, slow; see tests/conformance
"""

import json
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import Cython
from Cython.Build import cythonize
from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import OptionError, PlatformError

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    "auto_pickle": False,  # ops and plans hold pointers
}

# Without this flag, compilers contract a*b+c at their discretion, and builds differ in their bits.
SAME_BITS = "-ffp-contract=off"
FLAGS = [  # those that the compiler does not accept are skipped
    SAME_BITS,
    "-O3",
    "-fstrict-overflow",  # overrides Python's -fwrapv, which keeps index arithmetic from being hoisted
    "-fno-wrapv",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-strict-aliasing",  # Cython's code and the kernels read one buffer as several types
    "-fno-predictive-commoning",  # this and the next carry loads between iterations in registers
    "-fno-tree-pre",  # that the register tiles need for their sums
    "-g0",
    "-fno-asynchronous-unwind-tables",  # nothing throws; saves a tenth of the size
    "-Wvla",  # a variable number of sums would lie in memory, not in registers
    "-Wno-psabi",  # vectors of 64 bytes are passed within one file only
    "-Wno-unused-function",  # Cython generates helpers that not every module calls
]
# Appended to the flags above: the last of two conflicting flags wins. For MINIDL_PTHREADS see team.h.
SANITIZE = ["-O1", "-g", "-fno-omit-frame-pointer"]
SANITIZERS = {
    "": [],
    "address": [
        *SANITIZE,
        "-fsanitize=address,undefined,float-cast-overflow",
        "-fno-sanitize-recover=all",
        "-ftrivial-auto-var-init=pattern",
    ],
    "thread": [*SANITIZE, "-fsanitize=thread", "-DMINIDL_PTHREADS"],
}
# Modules without numerical loops, compiled with -Os: a third smaller, and no slower.
FOR_SIZE = {"array_args", "functional", "op", "optimizers.update"}
FOR_SIZE |= {f"kernels.{name}" for name in ("axes", "conv2d_dims", "conv_transpose2d")}
FOR_SIZE |= {f"runtime.{name}" for name in ("arena", "execution_context", "plan", "program", "single_op", "threads")}
# Strip symbols and the gaps between segments: a sixth of a module's bytes.
LINK_FLAGS = ["-Wl,-s", "-Wl,-z,noseparate-code"]
ISA_FLAGS = {
    "v2": ["-march=x86-64-v2", "-mprfchw"],  # prefetchw: a no-op on processors without it
    "v3": ["-march=x86-64-v3", "-mprfchw"],
    "v4": ["-march=x86-64-v4", "-mprfchw", "-mprefer-vector-width=512"],
    "base": [],
}

PACKAGE = Path("minidl_c")
SOURCES = {".".join(path.relative_to(PACKAGE).with_suffix("").parts): path for path in sorted(PACKAGE.rglob("*.pyx"))}
HEADERS = sorted(str(path) for path in PACKAGE.rglob("*.h"))
FOLDERS = sorted({path.parent.name for suffix in ("pyx", "h") for path in PACKAGE.glob(f"*/*.{suffix}")})
SHARED = "minidl_c._cyutility"  # Cython's memoryview code, compiled once instead of in every module
C_FILES = Path("build", f"cython-{Cython.__version__}")
INFO = "build.json"

EMPTY_PROGRAM = "int main(void) { return 0; }\n"
OPENMP_PROGRAM = "#include <omp.h>\nint main(void) { return omp_get_max_threads() < 1; }\n"


def wanted_isas() -> list[str]:
    """Returns the instruction sets that MINIDL_BUILD_ISA asks for."""
    cpu = runpy.run_path(str(PACKAGE / "cpu.py"))
    known, wanted = cpu["known"](), os.environ.get("MINIDL_BUILD_ISA") or "native"
    if wanted == "all":
        return known
    if wanted == "native":
        return (cpu["supported"]() or known[-1:])[:1]
    chosen = [isa.strip() for isa in wanted.split(",")]
    if not set(chosen) <= set(known):
        raise OptionError(
            f"MINIDL_BUILD_ISA={wanted}: expected native, all or a comma list of {', '.join(known)}"
        )
    return [isa for isa in known if isa in chosen]


def extensions(isas: list[str]) -> list[Extension]:
    """Returns one extension per module and instruction set; `build_ext` writes their C files."""
    modules = [
        Extension(f"minidl_c.{isa}.{name}", [str(C_FILES / isa / f"{name}.c")], depends=HEADERS)
        for isa in isas
        for name in SOURCES
    ]
    return [Extension(SHARED, [str(C_FILES / "_cyutility.c")]), *modules]


def translate(force: bool) -> None:
    """Writes the C files that are out of date, or all of them with `force`."""
    shared = C_FILES / "_cyutility.c"
    if not shared.exists():
        C_FILES.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "cython", f"--generate-shared={shared}"]
        subprocess.run(command, check=True)
    directives_changed = os.path.getmtime(__file__)  # Cython only looks at the sources
    written = [C_FILES / path.with_suffix(".c") for path in SOURCES.values()]
    old = any(path.exists() and path.stat().st_mtime < directives_changed for path in written)
    cythonize(
        [Extension(f"minidl_c.{name}", [str(path)]) for name, path in SOURCES.items()],
        build_dir=str(C_FILES),
        compiler_directives=DIRECTIVES,
        shared_utility_qualified_name=SHARED,
        nthreads=os.cpu_count() or 1,
        force=force or old,
    )


def sanitizer_flags() -> list[str]:
    """Returns the flags that MINIDL_SANITIZE asks for."""
    wanted = os.environ.get("MINIDL_SANITIZE", "")
    if wanted not in SANITIZERS:
        raise OptionError(f"MINIDL_SANITIZE={wanted}: expected address or thread")
    return SANITIZERS[wanted]


class Probe:
    """Tests which flags the compiler accepts."""

    def __init__(self, compiler):
        if not hasattr(compiler, "compiler_so"):
            raise PlatformError(f"minidl needs gcc or clang, found {type(compiler).__name__}")
        self.compile, self.link = compiler.compiler_so, compiler.linker_so

    def accepts(self, *flags: str) -> bool:
        """True if the compiler accepts these flags without a warning."""
        return self._builds(EMPTY_PROGRAM, ["-Werror", *flags])

    def links(self, *flags: str) -> bool:
        """True if a program links with these flags."""
        return self._builds(EMPTY_PROGRAM, [], list(flags))

    def openmp(self) -> list[str]:
        """Returns the flags for OpenMP, or none if it is missing or disabled."""
        if os.environ.get("MINIDL_NO_OPENMP", "0") not in ("", "0"):
            return []
        return ["-fopenmp"] if self._builds(OPENMP_PROGRAM, ["-fopenmp"], ["-fopenmp"]) else []

    def version(self) -> str:
        """Returns the first line of the compiler's version message."""
        run = subprocess.run([self.compile[0], "--version"], capture_output=True, text=True)
        return (run.stdout.splitlines() or [self.compile[0]])[0]

    def _builds(self, program: str, flags: list[str], link_flags: list[str] | None = None) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            source, obj = os.path.join(folder, "probe.c"), os.path.join(folder, "probe.o")
            Path(source).write_text(program)
            commands = [[*self.compile, *flags, "-c", source, "-o", obj]]
            if link_flags is not None:
                commands.append([*self.link, obj, "-o", os.path.join(folder, "probe"), *link_flags])
            return all(subprocess.run(c, capture_output=True).returncode == 0 for c in commands)


class BuildKernels(build_ext):
    """Determines the flags, translates, compiles in parallel and keeps what has not changed."""

    def finalize_options(self):
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def run(self):
        if self.editable_mode:  # pip builds in a new folder each time: reuse the modules of the last build
            for there, here in self.get_output_mapping().items():
                if os.path.exists(here):
                    os.makedirs(os.path.dirname(there), exist_ok=True)
                    shutil.copy2(here, there)
        super().run()

    def build_extensions(self):
        builds = self.describe()
        translate(bool(self.force))
        for ext in self.extensions:
            isa, _, name = ext.name.removeprefix("minidl_c.").partition(".")
            if isa in builds:  # one copy of the C file per instruction set: otherwise object files collide
                update(Path(ext.sources[0]), (C_FILES / SOURCES[name].with_suffix(".c")).read_text())
                ext.include_dirs = ["."]  # as in users' kernels: #include "minidl_c/simd/lanes.h"
                ext.define_macros = [("MINIDL_ISA", f'"{isa}"')]
                build, isa_args = builds[isa], builds[isa]["isa_args"]
            else:  # SHARED, for every instruction set
                build, isa_args = builds[ISAS[0]], []
            ext.depends = [*ext.depends, str(info_path(build["isa"]))]
            ext.libraries = ["m"]
            ext.extra_compile_args = build["compile_args"] + isa_args + ["-Os"] * (name in FOR_SIZE)
            ext.extra_link_args = build["link_args"]
        super().build_extensions()
        self.finish(self.build_lib)

    def describe(self) -> dict[str, dict]:
        """Returns compiler and flags for each instruction set, and writes them to a file.

        Every extension depends on that file, so other flags or another compiler trigger a new build.
        """
        probe = Probe(self.compiler)
        for isa in ISAS:
            if not probe.accepts(SAME_BITS, *ISA_FLAGS[isa]):
                flags = " ".join([SAME_BITS, *ISA_FLAGS[isa]])
                raise PlatformError(f"{probe.version()} refuses {flags}; use gcc 11 or clang 12")
        openmp, sanitize = probe.openmp(), sanitizer_flags()
        compile_args = [flag for flag in FLAGS + sanitize if probe.accepts(flag)] + openmp
        link_args = [flag for flag in LINK_FLAGS if probe.links(flag) and not sanitize] + openmp
        link_args += [flag for flag in sanitize if flag.startswith("-fsanitize")]
        info = {
            isa: {
                "isa": isa,
                "compiler": probe.version(),
                "cython": Cython.__version__,
                "openmp": bool(openmp),
                "compile_args": compile_args,
                "isa_args": ISA_FLAGS[isa],
                "link_args": link_args,
            }
            for isa in ISAS
        }
        for isa, build in info.items():
            update(info_path(isa), json.dumps(build, indent=1) + "\n")
        return info

    def copy_extensions_to_source(self):
        for isa in ISAS:
            for path in SOURCES.values():
                (PACKAGE / isa / path.relative_to(PACKAGE).parent).mkdir(parents=True, exist_ok=True)
        super().copy_extensions_to_source()
        self.finish("")

    def finish(self, root: str) -> None:
        """Copies the description into each folder, which marks the folder as complete.

        Removes leftovers of earlier builds: other instruction sets, modules that no longer exist.
        """
        for isa in ISA_FLAGS:
            folder = Path(root, PACKAGE, isa)
            for path in [path for path in folder.rglob("*") if path.is_file()]:
                name = ".".join((*path.relative_to(folder).parent.parts, path.name.partition(".")[0]))
                if isa not in ISAS or name not in SOURCES:
                    path.unlink()
        for isa in ISAS:
            shutil.copy2(info_path(isa), Path(root, PACKAGE, isa, INFO))

    def get_outputs(self):
        infos = [os.path.join(self.build_lib, PACKAGE, isa, INFO) for isa in ISAS]
        return super().get_outputs() + ([] if self.inplace else infos)

    def get_output_mapping(self):
        infos = {
            os.path.join(self.build_lib, PACKAGE, isa, INFO): str(PACKAGE / isa / INFO)
            for isa in (ISAS if self.inplace else [])
        }
        return {**super().get_output_mapping(), **infos}


def info_path(isa: str) -> Path:
    """Returns the path at which the description of a build is kept between builds."""
    return Path("build", isa, INFO)


def update(path: Path, text: str) -> None:
    """Writes the file only if its text changes, so that nothing compiled from it becomes out of date otherwise."""
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":  # Cython's worker processes import this file
    ISAS = wanted_isas()
    setup(
        packages=find_packages(include=["minidl*"]) + [f"minidl_c.{name}" for name in FOLDERS],
        package_data={"": ["*.pyx", "*.pxd", "*.h", "py.typed"], "minidl.c_export": ["c/*.c"]},
        include_package_data=False,
        ext_modules=extensions(ISAS),
        cmdclass={"build_ext": BuildKernels},
        zip_safe=False,
    )
