"""What the own test of an exported file sees, and callers that round in another direction: parts of c_cores.py."""

import re
import subprocess

import numpy as np

import minidl
from minidl import Sequential, layers
from minidl.layers import (
    BatchNorm1D,
    BatchNorm2D,
    Columns,
    Conv1D,
    Conv2D,
    Dense,
    DepthwiseConv2D,
    Embedding,
    Flatten,
    GlobalAvgPool2D,
    LayerNorm,
    Normalize,
    Parallel,
    Rescale,
    Scale,
)

GCC = ("gcc", "-std=c99", "-Wall", "-Wextra", "-ffp-contract=off")
SMOOTH = ("GELU", "LeakyReLU", "SiLU", "Softsign", "Squareplus", "ELU")  # no output of which most weights are unseen
CHANGED = """
#include <stdio.h>
#include "net.c"
/* Changes numbers of each table, one at a time: prints how many the test does not see, and those that it was. */
int main(void) {
  unsigned long unseen = 0, all = 0;
  uint32_t draw = 1;
#define TRY(table, size) for (unsigned i = 0; i < (size < %(most)d ? size : %(most)d); i++, all++) { \\
    draw = draw * 1664525u + 1013904223u; \\
    const unsigned at = size < %(most)d ? i : (draw >> 8) %% size; \\
    const real kept = table[at]; \\
    table[at] = kept * (real)1.25 + (real)0.125; \\
    if (net_test() == 0) { unseen++; fprintf(stderr, "%%s[%%u]\\n", #table, at); } \\
    table[at] = kept; \\
  }
  if (net_test()) return 9;
%(tries)s
  printf("%%lu %%lu\\n", unseen, all);
  return 0;
}
"""
MODES = """
#include <fenv.h>
#include <stdio.h>
#include "net.h"
static REAL x[NET_INPUTS], scores[4][NET_OUTPUTS];
int main(void) {
  const int modes[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
  while (fread(x, sizeof x, 1, stdin) == 1) {
    for (int i = 0; i < 4; i++) {
      fesetround(modes[i]);
      net_predict(x, scores[i]);
      if (fegetround() != modes[i]) return 1;
      fesetround(FE_TONEAREST);
    }
    fwrite(scores, sizeof scores, 1, stdout);
  }
  return 0;
}
"""
BUILDS = (("-O2",), ("-O2", "-mfma"), ("-O3", "-march=native"), ("-O2", "-DNET_SOFT_FMA"))


def random_net(rng, number):
    """Returns a net of random layers; every second one has columns of categories and of numbers."""
    act = lambda: getattr(layers, str(rng.choice(SMOOTH)))()  # noqa: E731
    dtype = ("float32", "float64")[number // 2 % 2]
    if number % 2:
        n, m = (int(k) for k in rng.integers(1, 5, 2))
        sizes, dims = rng.integers(2, 400, 2), rng.integers(1, 4, 2)
        mean, std = rng.uniform(-3000, 3000, m), rng.uniform(0.01, 20, m)
        branches = [
            [Columns(0, n), Embedding(int(sizes[0]), int(dims[0])), Flatten()],
            [Columns(n, n + 1), Embedding(int(sizes[1]), int(dims[1])), Flatten()],
            [Columns(n + 1, n + 1 + m), Normalize(mean.tolist(), std.tolist()), Dense(5)],
        ]
        ends = [act(), BatchNorm1D(), Dense(8), act(), LayerNorm(), Dense(3)]
        model = Sequential([Parallel(*branches), *ends], input_shape=(n + 1 + m,), dtype=dtype)
    elif number % 4:
        first = [Rescale(1 / 255), Normalize([0.5, 0.4], [0.2, 0.3])] if number % 8 else [BatchNorm2D()]
        body = [Conv2D(4, 3), act(), DepthwiseConv2D(3), BatchNorm2D(), act(), Conv2D(5, 1), act(), GlobalAvgPool2D()]
        model = Sequential([*first, *body, Dense(3)], input_shape=(2, 8, 8), dtype=dtype)
    else:
        body = [Normalize(1013.0, 7.0), Conv1D(4, 3), act(), Scale(), Conv1D(3, 3), act(), Flatten(), Dense(4)]
        model = Sequential(body, input_shape=(2, 12), dtype=dtype)
    state = model.state_dict()
    for name, array in state.items():
        values = rng.standard_normal(array.shape) * 0.5
        state[name] = (np.abs(values) + 0.1 if name.endswith("running_var") else values).astype(array.dtype)
    if not number % 8 and number % 4:
        state["0.running_mean"] += 100
    model.load_state_dict(state)
    return model


def changed_tables(count, folder, most=40):
    """Changes up to `most` numbers of each table of random nets; returns how many tables, changes and unseen ones."""
    rng, totals = np.random.default_rng(0), np.zeros(3, int)
    for number in range(count):
        place = folder / f"changed-{number}"
        place.mkdir()
        minidl.export_c(random_net(rng, number), place / "net.c")
        text = (place / "net.c").read_text()
        tables = re.findall(r"TABLE\((net_\w+), (\d+)\)", text)
        (place / "net.c").write_text(text.replace("static const union {", "static union {"))
        tries = "\n".join(f"  TRY({name}, {size}u)" for name, size in tables)
        (place / "changed.c").write_text(CHANGED % {"most": most, "tries": tries})
        program = str(place / "changed")
        subprocess.run([*GCC, "-O1", "-DNET_TEST", str(place / "changed.c"), "-o", program, "-lm"], check=True)
        done = subprocess.run([program], capture_output=True, text=True, check=True)
        unseen, changes = map(int, done.stdout.split())
        totals += len(tables), changes, unseen
        for table in done.stderr.split():
            print(f"net {number}: the test does not see a change of {table}", flush=True)
    return totals


def rounding_modes(model, inputs, place):
    """Returns the builds, each for callers of four rounding modes, whose scores differ from those of `predict`."""
    minidl.export_c(model, place / "net.c", header=True)
    real = {"float32": "float", "float64": "double"}[model.dtype]
    (place / "modes.c").write_text(f"#define REAL {real}\n{MODES}")
    expected = np.repeat(model.predict(inputs)[:, None], 4, axis=1).tobytes()
    different = []
    for options in BUILDS:
        program = str(place / "modes")
        subprocess.run([*GCC, *options, str(place / "net.c"), str(place / "modes.c"), "-o", program, "-lm"], check=True)
        done = subprocess.run([program], input=inputs.tobytes(), capture_output=True, check=False)
        if done.returncode or done.stdout != expected:
            different.append(" ".join(options))
    return different
