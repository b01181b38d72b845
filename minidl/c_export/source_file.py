"""The text of an exported file: a comment on the model, the functions of C that it uses, tables, layers, interface."""

from __future__ import annotations

import re
import textwrap

import numpy as np

from minidl.c_export import integer_interface, interface, library, self_test, tables
from minidl.c_export.code_writer import WIDTH, Statement
from minidl.c_export.comment import comment
from minidl.c_export.exported import Export
from minidl.c_export.identifiers import comment_text
from minidl.utils.arrays import Array


def render(export: Export) -> tuple[str, str]:
    """Returns the C file, and the file of its tables (empty unless they are separate)."""
    layers, declared = _layers(export), "\n\n".join(export.program.declarations)
    functions = interface.functions(export) if export.quantized is None else integer_interface.functions(export)
    names = "TABLE" if export.program.arrays and export.quantized is None else ""
    model_code, dtype = "\n".join((declared, layers, functions, names)), export.program.dtype
    multiplies = "real_fma(" in library.functions_for(model_code, dtype)
    test = "" if export.test is None else self_test.function(export, multiplies)
    library_code = library.functions_for(f"{model_code}\n{test}", dtype)
    constants, words = _tables(export)
    parts = [
        comment(export),
        "#include <stdint.h>\n#include <string.h>",
        interface.guarded_declarations(export),
        _own_names(export, library_code),
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


def _own_names(export: Export, code: str) -> str:
    """Returns the functions of C with the macros and messages of this file."""
    for macro in ("SOFT_FMA", "PLAIN_C"):
        code = re.sub(rf"\b{macro}\b", f"{export.macro}_{macro}", code)
    return code.replace("NAME:", f"{export.name}:")


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
    parameters = f"{export.element} *arena{', const real *transformed' if calls else ''}"
    head = f"NOINLINE void {export.name}_layers({parameters}) {{"
    return ("\n".join(once) if calls else "") + "\n".join((head, *lines, "}"))


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent="  ", subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _tables(export: Export) -> tuple[str, str]:
    """Returns the constants of all tables, and the content of the file with their bits if they are separate."""
    arrays = export.program.arrays
    if export.separate_tables and arrays and export.quantized is not None:
        text = "\n\n".join(_table(name, array) for name, array in arrays.items())
        return f'#include "{export.stem}.inc"', f"{text}\n"
    if not export.separate_tables or not arrays:
        return "\n\n".join(_table(name, array) for name, array in arrays.items()), ""
    at, places = 0, []
    for name, array in arrays.items():
        places.append(f"#define {name} ({export.name}_tables.numbers + {at})")
        at += array.size
    text = f'TABLE({export.name}_tables, {at}) = {{{{\n#include "{export.stem}.inc"\n}}}};\n\n' + "\n".join(places)
    return text, tables.words(np.concatenate([array.ravel() for array in arrays.values()])) + "\n"


def _table(name: str, array: Array) -> str:
    """Returns a table: of integers; or of the bits of floats, and the macro of its numbers, named as the table."""
    if array.dtype.kind != "f":
        return f"static const {array.dtype}_t {name}[{array.size}] = {{\n{tables.words(array)}\n}};"
    size = max(array.size, 1)  # C has no empty arrays
    return f"TABLE({name}, {size}) = {{{{\n{tables.words(array)}\n}}}};\n#define {name} {name}.numbers"
