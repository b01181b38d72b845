"""Exported nets on Cortex-M cores under qemu: bits, instructions and bytes; and what a file's own test sees.

    python tests/conformance/c_cores.py --nets signal --faults 4     # a minute
    python tests/conformance/c_cores.py

A row is a core: the hash of the scores of a net, of floats or quantized, compared with that of `predict`; the result
of the file's own test; the instructions of one prediction, counted by qemu (`-icount`); bytes of flash (code, tables,
and the functions of the compiler's library), of RAM, and of the stack. It needs gcc-arm-none-eabi,
libnewlib-arm-none-eabi and qemu-system-arm (Debian's packages), and says what it leaves out without them.

Then, on this processor: scores for callers that round in another direction; and random nets, half of them with
categories, of which one number in each table is changed, which the file's own test must notice.

Canaries: newlib's fma, and a mode without flushing, must be noticed by the file's own test.
"""

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import c_faults
import c_nets
import numpy as np

import minidl
from minidl import Sequential
from minidl.engine.layer_list import from_spec, to_spec
from minidl.layers import (
    BatchNorm2D,
    Conv1D,
    Conv2D,
    Dense,
    DepthwiseConv2D,
    Flatten,
    GlobalAvgPool2D,
    MaxPool1D,
    ReLU,
    Rescale,
)

HERE = Path(__file__).parent
LINK = """
MEMORY { flash : ORIGIN = %d, LENGTH = %d  ram : ORIGIN = %d, LENGTH = 512K }
SECTIONS {
  .text : { KEEP(*(.vectors)) *(.text*) *(.rodata*) } > flash
  .ARM.exidx : { *(.ARM.exidx*) } > flash
  data_load = LOADADDR(.data);
  .data : { data_start = .; *(.data*) . = ALIGN(8); data_end = .; } > ram AT > flash
  .bss : { bss_start = .; *(.bss*) *(COMMON) . = ALIGN(8); bss_end = .; end = .; } > ram
  stack_top = ORIGIN(ram) + LENGTH(ram);
}
"""
STRICT = ("-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-ffp-contract=off", "-O2")
EXAMPLES = 3
TOOLS = ("arm-none-eabi-gcc", "arm-none-eabi-size", "qemu-system-arm")
REAL = {"float32": "float", "float64": "double", "int8": "int8_t"}


@dataclass(frozen=True)
class Core:
    """A core: options of gcc, the machine of qemu, its memories, and the instructions in a tick of its timer."""

    name: str
    options: tuple[str, ...]
    machine: tuple[str, ...]
    flash: int
    ram: int
    per_tick: float
    flash_size: int = 4 << 20


HARD = ("-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")
CORES = (
    Core("Cortex-M0", ("-mcpu=cortex-m0",),
         ("microbit", "-global", "nrf51-soc.flash-size=0x400000", "-global", "nrf51-soc.sram-size=0x80000"),
         0, 0x20000000, 62.5),
    Core("Cortex-M3", ("-mcpu=cortex-m3",), ("mps2-an385",), 0, 0x20000000, 40),
    Core("Cortex-M4F", ("-mcpu=cortex-m4", *HARD), ("mps2-an386",), 0, 0x20000000, 40),
    Core("Cortex-M33", ("-mcpu=cortex-m33", *HARD), ("mps2-an505",), 0x10000000, 0x38000000, 50),
    Core("Cortex-M55", ("-mcpu=cortex-m55", "-mfloat-abi=hard"), ("mps3-an547",),
         0x10000000, 0x30000000, 31.25, 512 << 10),
)  # fmt: skip
# Those of integers: a core and options; with the instructions of its DSP or vectors, and without
INTEGER_CORES = (*((core,) for core in CORES), *((core, "-DNET_PLAIN_C") for core in (CORES[2], CORES[4])))


def depthwise():
    """Returns a net of depthwise convolutions for 96x96 grey images, of which the input is the largest value."""
    layers = [Rescale(1 / 255), Conv2D(8, 5, stride=4, padding=2), BatchNorm2D(), ReLU()]
    for filters, stride in ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2)):
        layers += [DepthwiseConv2D(3, stride=stride, padding=1), BatchNorm2D(), ReLU()]
        layers += [Conv2D(filters, 1), BatchNorm2D(), ReLU()]
    return Sequential([*layers, GlobalAvgPool2D(), Flatten(), Dense(10)], input_shape=(1, 96, 96), seed=0)


def signal():
    """Returns a net for windows of 64 samples of three axes."""
    layers = [Conv1D(8, 5, padding="same"), ReLU(), MaxPool1D(2), Conv1D(16, 5, padding="same"), ReLU(), MaxPool1D(2)]
    layers += [Conv1D(32, 3, padding="same"), ReLU(), MaxPool1D(4), Flatten(), Dense(6)]
    return Sequential(layers, input_shape=(3, 64), seed=0)


NETS = {
    "LeNet-5": lambda: c_nets.NETS["lenet"].model(),
    "depthwise": depthwise,
    "signal": signal,
}


@dataclass(frozen=True)
class Result:
    """What a core computed."""

    hash: str
    test: int
    instructions: int
    flash: int
    ram: int
    stack: int


def run(core, place, model, inputs, *defines, edit=None):
    """Compiles and runs a net; returns the result. edit: what changes the text of the C file."""
    minidl.export_c(model, place / "net.c", header=True)
    if edit:
        (place / "net.c").write_text(edit((place / "net.c").read_text()))
    return execute(core, place, REAL[inputs.dtype.name], inputs, *defines)


def execute(core, place, real, inputs, *options):
    """Compiles and runs net.c, of numbers of the C type `real`; returns the result."""
    (place / "link.ld").write_text(LINK % (core.flash, core.flash_size, core.ram))
    gcc = ("arm-none-eabi-gcc", *core.options, "-mthumb", *STRICT)
    own, program, alone = (str(place / name) for name in ("net.o", "program.elf", "alone.elf"))
    files = ("-I", str(place), str(HERE / "cortex.c"), str(place / "net.c"), "-o", program)
    flags = ("--specs=rdimon.specs", "-nostartfiles", "-T", str(place / "link.ld"), "-Wl,--no-warn-rwx-segments")
    subprocess.run([*gcc, f"-DREAL={real}", "-DNET_TEST", *options, *flags, *files, "-lm"], check=True)
    subprocess.run([*gcc, *options, "-c", str(place / "net.c"), "-o", own], check=True)
    bare = ("-nostartfiles", "-Wl,--gc-sections,--entry=net_predict,--undefined=net_predict")
    subprocess.run([*gcc, "--specs=nosys.specs", *bare, own, "-o", alone, "-lm"], check=True)
    sizes = subprocess.run([TOOLS[1], alone], check=True, capture_output=True, text=True).stdout.splitlines()[1].split()
    options = ("-display", "none", "-monitor", "none", "-serial", "null", "-icount", "shift=0")
    semihosting = ("-semihosting-config", "enable=on,target=native", "-kernel", program)
    command = [TOOLS[2], "-machine", *core.machine, *options, *semihosting]
    done = subprocess.run(command, input=inputs.tobytes(), capture_output=True, check=False, timeout=600)
    found = re.search(rb"ticks (\d+) stack (\d+) test (\d+)", done.stderr)
    assert found, f"{core.name}: {done.stderr[-1000:]!r}"
    ticks, stack, test = map(int, found.groups())
    text, data, bss = map(int, sizes[:3])
    return Result(digest(done.stdout), test, round(ticks * core.per_tick), text + data, data + bss, stack)


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


def with_biases(model, rng):
    """Returns the model with random biases and running means, which are zeros in a new one."""
    state = model.state_dict()
    for key, array in state.items():
        if key.endswith(("bias", "running_mean")):
            state[key] = rng.standard_normal(array.shape).astype(array.dtype) / 4
    model.load_state_dict(state)
    return model


def nets(names):
    """Yields the nets in both dtypes, with inputs: name, model, inputs."""
    for name in names:
        rng = np.random.default_rng([*name.encode()])
        trained = with_biases(NETS[name](), rng)
        for dtype in ("float32", "float64"):
            model = Sequential(from_spec(to_spec(trained.layers)), trained.input_shape, dtype=dtype)
            model.load_state_dict(trained.state_dict())
            yield name, model, rng.integers(0, 256, (EXAMPLES, *model.input_shape)).astype(dtype)


def compare_cores(names, folder):
    """Prints a table of all nets and cores; returns the number of rows with other bits."""
    wrong = 0
    print(f"{'':44} {'hash':16} {'own test':8} {'instructions':>12} {'flash':>9} {'RAM':>7} {'stack':>5}")
    for name, model, inputs in nets(names):
        if model.dtype == "float32":
            quantized = minidl.quantize(model, calibration(model.input_shape))
            q = quantized.quantize_input(inputs)
            expected = digest(quantized.predict_int8(inputs).tobytes())
            wrong += compare(f"{name}, int8", INTEGER_CORES, quantized, q, expected, folder)
        expected = digest(model.predict(inputs).tobytes())
        cores = CORES if model.dtype == "float32" else CORES[:-1]  # whose memory is too small for the largest tables
        wrong += compare(f"{name}, {model.dtype}", [(core,) for core in cores], model, inputs, expected, folder)
    return wrong


def calibration(shape):
    return np.random.default_rng(0).integers(0, 256, (64, *shape), dtype=np.uint8)


def compare(title, rows, model, inputs, expected, folder):
    """Prints the rows of a net, of a core and options each; returns the number with another hash than `predict`."""
    wrong = 0
    print(f"{title:19} {'predict':24} {expected}", flush=True)
    for core, *options in rows:
        place = folder / f"{title}-{core.name}-{len(options)}"
        place.mkdir()
        r = run(core, place, model, inputs, *options)
        equal = r.hash == expected and r.test == 0
        wrong += not equal
        print(
            f"{'':19} {' '.join((core.name, *options)):24} {r.hash} {r.test:8} {r.instructions:12,} {r.flash:9,} "
            f"{r.ram:7,} {r.stack:5,}{'' if equal else '  DIFFERENT'}",
            flush=True,
        )
    return wrong


def planted(folder):
    """Returns whether a file's own test sees newlib's fma in both dtypes, and a mode that does not flush."""
    edits = {
        "fma": lambda text: text.replace("#define NET_SOFT_FMA", ""),
        "flushing": lambda text: text.replace(" | 1u << 24", ""),
    }
    models = {model.dtype: (model, inputs) for _, model, inputs in nets(["signal"])}
    seen = []
    for core, dtype, edit in ((1, "float32", "fma"), (2, "float64", "fma"), (2, "float32", "flushing")):
        place = folder / f"planted-{core}-{dtype}-{edit}"
        place.mkdir()
        test = run(CORES[core], place, *models[dtype], edit=edits[edit]).test
        print(f"planted: {edit}, {CORES[core].name}, {dtype}: {'seen' if test else 'NOT SEEN'}", flush=True)
        seen.append(test > 0)
    return seen


def compare_modes(folder, on_core):
    """Compares scores for callers of all rounding modes, here and on a Cortex-M4F; returns the number that differ."""
    wrong = 0
    for _, model, inputs in nets(["signal"]):
        place = folder / f"modes-{model.dtype}"
        place.mkdir()
        different = c_faults.rounding_modes(model, inputs, place)
        expected = digest(model.predict(inputs).tobytes())
        for mode in (1, 2, 3) if on_core else ():
            r = run(CORES[2], place, model, inputs, f"-DCALLER_MODE={mode}")
            different += [f"{CORES[2].name}, mode {mode}"] if (r.hash, r.test) != (expected, 0) else []
        where = f"{len(c_faults.BUILDS)} builds{' and the Cortex-M4F' if on_core else ''}"
        print(f"four rounding modes of the caller, {model.dtype}, {where}: {different or 'equal'}", flush=True)
        wrong += len(different)
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", nargs="+", choices=NETS, default=list(NETS))
    parser.add_argument("--faults", type=int, default=20, help="random nets whose tables are changed")
    args = parser.parse_args()
    began, wrong, seen = time.perf_counter(), 0, []
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if absent:
            print(f"Cortex-M0, M3, M4F, M33, M55: left out, no {', '.join(absent)}")
        else:
            wrong += compare_cores(args.nets, folder)
            seen = planted(folder)
        wrong += compare_modes(folder, not absent)
        tables, changes, unseen = c_faults.changed_tables(args.faults, folder)
    print(f"{args.faults} random nets: {changes} numbers of {tables} tables changed, {unseen} not seen by the own test")
    print(
        f"c_cores: {wrong} different, {unseen} changes not seen; canaries: {sum(seen)} of {len(seen)} noticed; "
        f"{time.perf_counter() - began:.0f} s"
    )
    return int(wrong > 0 or unseen > 0 or not all(seen))


if __name__ == "__main__":
    sys.exit(main())
