"""Builds minidl_c: every .pyx is translated once and compiled once per instruction set.

    minidl_c/kernels/relu.pyx -> build/.../relu.c -> minidl_c/v3/kernels/relu.so, minidl_c/v4/kernels/relu.so, ...

The modules use CPython's limited API, so one build serves every Python from 3.11 on; free-threaded ones need their own.
This file is the only place with compiler flags and Cython directives. Environment variables:

    MINIDL_BUILD_ISA   native (the default), all, or a list of v2,v3,v4 (other processors: base)
    MINIDL_NO_OPENMP   1 builds without OpenMP, with minidl's own thread pool
    MINIDL_SANITIZE    address or thread: builds with sanitizers, slow; see tests/conformance
"""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from functools import cache, cached_property
from pathlib import Path

import Cython
from Cython.Build import cythonize
from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import OptionError, PlatformError

sys.path.insert(0, os.path.dirname(__file__))
from build_tools.commit import commit
from build_tools.compiler import Probe
from build_tools.reproducible import ReproducibleSdist, ReproducibleWheel

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    "auto_pickle": False,  # ops and plans hold pointers
    "freethreading_compatible": True,
}
# The oldest Python that modules run on, as a macro: 3.11 is the first one with buffers in its limited API.
# Free-threaded Pythons have no limited API.
LIMITED_API = None if sysconfig.get_config_var("Py_GIL_DISABLED") else "0x030B0000"

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
    "-Werror=pointer-arith",  # the arrays of a tile have no type in C: arithmetic would count bytes
    "-Wvla",  # a variable number of sums would lie in memory, not in registers
    "-Wno-psabi",  # vectors of 64 bytes are passed within one file only
    "-Wno-unused-function",  # Cython generates helpers that not every module calls
]
# Appended to the flags above: the last of two conflicting flags wins. For MINIDL_EXACT see waiting.h.
SANITIZE = ["-O1", "-g", "-fno-omit-frame-pointer"]
SANITIZERS = {
    "": [],
    "address": [
        *SANITIZE,
        "-fsanitize=address,undefined,float-cast-overflow",
        "-fno-sanitize-recover=all",
        "-ftrivial-auto-var-init=pattern",
    ],
    "thread": [*SANITIZE, "-fsanitize=thread", "-DMINIDL_EXACT"],
}
# Modules without numerical loops, compiled with -Os: a third smaller, and no slower.
FOR_SIZE = {"array_args", "cpu", "functional", "op", "optimizers.update", "runtime.threads"}
FOR_SIZE |= {f"kernels.{name}" for name in ("axes", "conv2d_dims", "conv_transpose2d")}
FOR_SIZE |= {f"runtime.{name}" for name in ("arena", "execution_context", "plan", "program", "schedule", "single_op")}
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
FOLDERS = sorted({path.parent.name for suffix in ("pyx", "h") for path in PACKAGE.glob(f"*/*.{suffix}")})
C_FILES = Path("build", f"cython-{Cython.__version__}")
# Compiled once, for every processor: the choice of the instruction set, and Cython's memoryview code for all modules.
SHARED = "minidl_c._cyutility"
BASELINE = {"minidl_c.cpu": C_FILES / PACKAGE / "cpu.c", SHARED: C_FILES / "_cyutility.c"}
KERNELS = {name: path for name, path in SOURCES.items() if name != "cpu"}
INFO = "build.json"


def known_isas() -> list[str]:
    """Returns the instruction sets of the architecture for which this builds, best first."""
    is_x86 = sysconfig.get_platform().endswith(("x86_64", "amd64"))
    return ["v4", "v3", "v2"] if is_x86 else ["base"]


def wanted_isas(probe: Probe) -> list[str]:
    """Returns the instruction sets that MINIDL_BUILD_ISA asks for."""
    known, wanted = known_isas(), os.environ.get("MINIDL_BUILD_ISA") or "native"
    if wanted == "all" or known == ["base"]:
        return known
    if wanted == "native":
        return [f"v{max(probe.level(), 2)}"]
    chosen = [isa.strip() for isa in wanted.split(",")]
    if not set(chosen) <= set(known):
        raise OptionError(f"MINIDL_BUILD_ISA={wanted}: expected native, all or a comma list of {', '.join(known)}")
    return [isa for isa in known if isa in chosen]


def extension(name: str, source: Path) -> Extension:
    """Returns a module; `build_ext` writes its C file and adds the flags."""
    macros = [("Py_LIMITED_API", LIMITED_API)] if LIMITED_API else []
    return Extension(name, [str(source)], define_macros=macros, py_limited_api=bool(LIMITED_API))


def extensions() -> list[Extension]:
    """Returns one extension per kernel and instruction set, of which `build_ext` builds those that are wanted."""
    modules = [
        extension(f"minidl_c.{isa}.{name}", C_FILES / isa / f"{name}.c") for isa in known_isas() for name in KERNELS
    ]
    return [*(extension(name, source) for name, source in BASELINE.items()), *modules]


def translate(force: bool) -> None:
    """Writes the C files that are out of date, or all of them with `force`."""
    shared = BASELINE[SHARED]
    directives_changed = os.path.getmtime(__file__)  # Cython only looks at the sources
    if not shared.exists() or shared.stat().st_mtime < directives_changed:
        C_FILES.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "cython", "-Xfreethreading_compatible=True", f"--generate-shared={shared}"]
        subprocess.run(command, check=True)
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


def wants_openmp() -> bool:
    """True unless OpenMP is switched off, or invisible to ThreadSanitizer."""
    return os.environ.get("MINIDL_NO_OPENMP", "0") in ("", "0") and os.environ.get("MINIDL_SANITIZE") != "thread"


def sanitizer_flags() -> list[str]:
    """Returns the flags that MINIDL_SANITIZE asks for."""
    wanted = os.environ.get("MINIDL_SANITIZE", "")
    if wanted not in SANITIZERS:
        raise OptionError(f"MINIDL_SANITIZE={wanted}: expected address or thread")
    return SANITIZERS[wanted]


class BuildKernels(build_ext):
    """Determines the flags, translates, compiles in parallel and keeps what has not changed."""

    def finalize_options(self):
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    @cached_property
    def probe(self) -> Probe:
        """The compiler; the first access needs one."""
        return Probe()

    @cached_property
    def isas(self) -> list[str]:
        """The instruction sets to build. The first access needs a compiler, and removes other extensions."""
        isas = wanted_isas(self.probe)
        self.extensions = [ext for ext in self.extensions if ext.name in BASELINE or ext.name.split(".")[1] in isas]
        return isas

    def get_ext_filename(self, fullname):
        name = super().get_ext_filename(fullname)  # setuptools knows the suffix of the Python that builds only
        return name.replace(".abi3.so", ".pyd") if sysconfig.get_platform() == "win-amd64" else name

    def run(self):
        if self.editable_mode:  # pip builds in a new folder each time: reuse the modules of the last build
            for there, here in self.get_output_mapping().items():
                if os.path.exists(here):
                    os.makedirs(os.path.dirname(there), exist_ok=True)
                    shutil.copy2(here, there)
        super().run()

    def build_extensions(self):
        builds = self.describe()  # of the instruction sets in use
        translate(bool(self.force))
        for ext in self.extensions:
            isa, _, name = ext.name.removeprefix("minidl_c.").partition(".")
            if isa in builds:  # one copy of the C file per instruction set: otherwise object files collide
                update(Path(ext.sources[0]), (C_FILES / KERNELS[name].with_suffix(".c")).read_text())
                ext.define_macros = [*ext.define_macros, ("MINIDL_ISA", f'"{isa}"')]
                build, isa_args = builds[isa], builds[isa]["isa_args"]
            else:  # of BASELINE
                build, isa_args = builds[self.isas[0]], []
            ext.depends = [str(info_path(build["isa"])), *included(Path(ext.sources[0]))]
            ext.include_dirs = ["."]  # as in users' kernels: #include "minidl_c/simd/lanes.h"
            ext.libraries = ["m"]
            ext.extra_compile_args = build["compile_args"] + isa_args + ["-Os"] * (name in FOR_SIZE)
            ext.extra_link_args = build["link_args"]
        super().build_extensions()
        self.finish(self.build_lib)

    def describe(self) -> dict[str, dict]:
        """Returns compiler and flags for each instruction set, and writes them to a file.

        Every extension depends on that file, so other flags or another compiler trigger a new build.
        """
        probe = self.probe
        for isa in self.isas:
            if not probe.accepts(SAME_BITS, *ISA_FLAGS[isa]):
                flags = " ".join([SAME_BITS, *ISA_FLAGS[isa]])
                raise PlatformError(f"{probe.version()} refuses {flags}; use gcc 11 or clang 12")
        openmp, sanitize = probe.openmp() if wants_openmp() else [], sanitizer_flags()
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
                "limited_api": LIMITED_API,
                "link_args": link_args,
            }
            for isa in self.isas
        }
        for isa, build in info.items():
            update(info_path(isa), json.dumps(build, indent=1) + "\n")
        return info

    def copy_extensions_to_source(self):
        for isa in self.isas:
            for path in KERNELS.values():
                (PACKAGE / isa / path.relative_to(PACKAGE).parent).mkdir(parents=True, exist_ok=True)
        super().copy_extensions_to_source()
        self.finish("")

    def finish(self, root: str) -> None:
        """Writes the description, with the commit, into each folder, which marks the folder as complete.

        Removes leftovers of earlier builds: other instruction sets, other Pythons, modules that no longer exist.
        """
        kept = {Path(root, self.get_ext_filename(ext.name)) for ext in self.extensions}
        for folder in (Path(root, PACKAGE, isa) for isa in ISA_FLAGS):
            for path in [path for path in folder.rglob("*") if path.is_file() and path not in kept]:
                path.unlink()
        for path in Path(root, PACKAGE).glob("*.so"):
            if path not in kept:
                path.unlink()
        for isa in self.isas:  # the commit is not in the description that extensions depend on: it changes often
            build = json.loads(info_path(isa).read_text()) | {"commit": commit(Path())}
            Path(root, PACKAGE, isa, INFO).write_text(json.dumps(build, indent=1) + "\n")

    def get_outputs(self):
        infos = [os.path.join(self.build_lib, PACKAGE, isa, INFO) for isa in self.isas]
        return super().get_outputs() + ([] if self.inplace else infos)

    def get_output_mapping(self):
        isas = self.isas if self.inplace else []
        infos = {os.path.join(self.build_lib, PACKAGE, isa, INFO): str(PACKAGE / isa / INFO) for isa in isas}
        return {**super().get_output_mapping(), **infos}


def info_path(isa: str) -> Path:
    """Returns the path at which the description of a build is kept between builds."""
    return Path("build", isa, INFO)


@cache
def included(path: Path) -> frozenset[str]:
    """Returns the headers of minidl_c that a C file includes, itself or through others."""
    headers = re.findall(r'^\s*#.*"(minidl_c/[\w/]+\.h)"', path.read_text(encoding="utf-8"), re.M)
    others = (included(Path(header)) for header in headers if Path(header) != path)
    return frozenset(headers).union(*others)


def update(path: Path, text: str) -> None:
    """Writes the file only if its text changes, so that nothing compiled from it becomes out of date otherwise."""
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":  # Cython's worker processes import this file
    setup(
        packages=find_packages(include=["minidl*"]) + [f"minidl_c.{name}" for name in FOLDERS],
        package_data={"": ["*.pyx", "*.pxd", "*.h", "py.typed"], "minidl.c_export": ["c/*.c"]},
        include_package_data=False,
        ext_modules=extensions(),
        options={"bdist_wheel": {"py_limited_api": "cp311"}} if LIMITED_API else {},
        cmdclass={"build_ext": BuildKernels, "bdist_wheel": ReproducibleWheel, "sdist": ReproducibleSdist},
        zip_safe=False,
    )
