"""Runs the conformance programs in turn, each with a budget, and prints a summary with what failed programs said last.

python tests/conformance/run.py             # some minutes: required of every change
python tests/conformance/run.py --whole     # hours: the figures in docs/explanation/promises.md
python tests/conformance/run.py kills race  # selected programs
python tests/conformance/run.py --without sanitize
"""

import argparse
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

HERE = Path(__file__).parent
BUDGETS = {  # arguments of the short and of the whole run
    "same_bits": ("--nets mixed blocks --threads 1 3", "--whole 10"),
    "files": ("--mutations 2000 --hostile 2000", "--mutations 100000 --hostile 10000"),
    "saves": ("--no-strace", ""),
    "kills": ("--kills 10", "--kills 200"),
    "batch_kills": ("--kills 2", "--kills 17"),
    "processes": ("--forks 10 --interrupts 6 --predictions 500", "--forks 100 --interrupts 100 --predictions 10000"),
    "sanitize": ("--calls 2500", "--calls 1010000 --all"),
    "race": ("--nets 14", "--nets 400"),
    "poison": ("--nets 20", "--nets 400"),
    "c_compilers": ("--images 20 --nets lenet every --builds gcc", ""),
    "c_random": ("--nets 20", "--nets 500"),
    "c_cores": ("--nets signal --faults 4", ""),
    "c_integer": ("--nets 20 --builds gcc", ""),
    "c_one_hash": ("--nets signal shifts --inputs 100 --builds gcc,", ""),
    "onnx_nodes": ("", ""),
    "onnx_random": ("--graphs 500", "--graphs 20000"),
    "soak": ("--seconds 20", "--seconds 900"),
}


def run(command):
    """Runs a program; returns its status and the last lines that it printed, where its findings are."""
    said = deque(maxlen=12)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as program:
        for line in program.stdout:
            print(line, end="", flush=True)
            said.append(line.rstrip())
    return program.returncode, said


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", metavar="program", help=f"of {', '.join(BUDGETS)}; default: all")
    parser.add_argument("--without", nargs="+", choices=BUDGETS, default=[], help="leave out these programs")
    parser.add_argument("--whole", action="store_true")
    args = parser.parse_args()
    if unknown := set(args.programs) - set(BUDGETS):
        parser.error(f"no program {', '.join(sorted(unknown))}: expected some of {', '.join(BUDGETS)}")
    summary, failed = [], False
    for name in [name for name in args.programs or BUDGETS if name not in args.without]:
        arguments = BUDGETS[name][args.whole].split()
        print(f"\n-- {name} {' '.join(arguments)}", flush=True)
        began = time.perf_counter()
        status, said = run([sys.executable, HERE / f"{name}.py", *arguments])
        seconds, failed = time.perf_counter() - began, failed or status != 0
        summary.append(f"{name:12} {'passed' if status == 0 else f'FAILED ({status})':12} {seconds:6.0f} s")
        summary += [f"  {line}" for line in said if status]
    print("\n" + "\n".join(summary))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
