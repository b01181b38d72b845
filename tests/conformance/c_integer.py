"""Random quantized nets as C of integers: each score of the NumPy reference, in every build, without a report.

    python tests/conformance/c_integer.py --nets 20 --builds gcc     # a minute
    python tests/conformance/c_integer.py                            # 500 nets

A row is a build: a compiler and its options, sanitizers or none, an emulator where it is for another processor, and
the share of the nets that it computes. A program holds a batch of nets, each in a file of its own, whose arena has no
byte more than it needs. Cortex-M cores, with the instructions of their DSP and vectors and without, and an AVR, whose
int has 16 bits, run one net a program. A build whose compiler or emulator is missing is left out, and named: zig, or
Debian's gcc for the processor; see c_compilers.py and c_cores.py. The AVR needs gcc-avr, avr-libc and simavr.

Canaries: a half that is rounded to even, padding of zeros in place of the zero point, another weight, and an access
before the arena must be noticed.
"""

import argparse
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from c_export.compiled_programs import draw_inputs, half_to_even, scores_of, write
from integer_programs import random_program

# isort: split
# after these, because c_nets.py adds a folder with another c_export
from c_compilers import WASI, ZIG, Build, find_clang
from c_cores import INTEGER_CORES, TOOLS, digest, execute
from c_random import MAIN

BATCH, EXAMPLES = 20, 3
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wconversion", "-pedantic", "-Werror")
ADDRESSES = ("-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
LEVELS = (("-O0",), ("-O1",), ("-O2",), ("-O3",))  # of the batches in turn
AVR_MAIN = """
#include <avr/io.h>
int net_test(void);
static void put(int c) { while (!(UCSR0A & (1 << UDRE0))) {} UDR0 = (uint8_t)c; }
int main(void) { UCSR0B = 1 << TXEN0; put('='); put('0' + net_test()); put('\\n'); for (;;) {} }
"""
AVR_MEMORY = 7000  # bytes of tables and arena, of 8 KiB


def builds(clang):
    """Returns the builds that compute batches. clang: the name of its program."""
    integer = "-fsanitize=integer"
    node = ("node", "--no-warnings", "wasi.mjs")
    return [
        Build("gcc, sanitizers, -O0 to -O3", ("gcc", *ADDRESSES)),
        Build("gcc, -O0 to -O3", ("gcc",)),
        Build("gcc -march=native, -O0 to -O3", ("gcc", "-march=native"), share=0.4),
        Build("gcc -funsigned-char -ftrapv", ("gcc", "-funsigned-char", "-ftrapv"), share=0.2),
        Build("gcc -m32", ("gcc", "-m32"), share=0.2),
        Build("clang, sanitizers, -O0 to -O3", (clang, *ADDRESSES, integer), share=0.2),
        Build("clang, -O0 to -O3", (clang,), share=0.2),
        Build("tcc, without GNU C", ("tcc",), share=0.2),
        Build("ARM64, qemu", cross("aarch64-linux"), ("qemu-aarch64",), 0.12),
        Build("riscv64, qemu", cross("riscv64-linux"), ("qemu-riscv64",), 0.12),
        Build("s390x (big-endian), qemu", cross("s390x-linux"), ("qemu-s390x",), 0.12),
        Build("WebAssembly, node", (*ZIG, "-target", "wasm32-wasi"), node),
    ]


def cross(target):
    """Returns the command of a compiler for another processor: zig, or Debian's gcc if zig is missing."""
    if find_spec("ziglang"):
        return *ZIG, "-target", f"{target}-musl"
    return f"{target}-gnu-gcc", "-static"


def drawn(number):
    """Returns a program and its inputs."""
    rng = np.random.default_rng([7, number])
    program = random_program(rng, 12)
    return program, draw_inputs(rng, program, EXAMPLES)


class Batches:
    """The C files of batches of nets, their inputs and the scores of the reference, which are computed once."""

    def __init__(self, folder):
        self.folder, self.known = folder, {}
        (folder / "wasi.mjs").write_text(WASI)

    def batch(self, number, edit=None):
        """Returns the folder, the inputs and the scores. edit: what changes the text of the files."""
        key = (number, edit.__name__ if edit else "")
        if key not in self.known:
            place = self.folder / f"{number}-{key[1]}"
            place.mkdir()
            names, inputs, scores = [f"net{i}" for i in range(BATCH)], [], []
            for i, name in enumerate(names):
                program, q = drawn(number * BATCH + i)
                path = write(program, place / f"{name}.c", arena="argument", header=True)
                path.write_text((edit or str)(path.read_text()))
                inputs.append(q.tobytes())
                scores.append(scores_of(program)(q).tobytes())
            includes = "\n".join(f'#include "{name}.h"' for name in names)
            calls = "\n".join(f"  RUN({name}, {name.upper()}, int8_t);" for name in names)
            (place / "main.c").write_text(MAIN.format(includes=includes, calls=calls, examples=EXAMPLES))
            self.known[key] = place, inputs, scores
        return self.known[key]

    def run(self, build, number, edit=None):
        """Compiles and runs a batch; returns its wrong nets, or what the compiler or a sanitizer says."""
        place, inputs, scores = self.batch(number, edit)
        program = str(place / re.sub(r"\W", "_", build.name))
        sources = [str(place / f"net{i}.c") for i in range(BATCH)]
        level = () if "tcc" in build.compiler else LEVELS[number % len(LEVELS)]
        command = [*build.compiler, *STRICT, *level, *sources, str(place / "main.c"), "-o", program]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.folder)
        if done.returncode or done.stderr:
            return [f"batch {number}: {done.stderr[:2000]}"]
        runner = [*build.runner, program]
        done = subprocess.run(runner, input=b"".join(inputs), capture_output=True, check=False, cwd=self.folder)
        Path(program).unlink()
        if done.returncode or done.stderr:
            return [f"batch {number}: {done.stderr.decode(errors='replace')[:2000]}"]
        ends = list(itertools.accumulate(map(len, scores), initial=0))
        found = [done.stdout[start:end] for start, end in itertools.pairwise(ends)]
        return [f"net {number * BATCH + i} differs" for i in range(BATCH) if found[i] != scores[i]]


def zero_padding(text):
    return text.replace("memset(window, k->zero,", "memset(window, 0,")


def other_weight(text):
    pattern = r"(_weights\[\d+\] = \{\n)(-?\d+)"
    return re.sub(pattern, lambda found: f"{found[1]}{-int(found[2]) // 2 + 1}", text)


def before_arena(text):
    return text.replace("arena + 0", "arena - 1")


def on_cores(count, folder):
    """Computes nets on Cortex-M cores; yields the row and its wrong nets."""
    for core, *options in INTEGER_CORES:
        wrong, place = [], folder / "cores"
        place.mkdir(exist_ok=True)
        for number in range(count):
            program, q = drawn(number)
            write(program, place / "net.c", header=True)
            result = execute(core, place, "int8_t", q, *options)
            if (result.hash, result.test) != (digest(scores_of(program)(q).tobytes()), 0):
                wrong.append(f"net {number} differs")
        yield " ".join((core.name, *options)), wrong


def fits_on_avr(place, *options):
    """Compiles net.c and main.c for an ATmega2560; returns whether it has the memory for them."""
    command = ["avr-gcc", "-mmcu=atmega2560", *STRICT, *options, "net.c", "main.c", "-o", "net.elf"]
    if subprocess.run(command, cwd=place, capture_output=True, check=False).returncode:
        return False
    sizes = subprocess.run(["avr-size", "net.elf"], cwd=place, capture_output=True, text=True, check=True).stdout
    return sum(map(int, sizes.splitlines()[1].split()[1:3])) <= AVR_MEMORY


def avr_lines(place):
    """Yields the lines that this program writes in the simulator."""
    command = ["simavr", "-m", "atmega2560", "-f", "16000000", "net.elf"]
    with subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as simulator:
        try:
            yield from simulator.stdout
        finally:
            simulator.kill()


def on_avr(count, folder):
    """Runs the own test of nets that fit on an ATmega2560; returns the number of nets, and the wrong ones."""
    place, ran, wrong = folder / "avr", 0, []
    place.mkdir()
    (place / "main.c").write_text(AVR_MAIN)
    for number in range(count):
        write(random_program(np.random.default_rng(number), 4), place / "net.c", name="net")
        if not fits_on_avr(place, "-O1", "-DNET_TEST"):
            continue
        line = next((line for line in avr_lines(place) if b"=" in line), b"")
        ran += 1
        if b"=0" not in line:
            wrong.append(f"net {number}: {line!r}")
    return ran, wrong


def small_targets(count, folder):
    """Computes nets on cores and an AVR; prints their rows, and returns the wrong ones."""
    found = []
    if absent := [tool for tool in TOOLS if shutil.which(tool) is None]:
        print(f"{'Cortex-M0, M3, M4F, M33, M55':40} left out: no {', '.join(absent)}", flush=True)
    else:
        for name, wrong in on_cores(count, folder):
            found += report(name, count, wrong)
    if absent := [tool for tool in ("avr-gcc", "simavr") if shutil.which(tool) is None]:
        print(f"{'AVR':40} left out: no {', '.join(absent)}", flush=True)
    else:
        ran, wrong = on_avr(count, folder)
        found += report("AVR, int of 16 bits", ran, wrong)
    return found


def report(name, count, wrong):
    print(f"{name:40} {count:4} nets {'equal' if not wrong else 'WRONG'}", flush=True)
    for text in wrong:
        print(f"  {text}", flush=True)
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", type=int, default=500)
    parser.add_argument("--builds", nargs="+", help="only those whose names contain one of these words; no cores")
    args = parser.parse_args()
    chosen = [b for b in builds(find_clang()) if not args.builds or any(word in b.name for word in args.builds)]
    began, batches, found = time.perf_counter(), -(-args.nets // BATCH), []
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(os.cpu_count()) as pool:
        nets = Batches(Path(name))
        for number in range(batches):
            nets.batch(number)
        for build in chosen:
            if absent := build.missing():
                print(f"{build.name:40} left out: no {absent}", flush=True)
                continue
            numbers = range(max(1, round(batches * build.share)))
            wrong = list(itertools.chain(*pool.map(lambda number, of=build: nets.run(of, number), numbers)))
            found += report(build.name, len(numbers) * BATCH, wrong)
        if not args.builds:
            found += small_targets(min(args.nets, 60), Path(name))
        edits = (half_to_even, zero_padding, other_weight, before_arena)
        seen = [bool(nets.run(builds("clang")[0], 0, edit)) for edit in edits]
    print(
        f"c_integer: {batches * BATCH} nets, {len(found)} findings; canaries: {sum(seen)} of {len(seen)} noticed; "
        f"{time.perf_counter() - began:.0f} s"
    )
    return int(len(found) > 0 or not all(seen))


if __name__ == "__main__":
    sys.exit(main())
