"""One hash of all output bytes for each quantized net: in Python and in C, under any compiler and processor.

    python tests/conformance/c_one_hash.py --nets signal shifts --inputs 100 --builds gcc,     # some seconds
    python tests/conformance/c_one_hash.py                                                    # 1,000 inputs

A column is a net, and a row computes its outputs: `predict_int8` with each instruction set and number of threads, the
NumPy reference, and C by the compilers and on the processors of c_integer.py. A cell is the number of inputs whose
bytes have the hash of the first row: the first ones where a row is slow, and none of nets too large for a core.

Canaries: a half that is rounded to even must change the hash of "shifts", whose scales are powers of two, so that there
are halves. The right shift of a negative number, which C leaves to the compiler, must change the hash of each net if it
is a logical shift, or a division; it must change none if it is arithmetic.
"""

import argparse
import itertools
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import c_integer
import nets
import numpy as np
from c_compilers import DRIVER, WASI, find_clang
from c_cores import INTEGER_CORES, TOOLS, calibration, depthwise, digest, execute, with_biases
from c_export.compiled_programs import half_to_even, scores_of
from c_integer import STRICT

import minidl
import minidl_c
from minidl import Sequential, quantize
from minidl.layers import (
    BatchNorm1D,
    BatchNorm2D,
    Conv1D,
    Conv2D,
    Dense,
    DepthwiseConv1D,
    GlobalAvgPool1D,
    GlobalAvgPool2D,
    ReLU,
    Rescale,
    Residual,
    Sigmoid,
    Tanh,
    Upsample2D,
)
from minidl.quantization import QuantizedModel
from minidl.quantization.program import SumOfProducts

EMULATED, ON_CORES, REFERENCE = 1e9, 2e8, 1e8  # multiply-adds of slow rows, for each net
AVR_INPUTS = 32000  # bytes of inputs in its flash
PREDICT = """
import sys
import numpy as np
from minidl.quantization import QuantizedModel
from minidl_c.runtime.threads import set_thread_choice
set_thread_choice(False)
net, q = QuantizedModel.load(sys.argv[1]), np.load(sys.argv[2])
sys.stdout.buffer.write(net.predict_int8(q, int(sys.argv[3]), quantized=True).tobytes())
"""
AVR_MAIN = """
#include <avr/io.h>
#include <avr/pgmspace.h>
#include "net.h"
static const int8_t inputs[][NET_INPUTS] PROGMEM = {
%s
};
static int8_t x[NET_INPUTS], scores[NET_OUTPUTS];
static void put(int c) { while (!(UCSR0A & (1 << UDRE0))) {} UDR0 = (uint8_t)c; }
static void put_hexadecimal(int n) { put(n < 10 ? '0' + n : 'a' + n - 10); }
int main(void) {
  UCSR0B = 1 << TXEN0;
  for (unsigned i = 0; i < sizeof inputs / NET_INPUTS; i++) {
    memcpy_P(x, inputs[i], sizeof x);
    net_predict(x, scores);
    put('=');
    for (int k = 0; k < NET_OUTPUTS; k++) {
      put_hexadecimal(scores[k] >> 4 & 15);
      put_hexadecimal(scores[k] & 15);
    }
    put('\\n');
  }
  for (;;) {}
}
"""


def resnet():
    """Returns a small ResNet: sums of branches with a shortcut of their own, and without."""

    def branch(filters, stride=1):
        first = [Conv2D(filters, 3, stride, padding=1), BatchNorm2D(), ReLU()]
        return [*first, Conv2D(filters, 3, padding=1), BatchNorm2D()]

    layers = [Rescale(1 / 255), Conv2D(8, 3, padding=1), ReLU(), Residual(*branch(8)), ReLU()]
    layers += [Residual(*branch(16, 2), shortcut=[Conv2D(16, 1, 2), BatchNorm2D()]), ReLU(), Residual(*branch(16))]
    return Sequential([*layers, ReLU(), GlobalAvgPool2D(), Dense(10)], nets.IMAGE, 0)


def signal():
    """Returns a net of depthwise convolutions for windows of 64 samples of three axes."""
    layers = [Rescale(1 / 128, -1), Conv1D(8, 5, stride=2, padding=2), BatchNorm1D(), ReLU()]
    for filters in (16, 24):
        layers += [DepthwiseConv1D(5, stride=2, padding=2), BatchNorm1D(), ReLU()]
        layers += [Conv1D(filters, 1), BatchNorm1D(), ReLU()]
    return Sequential([*layers, GlobalAvgPool1D(), Dense(6)], (3, 64), 0)


def autoencoder():
    """Returns an autoencoder, whose activations are tables."""
    narrow = [Rescale(1 / 255), Conv2D(8, 3, stride=2, padding=1), Tanh(), Conv2D(4, 3, stride=2, padding=1), Tanh()]
    wide = [Upsample2D(2), Conv2D(8, 3, padding=1), Tanh(), Upsample2D(2), Conv2D(1, 3, padding=1), Sigmoid()]
    return Sequential([*narrow, *wide], nets.IMAGE, 0)


def with_shifts_alone(model):
    """Returns a quantized model in which each factor of sums is the power of two below it: many sums end in a half."""
    program = model.program
    operations = tuple(
        replace(one, multipliers=np.full_like(one.multipliers, 2**30)) if isinstance(one, SumOfProducts) else one
        for one in program.operations
    )
    return QuantizedModel(replace(program, operations=operations), model.input_shape, model.output_shape)


NETS = {
    "LeNet-5": lambda: Sequential(nets.lenet5(), nets.IMAGE, 0),
    "CNN": lambda: Sequential(nets.cnn(), nets.IMAGE, 0),
    "ResNet": resnet,
    "depthwise": depthwise,
    "signal": signal,
    "autoencoder": autoencoder,
    "MLP": lambda: Sequential(nets.mlp(), nets.IMAGE, 0),
    "shifts": lambda: Sequential(nets.lenet5(), nets.IMAGE, 0),
}


@dataclass(frozen=True)
class Net:
    """A quantized net, its inputs, its bytes as the first row computes them, and the folder of its files."""

    name: str
    model: QuantizedModel
    inputs: np.ndarray
    outputs: np.ndarray
    folder: Path

    @property
    def weights(self):
        return sum(one.weights.nbytes for one in self.model.program.operations if isinstance(one, SumOfProducts))

    def count(self, multiply_adds):
        """Returns the number of inputs that take about this number of multiply-adds."""
        return min(len(self.inputs), max(1, round(multiply_adds / self.model.program.multiply_adds)))

    def cell(self, data):
        """Returns what a row prints for these bytes, and whether they are those of the first inputs."""
        n = len(data) // self.outputs[0].nbytes
        equal = n > 0 and digest(data) == digest(self.outputs[:n].tobytes())
        return f"{n:,}" if equal else "WRONG", equal


def make(name, count, folder):
    """Returns a net with its files: the model, the inputs, and C."""
    rng, place = np.random.default_rng([*name.encode()]), folder / name
    place.mkdir()
    float_model = with_biases(NETS[name](), rng)
    model = quantize(float_model, calibration(float_model.input_shape))
    if name == "shifts":
        model = with_shifts_alone(model)
    inputs = model.quantize_input(rng.integers(0, 256, (count, *model.input_shape), dtype=np.uint8))
    model.save(place / "net.safetensors")
    np.save(place / "inputs.npy", inputs)
    minidl.export_c(model, place / "net.c", header=True)
    (place / "main.c").write_text(f"#define REAL int8_t\n{DRIVER}")
    return Net(name, model, inputs, model.predict_int8(inputs, 1, quantized=True), place)


# ---- rows: each is a function of a net that returns its output bytes, or None if the net is too large


def python(isa, threads):
    def outputs(net):
        command = [sys.executable, "-c", PREDICT, net.folder / "net.safetensors", net.folder / "inputs.npy", threads]
        environment = {"MINIDL_ISA": isa, "PYTHONPATH": str(Path(minidl.__file__).parents[1])}
        return subprocess.run([*map(str, command)], env=environment, capture_output=True, check=True).stdout

    return outputs


def reference(net):
    q = net.inputs[: net.count(REFERENCE)]
    return scores_of(net.model.program)(q.reshape(-1, *net.model.program.values[0].shape)).tobytes()


def compiled(build, level, edit=str):
    """edit: what changes the text of the C file."""

    def outputs(net):
        (net.folder / "edited.c").write_text(edit((net.folder / "net.c").read_text()))
        program, count = net.folder / "program", net.count(EMULATED) if build.runner else len(net.inputs)
        sources = [str(net.folder / name) for name in ("edited.c", "main.c")]
        flags = STRICT if level == "" else (*STRICT, level)
        subprocess.run([*build.compiler, *flags, *sources, "-o", str(program)], check=True, cwd=net.folder.parent)
        data, runner = net.inputs[:count].tobytes(), [*build.runner, str(program)]
        return subprocess.run(runner, input=data, stdout=subprocess.PIPE, check=True, cwd=net.folder.parent).stdout

    return outputs


def on_core(core, *options):
    def outputs(net):
        if net.weights > core.flash_size:
            return None
        n = net.count(ON_CORES)
        result = execute(core, net.folder, "int8_t", net.inputs[:n], *options)
        expected = net.outputs[:n].tobytes()
        return expected if (result.hash, result.test) == (digest(expected), 0) else b""

    return outputs


def on_avr(net):
    place = net.folder / "avr"
    place.mkdir()
    inputs = net.inputs[: AVR_INPUTS // net.inputs[0].size].reshape(-1, net.inputs[0].size)
    rows = ",\n".join("{" + ", ".join(map(str, x)) + "}" for x in inputs)
    (place / "main.c").write_text(AVR_MAIN % rows)
    for name in ("net.c", "net.h"):
        shutil.copy(net.folder / name, place)
    if not c_integer.fits_on_avr(place, "-O2"):
        return None
    lines = (re.search(rb"=([0-9a-f]+)", line) for line in c_integer.avr_lines(place))
    found = itertools.islice(filter(None, lines), len(inputs))
    return bytes.fromhex(b"".join(scores[1] for scores in found).decode())


def all_rows(words):
    """Yields the name of a row, and its function, or what is missing. words: of which builds must have one."""
    folder = Path(minidl_c.__file__).parent
    for isa in minidl_c.cpu.supported():
        if (folder / isa / "build.json").is_file():
            yield from ((f"Python, {isa}, {threads} threads", python(isa, threads)) for threads in (1, 2))
    yield "NumPy, the reference", reference
    for build in c_integer.builds(find_clang()):
        if "sanitizers" in build.name or not any(word in build.name for word in words):
            continue
        levels = ("",) if "tcc" in build.name else ("-O0", "-O1", "-O2", "-O3") if "-O0" in build.name else ("-O2",)
        for level in levels:
            name = f"{build.name.split(', -O0')[0]} {level}"
            yield name, build.missing() or compiled(build, level)
    if words == ("",):
        absent = ", ".join(tool for tool in TOOLS if shutil.which(tool) is None)
        yield from ((" ".join((core.name, *rest)), absent or on_core(core, *rest)) for core, *rest in INTEGER_CORES)
        absent = ", ".join(tool for tool in ("avr-gcc", "simavr") if shutil.which(tool) is None)
        yield "AVR, int of 16 bits", absent or on_avr


# ---- canaries


def rescaled_by(quotient):
    """Returns a function that edits C: it gives `rescale` another quotient of the sum `rounded`, which is signed."""

    def edit(text):
        start = text.index("INLINE int64_t rescale(")
        body = "const int64_t rounded = (int64_t)sum * multiplier + ((int64_t)1 << (shift - 1));"
        head = "INLINE int64_t rescale(int32_t sum, int32_t multiplier, int shift)"
        rest = text[text.index("\n}\n", start) :]
        return f"{text[:start]}{head} {{\n  {body}\n  return {quotient};{rest}"

    return edit


CANARIES = {  # the edit, and the nets whose hash it must change
    "a half to even": (half_to_even, ["shifts"]),
    "a negative number shifted logically": (rescaled_by("(int64_t)((uint64_t)rounded >> shift)"), list(NETS)),
    "a negative number divided": (rescaled_by("rounded / ((int64_t)1 << shift)"), list(NETS)),
    "a negative number shifted arithmetically": (rescaled_by("rounded >> shift"), []),
}


def canaries(made):
    """Prints which hashes each edit changes; returns whether they are those that it must change."""
    seen, gcc = [], c_integer.builds("clang")[1]
    for title, (edit, expected) in CANARIES.items():
        changed = [net.name for net in made if not net.cell(compiled(gcc, "-O2", edit)(net))[1]]
        seen.append(set(expected) & {net.name for net in made} <= set(changed) and (expected or not changed))
        print(f"planted: {title}: another hash of {', '.join(changed) or 'no net'}", flush=True)
    return seen


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", nargs="+", choices=NETS, default=list(NETS))
    parser.add_argument("--inputs", type=int, default=1000)
    parser.add_argument("--builds", nargs="+", default=("",), help="only C whose names contain one of these; no cores")
    args = parser.parse_args()
    began, wrong, rows = time.perf_counter(), 0, 0
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "wasi.mjs").write_text(WASI)
        made = [make(net, args.inputs, Path(name)) for net in args.nets]
        for net in made:
            macs = net.model.program.multiply_adds
            print(f"{net.name:12} {macs:11,} multiply-adds  {digest(net.outputs.tobytes())}", flush=True)
        print(f"\n{'':32}" + "".join(f"{net.name:>12}" for net in made), flush=True)
        for title, row in all_rows(args.builds):
            if isinstance(row, str):
                print(f"{title:32}  left out: no {row}", flush=True)
                continue
            print(f"{title:32}", end="", flush=True)
            for net in made:
                data = row(net)
                text, equal = ("-", True) if data is None else net.cell(data)
                wrong += not equal
                print(f"{text:>12}", end="", flush=True)
            rows += 1
            print(flush=True)
        seen = canaries(made)
    print(
        f"c_one_hash: {len(made)} nets, {args.inputs} inputs, {rows} rows, {wrong} different; "
        f"canaries: {sum(map(bool, seen))} of {len(seen)} noticed; {time.perf_counter() - began:.0f} s"
    )
    return int(wrong > 0 or not all(seen))


if __name__ == "__main__":
    sys.exit(main())
