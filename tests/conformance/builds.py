"""The bits of other builds: one value per net and dtype for every compiler, kind of threads and processor.

    pool     without OpenMP, with minidl's own thread pool
    clang    clang instead of gcc, that of $CLANG, of the system or of the package ziglang; its build must not warn
    wheel    the wheel for this platform, installed by `make wheel`
    arm64    the wheel for ARM64, emulated by qemu-user; made by `make arm64`

Each row of the table is a net in a dtype, as in same_bits.py; every entry must equal that of the ordinary build.

    python tests/conformance/builds.py                                    # those that can be made here
    python tests/conformance/builds.py clang --threads 1 --tests tests/native/kernels
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from conformance.copies import ROOT, Copy
from conformance.same_bits import DTYPES, ROWS, THREADS, in_a_process, usable_isas

PROGRAM = ROOT / "tests" / "conformance" / "same_bits.py"
WARNING = re.compile(r"[.][ch]:\d+:.*warning:|warning: minidl_c|performance hint")
ARM64 = ROOT / "build" / "arm64"
WHEEL = ROOT / "build" / "wheel-test"
EMULATED_LIMIT = 3600  # seconds of a process


class CompiledCopy(Copy):
    """A copy with all instruction sets that this processor runs, built with other settings."""

    def __init__(self, name: str, **variables: str) -> None:
        self.isas = usable_isas()
        super().__init__(name, MINIDL_BUILD_ISA=",".join(self.isas), **variables)

    def reason_to_skip(self) -> None:
        """Returns None: it can be built wherever minidl can."""

    def prepare(self) -> list[str]:
        """Builds the copy; returns the warnings."""
        self.build()
        return [line for line in self.log.splitlines() if WARNING.search(line)]


class Installed:
    """A wheel that `make` has installed for a Python, or unpacked into a folder."""

    def __init__(self, python: Path, isas: list[str], folder: Path | None = None) -> None:
        self.python, self.isas, self.folder = str(python), isas, folder

    def reason_to_skip(self) -> str | None:
        """Returns why it cannot be used, or None."""
        return None if Path(self.python).exists() else f"there is no {self.python}"

    def prepare(self) -> list[str]:
        """Does nothing: `make` has done it."""
        return []


def clang() -> CompiledCopy:
    """Returns the copy that clang builds."""
    compiler = os.environ.get("CLANG") or shutil.which("clang") or str(ROOT / "build_tools" / "zig-cc")
    return CompiledCopy("clang", CC=compiler, LDSHARED=f"{compiler} -shared", ZIG_TARGET="x86_64-linux-gnu")


def in_wheel(isa: str) -> bool:
    """Returns whether the installed wheel has this instruction set; True if none is installed."""
    return not WHEEL.exists() or any(WHEEL.glob(f"lib/python*/site-packages/minidl_c/{isa}/build.json"))


BUILDS = {
    "pool": lambda: CompiledCopy("pool", MINIDL_NO_OPENMP="1"),
    "clang": clang,
    "wheel": lambda: Installed(WHEEL / "bin" / "python", [isa for isa in usable_isas() if in_wheel(isa)]),
    "arm64": lambda: Installed(ARM64 / "bin" / "python", ["base"], ARM64 / "site"),
}


def compiler_of(build) -> str:
    """Returns the compiler that a build names."""
    code = "import minidl_c; print(minidl_c.build_info()['compiler'])"
    command = [build.python, "-P", "-c", code]
    return subprocess.run(command, env=environment(build, build.isas[0]), capture_output=True, text=True).stdout.strip()


def environment(build, isa: str) -> dict[str, str]:
    """Returns the environment of a process of a build, without settings of threads."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "PYTHONPATH"))}
    return kept | {"MINIDL_ISA": isa} | ({"PYTHONPATH": str(build.folder)} if build.folder else {})


def digest(build, net: str, dtype: str, threads: int, isa: str) -> str:
    """Returns the hash of a net that a process of this build has trained."""
    task = {"net": net, "dtype": dtype, "threads": threads, "seed": 0, "processor": None}
    done = subprocess.run(
        [build.python, "-P", PROGRAM, "--task", json.dumps(task)],
        env=environment(build, isa),
        capture_output=True,
        text=True,
        timeout=EMULATED_LIMIT,
    )
    return done.stdout.strip() or f"failed: {done.stderr.strip().splitlines()[-1:]}"


def run_tests(name: str, build, tests: list[str]) -> int:
    """Runs tests with a build; prints the last line of pytest, and returns its exit code."""
    # The folder of the tests must not contain the source of minidl, which would be imported instead.
    folder = ROOT / "build" / f"tests-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "examples", "benchmarks"):
        source = ROOT / name
        shutil.copytree(source, folder / name) if source.is_dir() else shutil.copy2(source, folder / name)
    began = time.perf_counter()
    command = [build.python, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "-m", "not oracle", *tests]
    done = subprocess.run(
        command, cwd=folder, env=environment(build, build.isas[0]) | {"OMP_WAIT_POLICY": "passive"}, text=True,
        capture_output=True,
    )  # fmt: skip
    lines = done.stdout.strip().splitlines() or [done.stderr]
    print(*(lines if done.returncode else lines[-1:]), sep="\n")
    print(f"  tests: {time.perf_counter() - began:.0f} s", flush=True)
    return done.returncode


def main():
    """Prints the table; exits with 1 after a difference, a warning of a compiler or a failed test."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs="*", metavar="build", help=f"of {', '.join(BUILDS)}; default: all")
    parser.add_argument("--nets", nargs="*", choices=ROWS, default=ROWS)
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=DTYPES)
    parser.add_argument("--threads", nargs="+", type=int, default=THREADS)
    parser.add_argument("--tests", nargs="+", default=[], help="run these tests of pytest as well")
    args = parser.parse_args()
    if unknown := set(args.builds) - set(BUILDS):
        parser.error(f"no build {', '.join(sorted(unknown))}: expected some of {', '.join(BUILDS)}")
    isa = usable_isas()[0]
    rows = [(net, dtype) for net in args.nets for dtype in args.dtypes]
    expected = {(net, dtype): in_a_process(net, dtype, 1, isa) for net, dtype in rows}
    findings, runs = [], 0
    for net, dtype in rows:
        print(f"  {net:10} {dtype}  {expected[net, dtype]}  this build, {isa}", flush=True)
    for name in args.builds or BUILDS:
        build, began = BUILDS[name](), time.perf_counter()
        if reason := build.reason_to_skip():
            print(f"{name}: skipped, {reason}")
            findings += [f"{name}: {reason}"] if args.builds else []  # a build that was asked for
            continue
        findings += [f"{name}: {warning}" for warning in build.prepare()]
        print(f"{name}: {compiler_of(build)}", flush=True)
        different = [
            f"{name} {isa} {threads} threads, {net} {dtype}: {found}"
            for net, dtype in rows
            for isa in build.isas
            for threads in args.threads
            if (found := digest(build, net, dtype, threads, isa)) != expected[net, dtype]
        ]
        count = len(rows) * len(build.isas) * len(args.threads)
        findings, runs = findings + different, runs + count
        seconds = time.perf_counter() - began
        equal = f"{count - len(different)} of {count} equal"
        print(f"{name}: {', '.join(build.isas)}; {equal}, {seconds:.0f} s", flush=True)
        if args.tests and run_tests(name, build, args.tests):
            findings.append(f"{name}: tests failed")
    print(f"builds: {runs} processes, {len(rows)} rows, {len(findings)} findings")
    print(*findings, sep="\n", end="\n" if findings else "")
    sys.exit(bool(findings))


if __name__ == "__main__":
    main()
