"""A save that is killed or fails at any system call leaves either the complete old file or the complete new one.

    python tests/conformance/saves.py [--no-strace]

Both for a new file and for one that replaces another: SIGKILL before and after each call, each errno at each call, once
or persistently, and short writes. A failure must raise an OSError that names the path and leave no other file. A
library preloaded before the C library (saves.c, compiled here with $CC or gcc) intercepts the calls; if strace is
installed, it also kills at the system calls themselves. Canary: a save that writes in place must be found.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from samples import load_checkpoint, save_checkpoint

from minidl import Sequential
from minidl.layers import Conv2D, Dense, Flatten
from minidl.saving import atomic

HERE = Path(__file__).parent
KILL_BEFORE, KILL_AFTER, SHORT = -1, -2, -3
ERRORS = ("EIO", "ENOSPC", "EDQUOT", "EROFS", "EACCES", "EINTR", "EMFILE", "ENOMEM", "EINVAL")
NAMED, UNNAMED = 3, 4  # exit codes: an OSError with the path, anything else
STRACED = ("openat", "write", "fsync", "fchmod", "rename", "close")
SAVE = "import sys; from saves import KINDS; KINDS[sys.argv[1]](1, sys.argv[2])"


def model(seed: int) -> Sequential:
    """Returns a small model; different seeds give different bytes."""
    return Sequential([Conv2D(2, 3), Flatten(), Dense(3)], input_shape=(1, 4, 4), seed=seed)


KINDS: dict[str, Callable[[int, Path], None]] = {
    "model": lambda seed, path: model(seed).save(path),
    "checkpoint": save_checkpoint,
}
LOADS: dict[str, Callable[[Path], object]] = {"model": Sequential.load, "checkpoint": load_checkpoint}


@dataclass
class Campaign:
    """Saves of one kind into a folder, each interrupted at a different call."""

    kind: str
    folder: Path
    runs: int = 0
    calls: int = 0
    findings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.path = self.folder / "file.safetensors"
        self.contents = []
        for seed in (0, 1):
            KINDS[self.kind](seed, self.path)
            self.contents.append(self.path.read_bytes())
        LOADS[self.kind](self.path)

    def reset(self, overwrite: bool) -> None:
        """Restores the folder to its state before a save."""
        for entry in self.folder.iterdir():
            entry.unlink()
        if overwrite:
            self.path.write_bytes(self.contents[0])

    def check(self, what: str, overwrite: bool, status: int, may_litter: bool) -> None:
        """Checks the files that a save left; status: the return code of its process, as of subprocess."""
        self.runs += 1
        names = sorted(os.listdir(self.folder))
        now = self.path.read_bytes() if self.path.exists() else None
        old, new = self.contents[0] if overwrite else None, self.contents[1]
        if now not in (old, new):
            self.findings.append(f"{what}: neither the old nor the new file")
        if now is not None:
            try:
                LOADS[self.kind](self.path)
            except ValueError as error:
                self.findings.append(f"{what}: {error}")
        if status not in (0, NAMED, -signal.SIGKILL):
            self.findings.append(f"{what}: ended with {status}, not with an OSError that names the path")
        if status == 0 and now != new:
            self.findings.append(f"{what}: succeeds without the new file")
        if not may_litter and [name for name in names if name != self.path.name]:
            self.findings.append(f"{what}: leaves {names}")


# ---- with the preloaded library


def child(campaign: Campaign, shim: ctypes.CDLL, n: int, action: int, lasting: bool) -> tuple[int, bool]:
    """Saves in a forked child with `action` at call n; returns (status, True if there were fewer than n calls)."""
    pid = os.fork()
    if pid == 0:
        code = UNNAMED
        try:
            shim.arm(n, action, lasting)
            try:
                KINDS[campaign.kind](1, campaign.path)
                code = 0
            finally:
                shim.disarm()
        except OSError as error:
            code = NAMED if error.filename == str(campaign.path) else UNNAMED
        finally:
            os._exit(code + 16 * (not shim.fired()))
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return (status, False) if status < 0 else (status % 16, status >= 16)


def sweep(campaign: Campaign, shim: ctypes.CDLL, name: str, action: int, lasting: bool = False) -> None:
    """Applies `action` at every call of a save, from the first to the last."""
    for overwrite in (False, True):
        for n in range(1, 1000):
            campaign.reset(overwrite)
            status, past = child(campaign, shim, n, action, lasting)
            killed = action in (KILL_BEFORE, KILL_AFTER)
            what = f"{campaign.kind}, {'overwrite' if overwrite else 'first'}, {name} at call {n}"
            campaign.check(what, overwrite, status, may_litter=killed or lasting)
            if past:
                campaign.calls = max(campaign.calls, n - 1)
                if status != 0:
                    campaign.findings.append(f"{what}: an undisturbed save fails")
                break


def sweeps(campaign: Campaign, shim: ctypes.CDLL) -> None:
    """Sweeps over kills, errors and short writes."""
    sweep(campaign, shim, "SIGKILL before", KILL_BEFORE)
    sweep(campaign, shim, "SIGKILL after", KILL_AFTER)
    sweep(campaign, shim, "half a write", SHORT)
    for name in ERRORS:
        code = getattr(errno, name)
        sweep(campaign, shim, name, code)
        if name != "EINTR":  # a persistent EINTR would be retried forever
            sweep(campaign, shim, f"lasting {name}", code, lasting=True)


# ---- with strace


def kill_by_strace(campaign: Campaign) -> None:
    """Kills by strace at the system calls that change files, each save in a new process."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    environment.pop("LD_PRELOAD", None)
    for call in STRACED:
        for overwrite in (False, True):
            for n in range(1, 100):
                campaign.reset(overwrite)
                only = ["-P", str(campaign.folder), "-P", str(campaign.path)] if call in ("openat", "close") else []
                command = ["strace", "-f", "-qq", "-o", "/dev/null", *only, "-e", f"trace={call}"]
                command += ["-e", f"inject={call}:signal=SIGKILL:when={n}", sys.executable, "-c", SAVE]
                command += [campaign.kind, str(campaign.path)]
                done = subprocess.run(command, env=environment, check=False, capture_output=True)
                what = f"{campaign.kind}, {'overwrite' if overwrite else 'first'}, strace kills at {call} {n}"
                killed = done.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)
                campaign.check(what, overwrite, -signal.SIGKILL if killed else done.returncode, may_litter=killed)
                if not killed:
                    break


# ---- main


@contextlib.contextmanager
def in_place() -> Iterator[None]:
    """Plants the defect: saves overwrite the file in place."""

    def write(path: os.PathLike[str], parts: list[memoryview]) -> None:
        with open(path, "wb", buffering=0) as file:
            for part in parts:
                file.write(part)

    before, atomic.write = atomic.write, write
    try:
        yield
    finally:
        atomic.write = before


def restart_preloaded(folder: Path) -> None:
    """Restarts this program with the library preloaded before the C library."""
    library = folder / "saves.so"
    command = [*os.environ.get("CC", "gcc").split(), "-shared", "-fPIC", "-O1", "-o", str(library)]
    subprocess.run([*command, str(HERE / "saves.c"), "-ldl"], check=True)
    environment = {**os.environ, "LD_PRELOAD": str(library), "MINIDL_SAVES_SHIM": str(library)}
    sys.exit(subprocess.run([sys.executable, *sys.argv], env=environment, check=False).returncode)


def main() -> int:
    """Runs all checks and prints figures; returns 1 on any finding."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-strace", action="store_true", help="skip strace even if it is installed")
    args = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        if "MINIDL_SAVES_SHIM" not in os.environ:
            restart_preloaded(folder)
        shim = ctypes.CDLL(os.environ["MINIDL_SAVES_SHIM"])
        failed = False
        for kind in KINDS:
            campaign = Campaign(kind, folder)
            sweeps(campaign, shim)
            if shutil.which("strace") and not args.no_strace:
                kill_by_strace(campaign)
            for finding in campaign.findings[:20]:
                print(f"  {finding}", file=sys.stderr)
            failed |= bool(campaign.findings) or campaign.calls < 8
            print(
                f"saves: {kind}: {campaign.runs} saves stopped or failed at each of {campaign.calls} calls, "
                f"{len(campaign.findings)} findings, {time.monotonic() - begin:.0f} s"
            )
        canary = Campaign("model", folder)
        with in_place():
            sweep(canary, shim, "SIGKILL after", KILL_AFTER)
        missed = not any("neither the old nor the new" in finding for finding in canary.findings)
        print(f"saves: a save in place is {'NOT found' if missed else 'found'}")
    return int(failed or missed)


if __name__ == "__main__":
    sys.exit(main())
