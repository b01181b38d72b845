"""Import of an ONNX file: time and peak memory, compared with a session of onnxruntime, in a fresh process for each.

README.md in this folder describes the method.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from measure import machine, positive, print_machine, spread, write_json


def peak():
    """Returns the peak memory of this process so far, in bytes (Linux)."""
    return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])


def import_once(side, path):
    """Imports the file in this process; returns seconds, and bytes beyond those of the imported packages."""
    if side == "minidl":
        import onnx.checker
        import onnx.numpy_helper  # noqa: F401 - packages that import_model would import

        from minidl.onnx import import_model

        def run():
            return import_model(path, external_data=True)
    else:
        import onnxruntime

        def run():
            return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    before, begin = peak(), time.perf_counter()
    result = run()
    seconds = time.perf_counter() - begin
    del result
    return {"seconds": seconds, "bytes": peak() - before}


def measure(path, sides, rounds):
    """Measures all sides in alternating processes; returns the times in seconds and the memory in bytes."""
    found = {side: [] for side in sides}
    for number in range(rounds + 1):
        for side in sides:
            command = [sys.executable, __file__, path, "--side", side]
            row = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
            if number:  # the first round fills caches
                found[side].append(row)
    return {
        side: {name: spread([row[name] for row in rows]) for name in ("seconds", "bytes")}
        for side, rows in found.items()
    }


def main():
    """Measures, prints and writes the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", help="an ONNX file")
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--side", choices=["minidl", "onnxruntime"], help="import once, in this process")
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file")
    args = parser.parse_args()
    if args.side:
        print(json.dumps(import_once(args.side, args.path)))
        return
    sides = ["minidl", *(["onnxruntime"] if find_spec("onnxruntime") else [])]
    results = {"machine": machine(), "import": measure(args.path, sides, args.rounds)}
    size = Path(args.path).stat().st_size
    print_machine(results["machine"])
    print(f"\n{args.path}, {size / 1e6:.0f} MB: medians of {args.rounds} processes\n")
    print(f"{'':14}{'seconds':>10}{'MB':>10}{'of the file':>14}")
    for side, row in results["import"].items():
        seconds, memory = row["seconds"]["median"], row["bytes"]["median"]
        print(f"{side:14}{seconds:10.2f}{memory / 1e6:10.0f}{memory / size:14.2f}")
    write_json(args.json, results)


if __name__ == "__main__":
    main()
