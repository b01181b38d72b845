"""Random nets of random layers as C, compiled with sanitizers: the bits of `predict`, no report, no warning.

    python tests/conformance/c_random.py --nets 20        # a minute
    python tests/conformance/c_random.py --nets 500

A program holds a batch of nets, each in a file of its own, and computes examples whose scores are compared. Half of
the nets are float64; a third of the programs have vectors, and a third the software FMA. Canaries: a net with another
weight, and one that reads outside of its arena, must be noticed.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from c_export.models import random_model

import minidl

BATCH = 10  # nets in a program
EXAMPLES = 3
FLAGS = (
    "-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-ffp-contract=off", "-g1",
    "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
)  # fmt: skip
OPTIONS = (("-O1",), ("-O2", "-march=native"), ("-O1", *(f"-DNET{i}_SOFT_FMA" for i in range(BATCH))))
MAIN = """\
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
{includes}
/* As many numbers as there are, so that the sanitizer sees every other access. */
#define RUN(name, NAME, type) do {{ \\
    type *x = malloc(NAME##_INPUTS * sizeof(type)), *y = malloc(NAME##_OUTPUTS * sizeof(type)); \\
    type *arena = malloc(NAME##_ARENA * sizeof(type)); \\
    for (int i = 0; i < {examples}; i++) {{ \\
      if (fread(x, sizeof(type), NAME##_INPUTS, stdin) != NAME##_INPUTS) return 2; \\
      memset(arena, 0, NAME##_ARENA * sizeof(type)); \\
      name##_predict(x, y, arena); \\
      fwrite(y, sizeof(type), NAME##_OUTPUTS, stdout); \\
    }} \\
    free(x); free(y); free(arena); \\
  }} while (0)
int main(void) {{
{calls}
  return 0;
}}
"""


def models(batch, seed):
    """Yields the nets of a batch: name, model, inputs."""
    for i in range(BATCH):
        rng = np.random.default_rng([seed, batch, i])
        model, draw = random_model(rng, ("float32", "float64")[i % 2], layers=12)
        yield f"net{i}", model, draw(EXAMPLES)


def compiled(batch, seed, folder, edit=None):
    """Compiles and runs a batch; returns the texts of the nets that differ, or what the sanitizers say."""
    named = list(models(batch, seed))
    includes, calls = [], []
    for name, model, _ in named:
        minidl.export_c(model, folder / f"{name}.c", arena="argument", header=True)
        includes.append(f'#include "{name}.h"')
        calls.append(f"  RUN({name}, {name.upper()}, {'float' if model.dtype == 'float32' else 'double'});")
    if edit:
        edit(folder / "net0.c")
    main = folder / "main.c"
    main.write_text(MAIN.format(includes="\n".join(includes), calls="\n".join(calls), examples=EXAMPLES))
    sources = [str(folder / f"{name}.c") for name, _, _ in named]
    command = ["gcc", *FLAGS, *OPTIONS[batch % 3], *sources, str(main), "-o", str(folder / "program"), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or done.stderr:
        return [done.stderr[:2000]]
    data = b"".join(X.tobytes() for _, _, X in named)
    done = subprocess.run([str(folder / "program")], input=data, capture_output=True, check=False)
    if done.returncode:
        return [done.stderr.decode(errors="replace")[:2000]]
    return [f"batch {batch}, {name}: {model!r} differs" for name, model in different(named, done.stdout)]


def different(named, out):
    """Yields the nets whose scores do not have the bits of predict; every NaN equals every other."""
    at = 0
    for name, model, X in named:
        expected = model.predict(X)
        found = np.frombuffer(out, expected.dtype, expected.size, at).reshape(expected.shape)
        at += expected.nbytes
        known = expected == expected
        if not (np.array_equal(known, found == found) and expected[known].tobytes() == found[known].tobytes()):
            yield name, model


def other_weight(path):
    """Changes the first number of the last table."""
    head, mark, rest = path.read_text().rpartition(") = {{\n")
    path.write_text(f"{head}{mark}((bits)1 << MANTISSA) ^ {rest}" if mark else head)


def shorter_arena(path):
    """Makes the layers read before the arena."""
    path.write_text(path.read_text().replace("arena + 0", "arena - 8"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    began, batches = time.perf_counter(), -(-args.nets // BATCH)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:

        def run(batch, edit=None):
            place = Path(folder) / f"{batch}-{edit.__name__ if edit else ''}"
            place.mkdir()
            return compiled(batch, args.seed, place, edit)

        wrong = 0
        for found in pool.map(run, range(batches)):
            wrong += len(found)
            for text in found:
                print(text, flush=True)
        seen = [bool(run(0, edit)) for edit in (other_weight, shorter_arena)]
    print(
        f"c_random: {batches * BATCH} nets, {wrong} findings; canaries: {sum(seen)} of {len(seen)} noticed; "
        f"{time.perf_counter() - began:.0f} s"
    )
    return int(wrong > 0 or not all(seen))


if __name__ == "__main__":
    sys.exit(main())
