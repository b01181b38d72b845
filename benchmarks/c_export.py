"""Exported C files: sizes, what compiling takes, and the time of one image on one thread, compared with `predict` and
onnxruntime; the first call is timed by itself, since it may transform weights.

README.md in this folder describes the method.
"""

import argparse
import ctypes
import os
import re
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
from inference import export_and_open
from measure import Side, alternate, limit_threads, machine, positive, print_machine, settle, spread, write_json
from nets import ALL_NETS
from sides import MinidlPredict, Prediction, ready_sides

import minidl

NETS = ("lenet", "cnn", "mlp", "vgg", "resnet20", "mobilenet")
GCC = ("gcc", "-std=c99", "-ffp-contract=off")
BUILDS = {  # name: options of gcc
    "C, -O3 -march=native": ("-O3", "-march=native"),
    "C, -O3 -march=haswell": ("-O3", "-march=haswell"),
    "C, -O2": ("-O2",),
    "C, -O2, software FMA": ("-O2", "-DNET_SOFT_FMA"),
}
STACK = re.compile(r"net\.c:\d+:\d+:(\w+)\s+(\d+)")


class CPredict(Prediction):
    """The exported file, compiled by gcc as a shared library and called by ctypes."""

    def __init__(self, source, options, image, classes):
        library = source.with_name(f"{abs(hash(options))}.so")
        command = [*GCC, *options, "-shared", "-fPIC", str(source), "-o", str(library), "-lm"]
        subprocess.run(command, check=True)
        self.image, self.scores = np.ascontiguousarray(image), np.zeros((1, classes), np.float32)
        pointers = (ctypes.c_void_p(array.ctypes.data) for array in (self.image, self.scores))
        self.call = partial(ctypes.CDLL(str(library)).net_predict, *pointers)
        began = time.thread_time()
        self.call()
        print(f"first call, {' '.join(options)}: {1e3 * (time.thread_time() - began):.1f} ms", flush=True)

    def predict(self):
        self.call()
        return self.scores


def sizes(source, options):
    """Returns the bytes of the file, of machine code, constants, arena, and the largest frame of the stack; and the
    seconds of processor time, and bytes of memory, that compiling took.
    """
    text = source.read_text()
    object_file = source.with_suffix(".o")
    command = [*GCC, *options, "-fstack-usage", "-c", str(source), "-o", str(object_file)]
    _, status, used = os.wait4(subprocess.Popen(command, cwd=source.parent).pid, 0)
    assert status == 0
    out = subprocess.run(["size", "-A", str(object_file)], capture_output=True, text=True, check=True).stdout
    sections = re.findall(r"^(\.\S+)\s+(\d+)", out, re.M)
    total = {prefix: sum(int(n) for name, n in sections if name.startswith(prefix)) for prefix in (".text", ".rodata")}
    frames = sorted(int(n) for _, n in STACK.findall(source.with_suffix(".su").read_text()))
    arena = int(re.search(r"NET_ARENA (\d+)", text)[1]) * 4
    found = {"text": len(text), "code": total[".text"], "tables": total[".rodata"], "arena": arena, "frame": frames[-1]}
    return found | {"seconds": used.ru_utime + used.ru_stime, "memory": 1024 * used.ru_maxrss}


def measure_net(net, args, folder):
    """Measures one net; returns the entry for the file."""
    print(f"\n{ALL_NETS[net].title}", flush=True)
    model = ALL_NETS[net].model()
    image = np.random.default_rng(0).integers(0, 256, (1, *ALL_NETS[net].image)).astype(np.float32)
    source = folder / "net.c"
    minidl.export_c(model, source)
    makers = {
        "predict": partial(MinidlPredict, model, image),
        "onnxruntime": partial(export_and_open, model, image, 1),
    }
    for name, options in BUILDS.items():
        makers[name] = partial(CPredict, source, options, image, model.output_shape[0])
    scores = model.predict(image)
    ready = ready_sides(makers, lambda side: side.predict(), scores, rtol=1e-3, atol=1e-4 * np.abs(scores).max())
    sides = [Side(name, side.run) for name, side in ready.items()]
    settle(sides, args.steps, args.seconds)
    alternate(sides, args.rounds)
    print(f"{'':26}{'us':>10}{'fastest':>10}{'slowest':>10}{'predict is':>12}{'code':>10}{'frame':>8}")
    found = {}
    for side in sides:
        entry = spread([1000 * ms for ms in side.rounds])
        ratio = side.median / sides[0].median
        row = f"{side.name:26}{entry['median']:10.1f}{entry['smallest']:10.1f}{entry['largest']:10.1f}{ratio:11.2f}x"
        if side.name in BUILDS:
            entry |= {"sizes": sizes(source, BUILDS[side.name])}
            row += f"{entry['sizes']['code']:10,}{entry['sizes']['frame']:8,}"
        print(row, flush=True)
        found[side.name] = entry
    shared = sizes(source, BUILDS["C, -O2"])
    print(f"bytes: C file {shared['text']:,}, tables {shared['tables']:,}, arena {shared['arena']:,}")
    print(f"gcc -O2: {shared['seconds']:.1f} s, {shared['memory'] / 2**20:.0f} MiB")
    return {"net": net, "microseconds": found}


def main():
    """Measures, prints a table for each net, and writes the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", nargs="+", choices=ALL_NETS, default=list(NETS))
    parser.add_argument("--rounds", type=positive, default=15)
    parser.add_argument("--steps", type=positive, default=1000, help="maximum number of calls per round (default 1000)")
    parser.add_argument("--seconds", type=float, default=0.2, help="seconds per round of one side (default 0.2)")
    parser.add_argument("--json", metavar="FILE", help="write all medians to this file")
    args = parser.parse_args()
    limit_threads(1)
    results = {"machine": machine() | {"threads": 1}, "measurements": []}
    print_machine(results["machine"])
    for net in args.nets:
        with tempfile.TemporaryDirectory() as folder:
            results["measurements"].append(measure_net(net, args, Path(folder)))
        write_json(args.json, results)  # after each one: an interrupted run keeps its results


if __name__ == "__main__":
    main()
