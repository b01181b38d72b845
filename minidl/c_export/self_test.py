"""The test in an exported file: whether a machine gives the bits of `predict`."""

from __future__ import annotations

import itertools

from minidl.c_export import tables
from minidl.c_export.examples import EXAMPLES
from minidl.c_export.exported import Export
from minidl.utils.arrays import Array

FUSED = """\
  /* a * b + c where two roundings, of the product or of the sum, give another number */
  static const real cases[][4] = {
    CASES
  };
  EACH(i, (integer)(sizeof cases / sizeof *cases)) {
    const volatile real a = cases[i][0], b = cases[i][1], c = cases[i][2];      /* the compiler must not compute it */
    if (real_fma(a, b, c) != cases[i][3]) return 1;
  }
"""
CASES = {  # the last ones of float: also where (float)((double)a * b + c) is corrected, but not in all cases
    "float32": (
        ("0x1.001p0f", "0x1.001p0f", "-0x1.002p0f", "0x1p-24f"),
        ("1774001", "0x1.2ea2p-45f", "1", "0x1.000002p0f"),
        ("262143", "0x1.00004p-42f", "0x1.000002p0f", "0x1.000002p0f"),
        ("0x1.e511ap-1f", "0x1.f234ap-22f", "-0x1.f22d8p-3f", "-0x1.f22d46p-3f"),
    ),
    "float64": (
        ("0x1.0000001p0", "0x1.0000001p0", "-0x1.0000002p0", "0x1p-56"),
        ("1048577", "0x1.ffffe00002p-74", "1", "0x1.0000000000001p0"),
        ("1073741823", "0x1.00000004p-83", "0x1.0000000000001p0", "0x1.0000000000001p0"),
    ),
}


def function(export: Export, multiplies: bool) -> str:
    """Returns the function that compares scores with those of `predict`, bit by bit.

    multiplies: whether the file has fused multiply-adds.
    """
    assert export.test is not None
    if export.quantized is not None:
        return _of_integers(export, export.test.scores)
    name, prefix, dtype = export.name, export.macro, export.program.dtype
    memory, own, once = "", "", ""
    if not export.static_arena:
        memory = "".join(f", {part}" for part in export.memory)
        own = "".join(f"  static real {part}[{prefix}_{part.upper()}];\n" for part in export.memory)
        once = f"  {name}_transform(transformed);\n" if "transformed" in export.memory else ""
    starts = itertools.accumulate((tensor.size for tensor in export.outputs.values()), initial=0)
    places = [f"scores + {start}" if start else "scores" for start in starts]
    scores = ", ".join(places[: len(export.outputs)])
    runs = ",\n".join(
        f"  {{{run.size}, {run.categories}, {tables.number(run.low, dtype)}, {tables.number(run.step, dtype)}}}"
        for run in export.test.runs
    )
    kinds = ", ".join(
        f"{{{tables.number(kind.low, dtype)}, {tables.number(kind.step, dtype)}, {kind.modulo}}}"
        for kind in export.test.kinds
    )
    cases = ",\n    ".join(f"{{{', '.join(case)}}}" for case in CASES[dtype])
    return f"""\
#ifdef {prefix}_TEST
/* Inputs: low + step * n, where n is the next category or a byte. A step of 0: the kind of the example says both. */
static const struct {{ integer size, categories; real low, step; }} {name}_runs[] = {{
{runs}
}};

static const struct {{ real low, step; integer modulo; }} {name}_kinds[] = {{{kinds}}};

/* Scores of `predict` for these inputs, as bits. */
static const bits {name}_expected[{len(export.test.scores)} * {export.output_size}] = {{
{tables.words(export.test.scores)}
}};

/* Returns 1 if single operations give other numbers than in `predict`. The compiler does not compute volatile ones. */
NOINLINE int {name}_rounds_differently(void) {{
  const volatile real one = 1, smallest = SMALLEST, half = (real)0.5, ulp = 1 / (real)((bits)1 << MANTISSA);
  const volatile real part = half * ulp * half;
{FUSED.replace("CASES", cases) if multiplies else ""}\
  return one + part != 1 || one + (ulp - part) != one + ulp || flush(smallest * half) != 0;
}}

int {name}_test(void) {{
  static real x[{prefix}_INPUTS], scores[{prefix}_OUTPUTS];
  static uint8_t bytes[{prefix}_INPUTS];
{own}  const arithmetic before = set_arithmetic();
  int different = {name}_rounds_differently();
  restore_arithmetic(before);
{once}  EACH(k, {len(export.test.scores)}) {{
    const integer kind = k < {EXAMPLES} ? k : 0;
    uint32_t state = 1 + (uint32_t)k * 2654435761u;
    integer at = 0, equal = 1;
    EACH(r, (integer)(sizeof {name}_runs / sizeof *{name}_runs)) EACH(i, {name}_runs[r].size) {{
      const integer size = {name}_runs[r].size, categories = {name}_runs[r].categories;
      const int own = categories || ({name}_runs[r].step != 0 && k != 1);
      integer n;
      state = state * 1664525u + 1013904223u;            /* a linear congruential generator */
      if (categories) n = ((k - (k > 0)) * size + i) % (k == 1 && categories > 256 ? 256 : categories);
      else n = (integer)(state >> 24) % (own ? 256 : {name}_kinds[kind].modulo);
      if (own) x[at] = {name}_runs[r].low + {name}_runs[r].step * (real)n;
      else x[at] = {name}_kinds[kind].low + {name}_kinds[kind].step * (real)n;
      bytes[at] = k == 1 ? (uint8_t)(integer)x[at] : 0;
      at++;
    }}
    if (k == 1) {name}_predict_uint8(bytes, {scores}{memory});
    else {name}_predict(x, {scores}{memory});
    EACH(i, {prefix}_OUTPUTS) {{
      const real expected = real_from_bits({name}_expected[k * {prefix}_OUTPUTS + i]);
      const int both_nan = expected != expected && scores[i] != scores[i];
      if (!both_nan && real_to_bits(expected) != real_to_bits(scores[i])) equal = 0;
    }}
    different += !equal;
  }}
  return different;
}}

{_main(export)}
#endif"""


def _of_integers(export: Export, scores: Array) -> str:
    """Returns the function for a quantized net, whose inputs are random bytes."""
    name, prefix = export.name, export.macro
    memory, own, examples = "", "", len(scores)
    if not export.static_arena:
        memory, own = ", arena", f"  static int8_t arena[{prefix}_ARENA];\n"
    return f"""\
#ifdef {prefix}_TEST
/* Scores of `{export.function}` for pseudo-random inputs. */
static const int8_t {name}_expected[{examples} * {prefix}_OUTPUTS] = {{
{tables.words(scores)}
}};

int {name}_test(void) {{
  static int8_t x[{prefix}_INPUTS], scores[{prefix}_OUTPUTS];
  static uint8_t bytes[{prefix}_INPUTS];
{own}  int different = 0;
  EACH(k, {examples}) {{
    uint32_t state = 1 + (uint32_t)k * 2654435761u;
    EACH(i, {prefix}_INPUTS) {{
      state = state * 1664525u + 1013904223u;            /* a linear congruential generator */
      bytes[i] = (uint8_t)(state >> 24);
      x[i] = (int8_t)(bytes[i] - 128);
    }}
    if (k == 1) {name}_predict_uint8(bytes, scores{memory});
    else {name}_predict(x, scores{memory});
    different += memcmp(scores, {name}_expected + k * {prefix}_OUTPUTS, sizeof scores) != 0;
  }}
  return different;
}}

{_main(export)}
#endif"""


def _main(export: Export) -> str:
    return f"""\
#ifdef {export.macro}_MAIN
int main(void) {{ return {export.name}_test(); }}
#endif"""
