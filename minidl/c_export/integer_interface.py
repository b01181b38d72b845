"""The interface of the file of a quantized net: its functions for int8, for bytes and, on request, for real numbers."""

from __future__ import annotations

from minidl.c_export import tables
from minidl.c_export.exported import Export
from minidl.quantization.program import Program, Quantization


def constants(export: Export, program: Program) -> str:
    """Returns the macros of what the numbers of input and scores stand for, and the functions of real numbers."""
    macro, name = export.macro, export.name
    first, last = program.values[0].quantization, program.values[-1].quantization
    return f"""\
{_quantization(f"{macro}_INPUT", first)}
{_quantization(f"{macro}_SCORE", last)}
#ifdef {macro}_FLOAT
int8_t {name}_quantize(double x, int channel);           /* a number of x from a real input */
float {name}_score(int8_t q);                            /* the real number of a score */
#endif"""


def _quantization(prefix: str, quantization: Quantization) -> str:
    zero = quantization.zero_point
    scale = tables.decimal(quantization.scale)
    return f"#define {prefix}_SCALE {scale}\n#define {prefix}_ZERO_POINT {zero if zero >= 0 else f'({zero})'}"


def functions(export: Export) -> str:
    """Returns the functions for int8 and for bytes, which convert input and output to and from channels last."""
    assert export.quantized is not None
    name, last = export.name, export.outputs["scores"]
    arena, owned = "arena", ""
    if export.static_arena:
        arena, owned = f"{name}_arena", f"static int8_t {name}_arena[{export.macro}_ARENA];\n\n"
    copied = f"copy({last.size}" if last.is_row_major else f"transpose({last.pixels}, {last.channels}"
    write = f"{copied}, {arena} + {export.offset_of(last)}, scores);"
    bodies = (
        f"{head} {{\n  {_read(export, arena, number)}\n  {name}_layers({arena});\n  {write}\n}}"
        for head, number in zip(export.prototypes, ("x[{}]", _of_bytes(export)), strict=True)
    )
    return owned + "\n\n".join((*bodies, _of_reals(export, export.quantized)))


def _read(export: Export, arena: str, number: str) -> str:
    """Returns the loop that reads the input. number: an element of channel i, of its place in x."""
    first, start = export.input, export.offset_of(export.input)
    place = f"{start} + j * {first.channels} + i"
    element = number.format(f"i * {first.pixels} + j")
    return f"EACH(i, {first.channels}) EACH(j, {first.pixels}) {arena}[{place}] = {element};"


def _of_bytes(export: Export) -> str:
    """Returns the expression of what a byte becomes, in channel i; {} is its place in x."""
    name, tables_ = export.name, export.program.arrays
    if f"{name}_starts" in tables_:
        return f"{name}_bytes[{name}_starts[i] + x[{{}}]]"
    return f"{name}_bytes[x[{{}}]]" if f"{name}_bytes" in tables_ else "(int8_t)(x[{}] - 128)"


def _of_reals(export: Export, program: Program) -> str:
    """Returns the functions that convert real numbers. The product is volatile, so that it has its own rounding."""
    made, name, macro = program.input, export.name, export.macro
    rows = ",\n".join(
        f"    {{{tables.number(factor, 'float64')}, {tables.number(offset, 'float64')}}}"
        for factor, offset in zip(made.factors.tolist(), made.offsets.tolist(), strict=True)
    )
    return f"""\
#ifdef {macro}_FLOAT
int8_t {name}_quantize(double x, int channel) {{
  static const double factors_and_offsets[][2] = {{
{rows}
  }};
  const volatile double product = x * factors_and_offsets[channel][0];
  const double sum = product + factors_and_offsets[channel][1];
  const int toward_zero = sum >= 127 ? 127 : sum > -128 ? (int)sum : -128;
  return (int8_t)(toward_zero > sum && sum > -128 ? toward_zero - 1 : toward_zero);
}}

float {name}_score(int8_t q) {{ return {macro}_SCORE_SCALE * (float)(q - {macro}_SCORE_ZERO_POINT); }}
#endif"""
