"""The text of an exported file: a comment on the model, the functions of C that it uses, tables, layers, interface."""

from __future__ import annotations

import hashlib
import json
import re
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from minidl.c_export import interface, library, self_test, tables
from minidl.c_export.code_writer import Statement
from minidl.c_export.exported import Export
from minidl.c_export.identifiers import comment_text
from minidl.c_export.stack import stack_bytes
from minidl.utils.arrays import Array
from minidl_c import __version__

WIDTH = 140


def render(export: Export) -> tuple[str, str]:
    """Returns the C file, and the file of its tables (empty unless they are separate)."""
    layers, declared = _layers(export), "\n\n".join(export.program.declarations)
    functions, names = interface.functions(export), "TABLE" if export.program.arrays else ""
    model_code, dtype = "\n".join((declared, layers, functions, names)), export.program.dtype
    multiplies = "real_fma(" in library.functions_for(model_code, dtype)
    test = "" if export.test is None else self_test.function(export, multiplies)
    library_code = library.functions_for(f"{model_code}\n{test}", dtype)
    constants, words = _tables(export)
    parts = [
        _comment(export),
        "#include <stdint.h>\n#include <string.h>",
        interface.guarded_declarations(export),
        library_code.replace("SOFT_FMA", f"{export.macro}_SOFT_FMA").replace("NAME:", f"{export.name}:"),
        "/* ---- the model */",
        constants,
        declared,
        layers,
        "/* ---- the interface */",
        interface.values(export) if export.keeps_values else "",
        interface.class_names(export) if export.names_classes else "",
        functions,
        test,
    ]
    return "\n\n".join(filter(None, parts)) + "\n", words


def _layers(export: Export) -> str:
    """Returns the function that computes all layers in an arena."""
    lines, computes = [], False
    for statement in export.program.statements:
        if isinstance(statement, Statement):
            parts = (p if isinstance(p, str) else f"arena + {export.offset_of(p)}" for p in statement.parts)
            lines += _wrapped("".join(parts), "    ")
            computes = True
        else:
            lines += _wrapped(f"/* {comment_text(statement)} */", "   * ")
    if not computes:
        lines.append("  (void)arena;")
    calls = export.program.transforms
    once = (f"NOINLINE void {export.name}_transforms(real *transformed) {{", *(f"  {call}" for call in calls), "}\n\n")
    head = f"NOINLINE void {export.name}_layers(real *arena{', const real *transformed' if calls else ''}) {{"
    return ("\n".join(once) if calls else "") + "\n".join((head, *lines, "}"))


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent="  ", subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _tables(export: Export) -> tuple[str, str]:
    """Returns the constants of all tables, and the content of the file with their bits if they are separate."""
    arrays = export.program.arrays
    if not export.separate_tables or not arrays:
        return "\n\n".join(_table(name, array) for name, array in arrays.items()), ""
    at, places = 0, []
    for name, array in arrays.items():
        places.append(f"#define {name} ({export.name}_tables.numbers + {at})")
        at += array.size
    text = f'TABLE({export.name}_tables, {at}) = {{{{\n#include "{export.stem}.inc"\n}}}};\n\n' + "\n".join(places)
    return text, tables.words(np.concatenate([array.ravel() for array in arrays.values()])) + "\n"


def _table(name: str, array: Array) -> str:
    """Returns a table and the macro of its numbers, which has the name of the table itself."""
    size = max(array.size, 1)  # C has no empty arrays
    return f"TABLE({name}, {size}) = {{{{\n{tables.words(array)}\n}}}};\n#define {name} {name}.numbers"


def weights_hash(state: Mapping[str, Array]) -> str:
    """Returns the SHA-256 of all arrays of a state, one after the other, in little-endian bytes."""
    digest = hashlib.sha256()
    for array in state.values():
        digest.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()


def _comment(export: Export) -> str:
    """Returns the comment at the head of the file."""
    file, itemsize = f"{export.stem}.c", np.dtype(export.program.dtype).itemsize
    numbers = sum(array.size for array in export.program.arrays.values())
    once = export.program.transformed * itemsize
    transformed = f" and transformed weights {once} bytes, of the first call" if once else ""
    plain, vectors = stack_bytes(export.program)
    where = "in the file" if export.static_arena else "passed by the caller"
    uses = {
        "-O3 -march=native -ffp-contract=off": "for this processor",
        "-O2 -ffp-contract=off": "for any",
        f"-O2 -ffp-contract=off -D{export.macro}_SOFT_FMA": "without fma and sqrt of the C library",
    }
    named = len(export.classes) == export.output_size  # a single score has two classes
    shapes = "; ".join(f"{name}: {tensor.shape}" for name, tensor in export.outputs.items())
    lines = [
        f"{file}: a trained model. Written by minidl {__version__}.",
        "",
        *(f"    {prototype}" for prototype in interface.prototypes(export)),
        "",
        f"x: {export.input.shape}, as `{export.function}` takes it in Python; bytes are not scaled. {shapes}, "
        f"with the bits of `{export.function}`. All are in row-major order.",
        *(
            ["", 'The bits are those of a model whose convolutions have `algorithm="direct"`.']
            if export.sums_directly
            else []
        ),
        *(["", "The outputs are " + comment_text(", ".join(export.classes)) + "."] if named else []),
        *(["", "Metadata:", "", *_json_lines(export.metadata)] if export.metadata else []),
        "",
        f"tables {numbers * itemsize} bytes; arena {export.arena_size * itemsize} bytes{transformed}, {where}",
        f"stack: at most about {plain} bytes with gcc -O2, {vectors} with gcc -O3 and vectors of AVX-512",
        f"SHA-256 of the weights {weights_hash(export.state)}",
        "",
        "C99. Equal bits need IEEE arithmetic, without a compiler's fast math. GCC and clang:",
        "",
        *(f"    cc {options:{max(map(len, uses))}} -c {file}    {use}" for options, use in uses.items()),
        "",
        f"Link with -lm, unless it is compiled with -D{export.macro}_SOFT_FMA."
        + (f" The tables are in {export.stem}.inc." if export.separate_tables else ""),
    ]
    if export.test is not None:
        defines = f"-D{export.macro}_TEST -D{export.macro}_MAIN"
        lines += [
            "",
            "Whether the bits are equal on a machine:",
            "",
            f"    cc -O2 -ffp-contract=off {defines} {file} -lm && ./a.out && echo equal",
        ]
    if export.static_arena:
        lines += ["", "Not for several threads at a time: the arena is one."]
    return "/* " + "\n".join(_filled(lines)).replace("\n", "\n * ").replace(" * \n", " *\n") + "\n */"


def _json_lines(value: Mapping[str, Any]) -> list[str]:
    """Returns JSON as lines that can stand in a comment of C: slashes that would begin or end one are escaped."""
    text = re.sub(r"(?<=[*?])/|/(?=\*)", r"\\u002f", json.dumps(value, indent=2))
    return [f"    {line}" for line in text.splitlines()]


def _filled(lines: Iterable[str]) -> list[str]:
    wrapped = (textwrap.wrap(line, 110) or [""] if not line.startswith("    ") else [line] for line in lines)
    return [part for parts in wrapped for part in parts]
