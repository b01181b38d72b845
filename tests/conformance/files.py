"""No damaged file loads silently, and no hostile file runs code or exhausts memory or time.

    python tests/conformance/files.py [--kinds model checkpoint] [--mutations 20000] [--hostile 10000] [--seed 0]

For each kind of file: every single-bit flip, every length, random damage, and hostile files with valid digests. Each
must raise FileError; a hostile file may also be valid, and must then survive being saved again. During a load, Python's
audit hook observes every open, import, exec and system call, and the address space is limited. At the end, three seeded
defects must be found.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hostile_files
import numpy as np
from samples import load_checkpoint, save_checkpoint

from minidl import Layer, Sequential, Trainer, quantize
from minidl.layers import AvgPool2D, Conv2D, Dense, Flatten, MaxPool2D, ReLU, Residual, Softmax, SqueezeExcite, Tanh
from minidl.quantization import QuantizedModel
from minidl.saving import safetensors_file

SLACK = 16 * 2**20  # bytes allowed beyond the file and twice its tensors
SECONDS = 1.0  # allowed for one load
HARMLESS = {"builtins.id", "object.__getattr__", "sys._getframe"}  # audit events that NumPy and inspect raise
FRAME_OF_CYTHON = {"compile", "code.__new__"}  # with the limited API, Cython adds its line to a traceback so


class Doubled(Layer):
    """A user-defined layer with an argument of every kind."""

    def __init__(self, options: Any = (1, [2.5, None], {"k": "v"})) -> None:
        self.options = options

    def forward(self, x, training):
        return 2 * x


# ---- kinds of files: KINDS lists all that are tested


@dataclass
class Kind:
    """Functions that create a file of this kind, load it, and save the loaded object."""

    make: Callable[[Path], None]
    load: Callable[[Path], Any]
    save: Callable[[Any, Path], None]


def make_model(path: Path) -> None:
    """Writes a small model file."""
    layers = [Conv2D(2, (2, 1)), ReLU(), Doubled(), Flatten(), Dense(3)]
    Sequential(layers, input_shape=(1, 3, 2), seed=1).save(path)


def make_quantized_model(path: Path) -> None:
    """Writes a small file of integers, with operations of all kinds and a float layer."""
    layers = [
        Conv2D(2, (2, 1)),
        ReLU(),
        AvgPool2D(2, 1),
        MaxPool2D(2, 1, padding=1),
        Residual(Tanh()),
        SqueezeExcite(1),
    ]
    model = Sequential([*layers, Flatten(), Dense(3), Softmax()], input_shape=(1, 4, 3), seed=1)
    quantize(model, np.random.default_rng(0).standard_normal((9, 12)), float_layers=1).save(path)


KINDS = {
    "model": Kind(make_model, lambda path: Sequential.load(path, custom_objects={"Doubled": Doubled}), Sequential.save),
    "checkpoint": Kind(lambda path: save_checkpoint(1, path), load_checkpoint, Trainer.save_checkpoint),
    "quantized model": Kind(make_quantized_model, QuantizedModel.load, QuantizedModel.save),
}


# ---- observing loads


class Watch:
    """Records audit events and the duration of a load."""

    def __init__(self) -> None:
        self.path: str | None = None
        self.opened = 0
        self.found: list[str] = []
        sys.addaudithook(self._on_event)

    def _on_event(self, event: str, args: tuple[Any, ...]) -> None:
        if self.path is None or event in HARMLESS:
            return
        if event == "os.scandir" and args[0] == os.path.dirname(os.path.realpath(self.path)):
            return  # a resume removes temporary files of killed saves
        if event in FRAME_OF_CYTHON and str(args[1]).startswith("minidl_c/"):
            return
        if event == "open" and (args[0] == self.path or isinstance(args[0], int)):  # the file, or its descriptor
            self.opened += isinstance(args[0], str)
        else:
            self.found.append(f"{event} {args!r}"[:200])

    @contextlib.contextmanager
    def record(self, path: Path) -> Iterator[None]:
        """Records during the block; `found` then lists everything that a load must not do."""
        self.path, self.opened, self.found = str(path), 0, []
        begin = time.perf_counter()
        try:
            yield
        finally:
            seconds, self.path = time.perf_counter() - begin, None
            if seconds > SECONDS:
                self.found.append(f"{seconds:.1f} seconds")
            if self.opened > 1:
                self.found.append(f"{self.opened} opens")


WATCH = Watch()


@contextlib.contextmanager
def memory_limited(extra: int) -> Iterator[None]:
    """Limits the address space to `extra` bytes beyond its current size."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + extra, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def attempt(kind: Kind, path: Path, content: bytes) -> tuple[Any, str | None]:
    """Loads a file of this content; returns the object, None if it is refused, and a description of any misbehavior."""
    path.unlink(missing_ok=True)  # truncating and rewriting is slow on some file systems
    path.write_bytes(content)
    loaded, wrong = None, None
    try:
        with memory_limited(3 * len(content) + SLACK), WATCH.record(path):
            loaded = kind.load(path)
    except safetensors_file.FileError as error:
        if str(path) not in str(error):
            wrong = f"an error without the path: {error}"
    except BaseException as error:
        wrong = f"{type(error).__name__}: {error}"[:200]
    return loaded, wrong or "; ".join(WATCH.found) or None


class Campaign:
    """Loads many files of one kind, counts them and collects findings."""

    def __init__(self, kind: Kind, folder: Path) -> None:
        self.kind, self.path = kind, folder / "file.safetensors"
        kind.make(self.path)
        self.good = self.path.read_bytes()
        kind.load(self.path)  # imports happen now, not in a recorded load
        self.loads, self.valid, self.slowest = 0, 0, 0.0
        self.findings: list[str] = []

    def check_damaged(self, what: str, content: bytes) -> None:
        """Checks that a damaged file is refused."""
        loaded, wrong = self._attempt(content)
        if loaded is not None:
            wrong = "loads silently"
        if wrong:
            self.findings.append(f"{what}: {wrong}")

    def check_hostile(self, what: str, content: bytes) -> None:
        """Checks that a file with valid digests is refused, or saves again as the same tensors."""
        loaded, wrong = self._attempt(content)
        if loaded is not None and not wrong:
            self.valid += 1
            wrong = self._saved_again(loaded, _tensors(content))
        if wrong:
            self.findings.append(f"{what}: {wrong}: {content[:3000]!r}")

    def _saved_again(self, loaded: Any, tensors: bytes) -> str | None:
        """Saves the loaded object and loads it again; returns a description of any difference."""
        try:
            self.kind.save(loaded, self.path)
        except (TypeError, ValueError) as error:
            return f"loads as an object that cannot be saved: {error}"
        content = self.path.read_bytes()
        again, wrong = self._attempt(content)
        if not wrong and (again is None or _tensors(content) != tensors):
            return "saves again as different tensors"
        return wrong

    def _attempt(self, content: bytes) -> tuple[Any, str | None]:
        begin = time.perf_counter()
        loaded, wrong = attempt(self.kind, self.path, content)
        self.loads, self.slowest = self.loads + 1, max(self.slowest, time.perf_counter() - begin)
        return loaded, wrong


def _tensors(content: bytes) -> bytes:
    return content[8 + int.from_bytes(content[:8], "little") :]


# ---- damage


def flips(campaign: Campaign) -> None:
    """Flips every single bit."""
    for bit in range(8 * len(campaign.good)):
        content = bytearray(campaign.good)
        content[bit // 8] ^= 1 << bit % 8
        campaign.check_damaged(f"bit {bit}", bytes(content))


def lengths(campaign: Campaign) -> None:
    """Truncates to every length, and extends by some."""
    good = campaign.good
    for size in range(len(good)):
        campaign.check_damaged(f"{size} bytes", good[:size])
    for more in (b"\0", b"\n", b" " * 8, b"\0" * 4096, good, good[-8:]):
        campaign.check_damaged(f"{len(more)} bytes more", good + more)


def mutations(campaign: Campaign, count: int, rng: random.Random) -> None:
    """Damages random blocks."""
    good = campaign.good
    for i in range(count):
        content = bytearray(good)
        for _ in range(rng.choice((1, 1, 2, 5))):
            a, b = sorted(rng.randrange(len(good)) for _ in range(2))
            b = min(b, a + rng.choice((1, 4, 8, 64, 512)))
            at = rng.randrange(len(good))
            match rng.randrange(6):
                case 0:
                    content[a:b] = rng.randbytes(b - a)
                case 1:
                    content[a:b] = bytes(b - a)
                case 2:
                    del content[a:b]
                case 3:
                    content[at:at] = content[a:b]
                case 4:
                    content[at : at + b - a] = content[a:b]
                case 5:
                    content[a:b] = content[a:b][::-1]
        if content != good:
            campaign.check_damaged(f"mutation {i}", bytes(content))


def hostile(campaign: Campaign, count: int, rng: random.Random) -> None:
    """Loads hostile files with valid digests."""
    for i in range(count):
        campaign.check_hostile(f"hostile file {i}", hostile_files.modified_file(campaign.good, rng))
    for name, content in hostile_files.bombs(campaign.good).items():
        campaign.check_hostile(name, content)


# ---- seeded defects


@contextlib.contextmanager
def patched(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Replaces an attribute during the block."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def canaries(folder: Path) -> list[str]:
    """Returns the seeded defects that were not found, of three: no digests, code execution, excess memory."""
    missed = []
    with patched(safetensors_file, "_digests_match", lambda told, found: True):
        without_digests = Campaign(KINDS["model"], folder)
        flips(without_digests)
        if not any("loads silently" in finding for finding in without_digests.findings):
            missed.append("a reader without digests")
    deserialized = safetensors_file._read_tensors

    def compiling(content: bytes) -> Any:
        compile("1", "name", "eval")
        return deserialized(content)

    def greedy(content: bytes) -> Any:
        np.empty(256 * 2**20, np.uint8)  # far more than a thread or an array that ends meanwhile would free
        return deserialized(content)

    defects = (("code that is compiled while loading", "compile", compiling), ("256 MB too many", "Memory", greedy))
    for what, said, reader in defects:
        with patched(safetensors_file, "_read_tensors", reader):
            campaign = Campaign(KINDS["model"], folder)
            gc.collect()  # what a later collection frees would make room below the limit
            campaign.check_hostile("canary", campaign.good)
            if not any(said in finding for finding in campaign.findings):
                missed.append(what)
    return missed


def main() -> int:
    """Runs all checks for each kind and prints figures; returns 1 on any finding."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--mutations", type=int, default=20_000)
    parser.add_argument("--hostile", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind in args.kinds:
            rng = random.Random(args.seed)
            begin = time.monotonic()
            campaign = Campaign(KINDS[kind], folder)
            for part in (flips, lengths):
                part(campaign)
            mutations(campaign, args.mutations, rng)
            gc.collect()
            hostile(campaign, args.hostile, rng)
            for finding in campaign.findings[:20]:
                print(f"  {kind}: {finding}", file=sys.stderr)
            failed |= bool(campaign.findings)
            print(
                f"files: {kind} of {len(campaign.good)} bytes: {8 * len(campaign.good)} flips, {len(campaign.good)} "
                f"lengths, {args.mutations} mutations, {args.hostile} hostile ({campaign.valid} valid): "
                f"{campaign.loads} loads, slowest {campaign.slowest:.2f} s, {len(campaign.findings)} findings, "
                f"{time.monotonic() - begin:.0f} s"
            )
        missed = canaries(folder)
    print(f"files: seeded defects not found: {', '.join(missed) or 'none'}")
    return int(failed or bool(missed))


if __name__ == "__main__":
    sys.exit(main())
