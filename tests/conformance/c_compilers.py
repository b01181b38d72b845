"""Exported nets under many compilers, processors and options: the scores of test images have the bits of `predict`.

    python tests/conformance/c_compilers.py --images 50 --nets lenet every     # some minutes
    python tests/conformance/c_compilers.py                                    # 1,000 images on this processor
    python tests/conformance/c_compilers.py --nets lenet --all-images          # 1,000 on all

A row is a build: a compiler and its options, and an emulator where it is for another processor. It has one hash over
the scores of all nets in both dtypes; `predict` in Python is the first row. Slow builds compute fewer images, and are
compared with the hash of these. A build whose compiler or emulator is missing is left out, and named. clang, tcc,
gcc -m32, node and qemu-user are those of the system; the other targets need `pip install ziglang`.

Canaries: contraction of multiplications and additions must change the hash, and so must one weight.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import c_nets
import numpy as np

import minidl

HERE = Path(__file__).parent
STRICT = ("-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-ffp-contract=off")
ZIG = (sys.executable, "-m", "ziglang", "cc")
DRIVER = """
#include <stdint.h>
#include <stdio.h>
#include "net.h"
static REAL x[NET_INPUTS], scores[NET_OUTPUTS];
int main(void) {
  while (fread(x, sizeof x, 1, stdin) == 1) {
    net_predict(x, scores);
    fwrite(scores, sizeof scores, 1, stdout);
  }
  return 0;
}
"""
WASI = """
import { WASI } from "node:wasi";
import { readFileSync } from "node:fs";
const wasi = new WASI({ version: "preview1", returnOnExit: true });
const module = await WebAssembly.compile(readFileSync(process.argv[2]));
wasi.start(await WebAssembly.instantiate(module, wasi.getImportObject()));
"""


@dataclass(frozen=True)
class Build:
    """A compiler with its options, and what runs the program. share: of the images that it computes."""

    name: str
    compiler: tuple[str, ...]
    runner: tuple[str, ...] = ()
    share: float = 1
    big_endian: bool = False
    libraries: tuple[str, ...] = ("-lm",)

    def missing(self):
        """Returns what is missing for this build; empty if nothing is."""
        if "ziglang" in self.compiler and find_spec("ziglang") is None:
            return "ziglang"
        absent = [tool[0] for tool in (self.compiler, self.runner) if tool and shutil.which(tool[0]) is None]
        if not absent and "-m32" in self.compiler:
            probe = [*self.compiler, "-x", "c", "-", "-o", os.devnull]
            source = "#include <string.h>\nint main(void) { return 0; }"
            if subprocess.run(probe, input=source, text=True, capture_output=True, check=False).returncode:
                return "32-bit libraries"
        return ", ".join(absent)


def builds(clang):
    """Returns all builds. clang: the name of its program."""
    soft = "-DNET_SOFT_FMA"
    zig_wasm = (*ZIG, "-target", "wasm32-wasi")
    return [
        Build("gcc -O0", ("gcc", "-O0"), share=0.1),
        Build("gcc -O2", ("gcc", "-O2")),
        Build("gcc -O3 -march=native", ("gcc", "-O3", "-march=native")),
        Build("gcc -O3 -march=haswell", ("gcc", "-O3", "-march=haswell")),
        Build("gcc -O2, software FMA", ("gcc", "-O2", soft), share=0.2),
        Build("gcc -O2 -m32 -msse2 -mfpmath=sse", ("gcc", "-O2", "-m32", "-msse2", "-mfpmath=sse"), share=0.2),
        Build("clang -O0", (clang, "-O0"), share=0.1),
        Build("clang -O2", (clang, "-O2")),
        Build("clang -O3 -march=native", (clang, "-O3", "-march=native", "-Wno-invalid-feature-combination")),
        Build("clang -O2, software FMA", (clang, "-O2", soft), share=0.2),
        Build("tcc, without GNU C", ("tcc",), share=0.1),
        Build("ARM64, qemu", (*ZIG, "-target", "aarch64-linux-musl", "-O2"), ("qemu-aarch64",), 0.1),
        Build("ARM64, software FMA, qemu",
              (*ZIG, "-target", "aarch64-linux-musl", "-O2", soft), ("qemu-aarch64",), 0.02),
        Build("ARM 32 bit, software FMA, qemu",
              (*ZIG, "-target", "arm-linux-musleabihf", "-O2", soft), ("qemu-arm",), 0.02),
        Build("s390x (big-endian), qemu", (*ZIG, "-target", "s390x-linux-musl", "-O2"), ("qemu-s390x",), 0.02, True),
        Build("riscv64, qemu", (*ZIG, "-target", "riscv64-linux-musl", "-O2"), ("qemu-riscv64",), 0.02),
        Build("WebAssembly, node", (*zig_wasm, "-O2", soft), ("node", "--no-warnings", "wasi.mjs"), 0.2),
        Build("WebAssembly, fma of its library, node", (*zig_wasm, "-O2"), ("node", "--no-warnings", "wasi.mjs"), 0.05),
    ]  # fmt: skip


def find_clang():
    """Returns the name of the program that is clang here."""
    return next((name for name in ("clang", "clang-19", "clang-16", "clang-14") if shutil.which(name)), "clang")


class Nets:
    """Exported nets with their images and the scores of `predict`."""

    def __init__(self, names, images, folder):
        examples, tests, self.are_mnist = c_nets.load_images()
        self.folder, self.scores, self.inputs = folder, {}, {}
        for name in names:
            trained = c_nets.trained(name, examples)
            for dtype in ("float32", "float64"):
                model = c_nets.in_dtype(name, trained, dtype)
                place = folder / f"{name}-{dtype}"
                place.mkdir()
                minidl.export_c(model, place / "net.c", header=True)
                (place / "main.c").write_text(f"#define REAL {'float' if dtype == 'float32' else 'double'}\n{DRIVER}")
                self.inputs[place] = c_nets.as_shape(tests[:images], model.input_shape).astype(dtype)
                self.scores[place] = model.predict(self.inputs[place])
        (folder / "wasi.mjs").write_text(WASI)

    def hash_of_predict(self, share):
        """Returns the hash of the scores of a share of the images."""
        return digest(scores[: count(scores, share)] for scores in self.scores.values())

    def run(self, build, flags=STRICT, source="net.c"):
        """Compiles and runs all nets; returns the hash of their scores, and the number of images."""
        parts = []
        for place, inputs in self.inputs.items():
            program = place / f"{abs(hash((build.name, flags, source)))}.program"
            command = [*build.compiler, *flags, str(place / source), str(place / "main.c"), "-o", str(program)]
            subprocess.run([*command, *build.libraries], check=True, cwd=self.folder)
            n, order = count(inputs, build.share), ">" if build.big_endian else "<"
            stored = inputs.dtype.newbyteorder(order)
            runner = [*build.runner, str(program)]
            data = inputs[:n].astype(stored).tobytes()
            out = subprocess.run(runner, input=data, stdout=subprocess.PIPE, check=True, cwd=self.folder).stdout
            shape = (n, *self.scores[place].shape[1:])
            parts.append(np.frombuffer(out, stored).reshape(shape).astype(inputs.dtype))
        return digest(parts)


def count(images, share):
    return max(1, round(len(images) * share))


def digest(parts):
    hasher = hashlib.sha256()
    for part in parts:
        hasher.update(np.ascontiguousarray(part).tobytes())
    return hasher.hexdigest()[:16]


def canaries(nets):
    """Returns whether contraction, and one other weight, change the hash."""
    native = Build("canary", ("gcc", "-O3", "-march=native"), share=0.05)
    expected = nets.hash_of_predict(native.share)
    contracted = tuple("-ffp-contract=fast" if flag == "-ffp-contract=off" else flag for flag in STRICT)
    for place in nets.inputs:
        text = (place / "net.c").read_text()
        # the file forbids contraction itself
        (place / "contracted.c").write_text(text.replace('#pragma GCC optimize ("fp-contract=off")', ""))
        (place / "wrong.c").write_text(text.replace("{{\n0x3", "{{\n0xb", 1))  # bits of a positive number: its sign
    return nets.run(native, contracted, "contracted.c") != expected, nets.run(native, STRICT, "wrong.c") != expected


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", nargs="+", choices=c_nets.NETS, default=list(c_nets.NETS))
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--builds", nargs="+", help="only those whose names contain one of these words")
    parser.add_argument("--all-images", action="store_true", help="compute all images in slow builds as well")
    args = parser.parse_args()
    chosen = [b for b in builds(find_clang()) if not args.builds or any(word in b.name for word in args.builds)]
    if args.all_images:
        chosen = [replace(build, share=1) for build in chosen]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        nets = Nets(args.nets, args.images, Path(folder))
        kind = "MNIST" if nets.are_mnist else "the 8x8 digits"
        print(f"{', '.join(args.nets)}; float32, float64; {args.images} images of {kind}", flush=True)
        print(f"{'predict':42} {args.images:5} {nets.hash_of_predict(1)}", flush=True)
        absent = {build.name: build.missing() for build in chosen if build.missing()}
        began, wrong = time.perf_counter(), 0
        present = [build for build in chosen if build.name not in absent]
        for build, found in zip(present, pool.map(nets.run, present), strict=True):
            equal = found == nets.hash_of_predict(build.share)
            wrong += not equal
            images = count(range(args.images), build.share)
            print(f"{build.name:42} {images:5} {found} {'equal' if equal else 'DIFFERENT'}", flush=True)
        seen = canaries(nets)
    for name, what in absent.items():
        print(f"{name:42} left out: no {what}")
    print(
        f"c_compilers: {len(present)} builds, {wrong} different, {len(absent)} left out; canaries: "
        f"{sum(seen)} of {len(seen)} noticed; {time.perf_counter() - began:.0f} s"
    )
    return int(wrong > 0 or not all(seen))


if __name__ == "__main__":
    sys.exit(main())
