"""Builds wheels for this platform, and for others with the C compiler of the package ziglang, and checks them.

python build_tools/wheels.py linux-x86_64                # into dist/
python build_tools/wheels.py                             # those of all platforms

That for this platform is compiled by its own compiler: gcc's training steps are up to 1.3 times as fast as those of
zig's clang. Wheels have minidl's own thread pool instead of OpenMP, and every instruction set of their architecture.
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
from conformance.copies import Copy  # noqa: E402

from build_tools import windows  # noqa: E402

DIST = ROOT / "dist"
SOURCE_DATE = "1577836800"  # 1 January 2020, of all files in a wheel, so that two builds give the same bytes


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


def build(name: str, isas: str) -> Path:
    """Builds and checks the wheel of a platform with these instruction sets; returns its path in dist/."""
    target = TARGETS[name]
    variables = {"MINIDL_BUILD_ISA": isas, "MINIDL_NO_OPENMP": "1", "SOURCE_DATE_EPOCH": SOURCE_DATE}
    copy = Copy(f"wheel-{name}")
    copy.update()
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
    run(sys.executable, "-m", "abi3audit", "--strict", wheel)
    if "manylinux" in target.tag:  # auditwheel cannot read musl's libraries on a system with glibc
        run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", fresh, wheel, SOURCE_DATE_EPOCH=SOURCE_DATE)
        wheel.unlink()
    else:
        run(sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag", target.tag, wheel)
    (wheel,) = fresh.glob("*.whl")
    if target.tag not in wheel.name:
        sys.exit(f"{wheel.name}: expected the tag {target.tag}: this system's C library is too new for it")
    for old in DIST.glob(f"*{target.tag}.whl"):
        old.unlink()
    return wheel.replace(DIST / wheel.name)


def main() -> None:
    """Builds the wheels that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []], help=f"of {', '.join(TARGETS)}; default: all")
    parser.add_argument("--isas", default="all", help="instruction sets, as MINIDL_BUILD_ISA; fewer only for tests")
    args = parser.parse_args()
    DIST.mkdir(exist_ok=True)
    for name in args.targets or TARGETS:
        wheel = build(name, args.isas)
        print(f"{wheel.relative_to(ROOT)}: {wheel.stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    main()
