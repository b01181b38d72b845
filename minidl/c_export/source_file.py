"""The text of an exported file: a comment on the model, the functions of C that it uses, tables, layers, interface."""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from minidl.c_export import arena, library, tables
from minidl.c_export.code_writer import Program, Statement, Value
from minidl.utils.arrays import Array
from minidl_c import __version__

OVERREAD = 15  # zeros after a table, which vectors may read
C_TYPE = {"float32": "float", "float64": "double"}
WIDTH = 140


@dataclass(frozen=True)
class Export:
    """What is written: a program with its input and output, and how.

    state: the model's parameters and buffers. static_arena: whether the file has memory of its own for the values, else
    the functions take it. separate: whether the tables are in a file of their own. test: scores of the inputs that the
    test in the file draws, or None.
    """

    program: Program
    input: Value
    output: Value
    state: Mapping[str, Array]
    static_arena: bool
    separate: bool
    test: Array | None


def render(export: Export) -> tuple[str, str, str]:
    """Returns the C file, its header file, and the file of its tables (empty unless they are separate)."""
    program = export.program
    steps = [s.step for s in program.statements if isinstance(s, Statement)]
    offsets, size = arena.place(program.sizes, steps, export.output.storage)
    layers = _layers(program, offsets)
    interface, test = _interface(export, offsets), "" if export.test is None else _test(export)
    declarations = "\n\n".join(program.declarations)
    prefix = program.name.upper()
    functions = library.functions_for("\n".join((declarations, layers, interface, test)), program.dtype)
    functions = functions.replace("SOFT_FMA", f"{prefix}_SOFT_FMA").replace("NAME:", f"{program.name}:")
    constants, words = _tables(program, export.separate)
    parts = [
        _comment(export, size),
        _includes(prefix),
        _sizes(export, size),
        functions,
        f"/* ---- the model */\n\n{declarations}" if declarations else "/* ---- the model */",
        constants,
        layers,
        "/* ---- the interface */",
        interface,
        test,
    ]
    return "\n\n".join(filter(None, parts)) + "\n", _header(export, size), words


def _includes(prefix: str) -> str:
    return f"#include <stdint.h>\n#include <string.h>\n#ifndef {prefix}_SOFT_FMA\n#include <math.h>\n#endif"


def _sizes(export: Export, size: int) -> str:
    sizes = {"INPUTS": export.input.size, "OUTPUTS": export.output.size, "ARENA": size}
    items = ", ".join(f"{export.program.name.upper()}_{key} = {value}" for key, value in sizes.items())
    return f"enum {{ {items} }};          /* numbers */"


def prototypes(export: Export) -> list[str]:
    """Returns the declarations of the two functions, without semicolons."""
    name, kind = export.program.name, C_TYPE[export.program.dtype]
    memory = "" if export.static_arena else f", {kind} *arena"
    return [
        f"void {name}_predict(const {kind} *x, {kind} *scores{memory})",
        f"void {name}_predict_uint8(const uint8_t *x, {kind} *scores{memory})",
    ]


def _declared(export: Export) -> str:
    return "\n".join(f"{prototype};" for prototype in prototypes(export))


def _header(export: Export, size: int) -> str:
    name, guard = export.program.name, f"{export.program.name.upper()}_H"
    return f"""\
/* {name}.h: the interface of {name}.c, which explains it. */

#ifndef {guard}
#define {guard}

#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

{_sizes(export, size)}

{_declared(export)}

#ifdef __cplusplus
}}
#endif
#endif
"""


def _layers(program: Program, offsets: list[int]) -> str:
    """Returns the function that computes all layers in an arena."""
    lines = []
    for statement in program.statements:
        if isinstance(statement, str):
            lines += textwrap.wrap(f"/* {_plain(statement)} */", WIDTH, initial_indent="  ", subsequent_indent="   * ")
        else:
            line = "".join(p if isinstance(p, str) else f"arena + {offsets[p.storage]}" for p in statement.parts)
            lines += textwrap.wrap(line, WIDTH, initial_indent="  ", subsequent_indent="    ", break_long_words=False)
    body = "\n".join(lines) if any(isinstance(s, Statement) for s in program.statements) else "  (void)arena;"
    return f"NOINLINE void {program.name}_layers(real *arena) {{\n{body}\n}}"


def _plain(text: str) -> str:
    """Returns text that can stand in a comment of C."""
    return text.replace("*/", "* /").replace("/*", "/ *").encode("ascii", "backslashreplace").decode()


def _interface(export: Export, offsets: list[int]) -> str:
    """Returns the functions for floats and bytes, which convert input and output to and from channels last."""
    name, first, last = export.program.name, export.input, export.output
    memory = f"  static real arena[{name.upper()}_ARENA] ALIGNED;\n" if export.static_arena else ""
    if first.is_row_major:
        read = f"EACH(i, {first.size}) arena[{offsets[first.storage]} + i] = (real)x[i];"
    else:
        read = (
            f"EACH(i, {first.channels}) EACH(j, {first.pixels}) "
            f"arena[{offsets[first.storage]} + j * {first.channels} + i] = (real)x[i * {first.pixels} + j];"
        )
    function = "copy" if last.is_row_major else "transpose"
    sizes = str(last.size) if last.is_row_major else f"{last.pixels}, {last.channels}"
    write = f"{function}({sizes}, arena + {offsets[last.storage]}, scores);"
    run = f"""\
/* Flushing begins and ends outside of the function that computes, so that no computation leaves it. */
NOINLINE void {name}_run(real *arena) {{
  const flushing before = begin_flushing();
  {name}_layers(arena);
  end_flushing(before);
}}"""
    body = f"{{\n{memory}  {read}\n  {name}_run(arena);\n  {write}\n}}"
    return "\n\n".join((run, _declared(export), *(f"{prototype} {body}" for prototype in prototypes(export))))


def _tables(program: Program, separate: bool) -> tuple[str, str]:
    """Returns the constants of all tables, and the content of the file with their bits if they are separate."""
    if not separate:
        return "\n\n".join(_table(name, array) for name, array in program.arrays.items()), ""
    sizes = {name: array.size + OVERREAD for name, array in program.arrays.items()}
    total, at, names = sum(sizes.values()), 0, []
    for name, size in sizes.items():
        names.append(f"#define {name} ({program.name}_tables.numbers + {at})")
        at += size
    padded = [np.concatenate([array.ravel(), np.zeros(OVERREAD, array.dtype)]) for array in program.arrays.values()]
    if not padded:
        return "", ""
    text = (
        f"static const union {{ bits words[{total}]; real numbers[{total}]; }} {program.name}_tables = {{{{\n"
        f'#include "{program.name}.inc"\n}}}};\n\n' + "\n".join(names)
    )
    return text, tables.words(np.concatenate(padded)) + "\n"


def _table(name: str, array: Array) -> str:
    return f"static const real {name}[{array.size} + {OVERREAD}] ALIGNED = {{\n{tables.numbers(array)}\n}};"


def test_inputs(count: int, size: int) -> Array:
    """Returns the inputs of the test in a file, (count, size), float64: the numbers of `next_byte` in its C.

    Odd examples are whole numbers from 0 to 255, the others are 256ths of them.
    """
    state, values = 1, np.empty(count * size)
    for i in range(count * size):
        state = (state * 1664525 + 1013904223) % 2**32
        values[i] = state >> 24
    inputs = values.reshape(count, size)
    inputs[::2] /= 256
    return inputs


def _test(export: Export) -> str:
    """Returns the function that compares scores with those of `predict`, bit by bit."""
    assert export.test is not None
    name, prefix, count = export.program.name, export.program.name.upper(), len(export.test)
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
{own}  uint32_t state = 1;
  int different = 0;
  EACH(k, {count}) {{
    int equal = 1;
    EACH(i, {prefix}_INPUTS) {{
      state = state * 1664525u + 1013904223u;            /* a linear congruential generator */
      x[i] = (real)(state >> 24) * (k % 2 ? 1 : (real)0x1p-8);
    }}
    {name}_predict(x, scores{memory});
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


def weights_hash(state: Mapping[str, Array]) -> str:
    """Returns the SHA-256 of all arrays of a state, one after the other, in little-endian bytes."""
    digest = hashlib.sha256()
    for array in state.values():
        digest.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()


def _comment(export: Export, size: int) -> str:
    """Returns the comment at the head of the file."""
    program, kind = export.program, C_TYPE[export.program.dtype]
    name, prefix, itemsize = program.name, program.name.upper(), np.dtype(program.dtype).itemsize
    numbers = sum(array.size + OVERREAD for array in program.arrays.values())
    where = "in the file" if export.static_arena else "passed by the caller"
    lines = [
        f"{name}.c: a trained model. Written by minidl {__version__}.",
        "",
        *(f"    {prototype}" for prototype in prototypes(export)),
        "",
        f"x: {export.input.shape}, scores: {export.output.shape}, both {kind}, in row-major order. "
        "The scores have the bits of the model's `predict` in Python.",
        "",
        f"tables {numbers * itemsize} bytes; arena {size * itemsize} bytes, {where}",
        f"SHA-256 of the weights {weights_hash(export.state)}",
        "",
        "C99. Equal bits need IEEE arithmetic, without a compiler's fast math. GCC and clang:",
        "",
        f"    cc -O3 -march=native -ffp-contract=off -c {name}.c          for this processor",
        f"    cc -O2 -ffp-contract=off -c {name}.c                        for any; link with -lm",
        f"    cc -O2 -ffp-contract=off -D{prefix}_SOFT_FMA -c {name}.c    without an fma in the C library",
    ]
    if export.test is not None:
        lines += [
            "",
            "Whether the bits are equal on a machine:",
            "",
            f"    cc -O2 -ffp-contract=off -D{prefix}_TEST -D{prefix}_MAIN {name}.c -lm && ./a.out && echo equal",
        ]
    if export.static_arena:
        lines += ["", "Not for several threads at a time: the arena is one."]
    return "/* " + "\n".join(_wrapped(lines)).replace("\n", "\n * ").replace(" * \n", " *\n") + "\n */"


def _wrapped(lines: Iterable[str]) -> list[str]:
    wrapped = (textwrap.wrap(line, 110) or [""] if not line.startswith("    ") else [line] for line in lines)
    return [part for parts in wrapped for part in parts]
