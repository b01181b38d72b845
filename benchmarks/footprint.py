"""Footprint: import time, size on disk, memory of a fit, growth of memory over many steps.

README.md in this folder describes the method.
"""

import argparse
import json
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from measure import machine, positive, print_machine, spread, write_json
from nets import NETS

import minidl
import minidl_c

HERE = Path(__file__).parent


def import_times(packages, rounds):
    """Times fresh interpreters that import one package each, alternating; returns milliseconds."""
    found = {package: [] for package in packages}
    for number in range(rounds + 1):
        for package in packages:
            begin = time.perf_counter()
            subprocess.run([sys.executable, "-c", f"import {package}"], check=True)
            if number:  # the first round fills caches
                found[package].append(1000 * (time.perf_counter() - begin))
    return {package: spread(times) for package, times in found.items()}


def measure_imports(peers, rounds):
    """Measures and prints the import time of numpy, of minidl and of the installed peers."""
    found = import_times(["numpy", "minidl", *peers], rounds)
    numpy = found["numpy"]["median"]
    print(f"\nA fresh interpreter that imports one package: ms, {rounds} rounds\n")
    print(f"{'':12}{'median':>10}{'fastest':>10}{'slowest':>10}{'over numpy':>12}")
    for package, ms in found.items():
        over = ms["median"] - numpy
        print(f"{package:12}{ms['median']:10.0f}{ms['smallest']:10.0f}{ms['largest']:10.0f}{over:12.0f}")
    return found


def size_of(path):
    """Returns the bytes of a file, or of all files in a folder except Python's caches."""
    if path.is_file():
        return path.stat().st_size
    return sum(f.stat().st_size for f in path.rglob("*") if f.is_file() and "__pycache__" not in f.parts)


def measure_size():
    """Measures and prints the size of the two packages on disk, with one entry per instruction set."""
    python, compiled = (Path(package.__file__).parent for package in (minidl, minidl_c))
    isas = [folder for folder in sorted(compiled.iterdir()) if (folder / "build.json").is_file()]
    found = {"minidl": size_of(python), "minidl_c, common": size_of(compiled) - sum(map(size_of, isas))}
    found |= {f"minidl_c/{folder.name}": size_of(folder) for folder in isas}
    found["all"] = sum(found.values())
    print("\nSize on disk: MB\n")
    for name, size in found.items():
        print(f"{name:20}{size / 1e6:8.2f}")
    return found


def run_fit_memory(*args):
    """Runs fit_memory.py in a separate process; returns its result."""
    command = [sys.executable, str(HERE / "fit_memory.py"), *map(str, args)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def measure_memory(nets, peers, steps):
    """Measures and prints the peak memory of one epoch at batch 64 beyond imports and images."""
    found = {}
    print(f"\nMemory of a process that trains {steps} steps of batch 64: MB\n")
    print(f"{'':42}{'imports':>9}{'images':>9}{'fit':>9}{'summary':>9}")
    for net in nets:
        for package in ["minidl", *peers]:
            kilobytes = found[f"{net}, {package}"] = run_fit_memory(package, net, "--steps", steps)
            row = "".join(f"{kilobytes[name] / 1024:9.1f}" for name in ("imports", "images", "fit"))
            print(f"{NETS[net].title:32}{package:10}{row}", flush=True)
    return found


def measure_growth(steps):
    """Measures and prints the growth of memory over many steps."""
    found = run_fit_memory("flat", "lenet", "--batch-size", 16, "--steps", steps)
    print(f"\nMemory growth between a tenth of {steps:,} steps and all of them, LeNet-5, batch 16: ", end="")
    print(f"fit {found['fit']} kB, train_batch {found['train_batch']} kB")
    return found


def main():
    """Measures, prints and writes the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=positive, default=15, help="of the imports")
    parser.add_argument("--steps", type=positive, default=10_000, help="for the growth of memory (default 10000)")
    parser.add_argument("--fit-steps", type=positive, default=50, help="of the fit whose peak is measured (default 50)")
    parser.add_argument("--nets", nargs="+", choices=NETS, default=list(NETS))
    parser.add_argument("--no-peers", action="store_true", help="minidl alone, without PyTorch")
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file")
    args = parser.parse_args()
    peers = [] if args.no_peers or find_spec("torch") is None else ["torch"]
    results = {"machine": machine()}
    print_machine(results["machine"])
    results["import_milliseconds"] = measure_imports(peers, args.rounds)
    results["bytes"] = measure_size()
    results["memory_kilobytes"] = measure_memory(args.nets, peers, args.fit_steps)
    results["growth_kilobytes"] = measure_growth(args.steps)
    write_json(args.json, results)


if __name__ == "__main__":
    main()
