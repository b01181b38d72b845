"""Builds wheels for this platform, and for others with the C compiler of the package ziglang, and checks them.

python build_tools/wheels.py linux-x86_64                # into dist/
python build_tools/wheels.py                             # those of all platforms

Each wheel is built twice, the second time in a new folder, from translation on: the bytes must be equal. That for this
platform is compiled by its own compiler: gcc's training steps are up to 1.3 times as fast as those of zig's clang.
Wheels have minidl's own thread pool instead of OpenMP, and every instruction set of their architecture.
Those for Linux are checked by auditwheel (symbols of glibc), all by abi3audit (symbols of CPython).
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
from conformance.copies import SOURCES, Copy, mirror  # noqa: E402

from build_tools import windows  # noqa: E402
from build_tools.commit import IN_SDIST, commit  # noqa: E402
from build_tools.compare import main as compare  # noqa: E402
from build_tools.reproducible import SOURCE_DATE  # noqa: E402

DIST = ROOT / "dist"


@dataclass(frozen=True)
class Target:
    """A platform: its name for zig, for Python, and as a tag of a wheel."""

    zig: str
    platform: str
    tag: str


TARGETS = {
    "linux-x86_64": Target("x86_64-linux-gnu.2.17", "linux-x86_64", "manylinux_2_17_x86_64"),
    "linux-aarch64": Target("aarch64-linux-gnu.2.17", "linux-aarch64", "manylinux_2_17_aarch64"),
    "musllinux-x86_64": Target("x86_64-linux-musl", "linux-x86_64", "musllinux_1_2_x86_64"),
    "musllinux-aarch64": Target("aarch64-linux-musl", "linux-aarch64", "musllinux_1_2_aarch64"),
    "macos-arm64": Target("aarch64-macos.11.0", "macosx-11.0-arm64", "macosx_11_0_arm64"),
    "macos-x86_64": Target("x86_64-macos.11.0", "macosx-11.0-x86_64", "macosx_11_0_x86_64"),
    "windows-amd64": Target("x86_64-windows-gnu", "win-amd64", "win_amd64"),
}


def run(*command: str | Path, **variables: str) -> None:
    """Runs a command, which may use programs of this Python's environment; exits with its output if it fails."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(command, env=os.environ | variables | {"PATH": path}, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")


def build(copy: Copy, name: str, isas: str) -> Path:
    """Builds the wheel of a platform with these instruction sets in a copy of the source; returns its path."""
    target = TARGETS[name]
    variables = {"MINIDL_BUILD_ISA": isas, "MINIDL_NO_OPENMP": "1", "SOURCE_DATE_EPOCH": str(SOURCE_DATE)}
    if known := commit(ROOT):
        (copy.folder / IN_SDIST).write_text(f"{known}\n", encoding="ascii")
    if name != f"linux-{platform.machine()}":
        compiler = str(ROOT / "build_tools" / "zig-cc")
        linker = f"{compiler} -shared" + (" -undefined dynamic_lookup" if "macos" in name else "")
        variables |= {"CC": compiler, "LDSHARED": linker, "ZIG_TARGET": target.zig}
        variables |= {"_PYTHON_HOST_PLATFORM": target.platform}
    if "windows" in name:
        variables["CC"] += f" -I{windows.headers(copy.folder)}"
        variables["LDSHARED"] += f" {windows.import_library(copy.folder)}"
    fresh = copy.folder / "dist"
    shutil.rmtree(fresh, ignore_errors=True)
    copy.setup(copy.folder, "bdist_wheel", "--dist-dir", str(fresh), **variables)
    (wheel,) = fresh.glob("*.whl")
    if "manylinux" in target.tag:  # auditwheel cannot read musl's libraries on a system with glibc
        date = variables["SOURCE_DATE_EPOCH"]
        run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", fresh, wheel, SOURCE_DATE_EPOCH=date)
        wheel.unlink()
    else:
        run(sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag", target.tag, wheel)
    (wheel,) = fresh.glob("*.whl")
    if target.tag not in wheel.name:
        sys.exit(f"{wheel.name}: expected the tag {target.tag}: this system's C library is too new for it")
    return wheel


def build_and_check(name: str, isas: str, once: bool) -> Path:
    """Builds the wheel of a platform, again unless once, and checks it; returns its path in dist/."""
    copy = Copy(f"wheel-{name}")
    copy.update()
    wheel = build(copy, name, isas)
    run(sys.executable, "-m", "abi3audit", "--strict", wheel)
    if not once:
        again = Copy(f"wheel-{name}-again")
        shutil.rmtree(again.folder, ignore_errors=True)
        mirror(SOURCES, ROOT, again.folder)
        compare(wheel, build(again, name, isas))
    for old in DIST.glob(f"*{TARGETS[name].tag}.whl"):
        old.unlink()
    return wheel.replace(DIST / wheel.name)


def main() -> None:
    """Builds the wheels that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []], help=f"of {', '.join(TARGETS)}; default: all")
    parser.add_argument("--isas", default="all", help="instruction sets, as MINIDL_BUILD_ISA; fewer only for tests")
    parser.add_argument("--once", action="store_true", help="build once, for tests that take long enough")
    args = parser.parse_args()
    DIST.mkdir(exist_ok=True)
    os.umask(0o022)  # auditwheel keeps the permissions of folders that it makes
    for name in args.targets or TARGETS:
        wheel = build_and_check(name, args.isas, args.once)
        print(f"{wheel.relative_to(ROOT)}: {wheel.stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    main()
