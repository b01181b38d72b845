"""The test in an exported file: whether a machine gives the bits of `predict`."""

from __future__ import annotations

import numpy as np

from minidl.c_export import tables
from minidl.c_export.exported import Export
from minidl.utils.arrays import Array


def draw_inputs(count: int, size: int) -> Array:
    """Returns the inputs of the test in a file, (count, size), float64, as its C draws them.

    Of four examples, the first has numbers from -2 to 2, the second and the fourth bytes, the third 0 and 1, which most
    embeddings know. The second is passed as bytes.
    """
    state, values = 1, np.empty(count * size)
    for i in range(count * size):
        state = (state * 1664525 + 1013904223) % 2**32
        values[i] = state >> 24
    inputs = values.reshape(count, size)
    inputs[::4] = inputs[::4] / 64 - 2
    inputs[2::4] %= 2
    return inputs


def function(export: Export) -> str:
    """Returns the function that compares scores with those of `predict`, bit by bit."""
    assert export.test is not None
    name, prefix, count = export.name, export.macro, len(export.test)
    memory = "" if export.static_arena else ", arena"
    own = "" if export.static_arena else f"  static real arena[{prefix}_ARENA];\n"
    return f"""\
#ifdef {prefix}_TEST
/* Scores of `predict` for pseudo-random inputs, as bits. */
static const bits {name}_expected[{count} * {export.output.size}] = {{
{tables.words(export.test)}
}};

/* Returns the number of inputs whose scores differ from those of `predict`. */
int {name}_test(void);

int {name}_test(void) {{
  static real x[{prefix}_INPUTS], scores[{prefix}_OUTPUTS];
  static uint8_t bytes[{prefix}_INPUTS];
{own}  uint32_t state = 1;
  int different = 0;
  EACH(k, {count}) {{
    int equal = 1;
    EACH(i, {prefix}_INPUTS) {{
      state = state * 1664525u + 1013904223u;            /* a linear congruential generator */
      bytes[i] = (uint8_t)(state >> 24);
      x[i] = k % 4 == 0 ? (real)bytes[i] * (real)0x1p-6 - 2 : (real)(k % 4 == 2 ? bytes[i] % 2 : bytes[i]);
    }}
    if (k % 4 == 1) {name}_predict_uint8(bytes, scores{memory});
    else {name}_predict(x, scores{memory});
    EACH(i, {prefix}_OUTPUTS) {{
      const real expected = real_from_bits({name}_expected[k * {prefix}_OUTPUTS + i]);
      const int both_nan = expected != expected && scores[i] != scores[i];
      if (!both_nan && real_to_bits(expected) != real_to_bits(scores[i])) equal = 0;
    }}
    different += !equal;
  }}
  return different;
}}

#ifdef {prefix}_MAIN
int main(void) {{ return {name}_test(); }}
#endif
#endif"""
