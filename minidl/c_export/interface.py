"""The interface of an exported file: its functions, and the header file that declares them."""

from __future__ import annotations

from minidl.c_export import integer_interface
from minidl.c_export.exported import Export
from minidl.c_export.identifiers import comment_text


def declarations(export: Export) -> str:
    """Returns the sizes, the functions and the tables, as a header file declares them."""
    sizes = {"INPUTS": export.input.size, "OUTPUTS": export.output_size}
    if len(export.outputs) > 1:
        sizes |= {f"OUTPUTS_{name.upper()}": tensor.size for name, tensor in export.outputs.items()}
    sizes |= {part.upper(): size for part, size in export.memory.items()}
    parts = ["\n".join(f"#define {export.macro}_{key} {value}" for key, value in sizes.items())]
    if export.quantized is not None:
        parts.append(integer_interface.constants(export, export.quantized))
    for name, own in zip(export.outputs, export.output_names, strict=True):
        if name != own:
            parts.append(f"/* {name} is the output {comment_text(repr(own))}. */")
    if export.keeps_values:
        parts.append(f"""\
/* The output of a layer, from `place` in the arena on, [pixels][channels]. */
typedef struct {{ const char *layer; int32_t place, pixels, channels; }} {export.name}_value;
#define {export.macro}_VALUES {len(export.program.outputs)}
extern const {export.name}_value {export.name}_values[{export.macro}_VALUES];""")
    if export.names_classes:
        parts.append(f"/* The names of the classes, in UTF-8. */\n{_class_table(export, 'extern ')};")
    parts.append("\n".join(f"{prototype};" for prototype in export.prototypes))
    if export.test is not None:
        single = ", and 1 more if single operations do" if export.quantized is None else ""
        parts.append(f"""\
#ifdef {export.macro}_TEST
/* Returns the number of inputs whose scores differ from those of `predict`{single}. */
int {export.name}_test(void);
#endif""")
    return "\n\n".join(parts)


def guarded_declarations(export: Export) -> str:
    """Returns the declarations, which may be included twice, also in C++."""
    return f"""\
#ifndef {export.macro}_H
#define {export.macro}_H

#ifdef __cplusplus
extern "C" {{
#endif

{declarations(export)}

#ifdef __cplusplus
}}
#endif
#endif"""


def header_file(export: Export) -> str:
    """Returns the header file."""
    explained = f"/* {export.stem}.h: the interface of {export.stem}.c, which explains it. */"
    return f"{explained}\n\n#include <stdint.h>\n\n{guarded_declarations(export)}\n"


def functions(export: Export) -> str:
    """Returns the functions for floats and bytes, which convert input and output to and from channels last."""
    name, first = export.name, export.input
    owned, prefix = "", ""
    if export.static_arena:
        owned = "".join(
            f"static real {name}_{part}[{export.macro}_{part.upper()}] ALIGNED;\n\n" for part in export.memory
        )
        prefix = f"{name}_"
    arena, memory = f"{prefix}arena", ", ".join(f"{prefix}{part}" for part in export.memory)
    start = export.offset_of(first)
    if first.is_row_major:
        read = f"EACH(i, {first.size}) {arena}[{start} + i] = flush((real)x[i]);"
    else:
        read = (
            f"EACH(i, {first.channels}) EACH(j, {first.pixels}) "
            f"{arena}[{start} + j * {first.channels} + i] = flush((real)x[i * {first.pixels} + j]);"
        )
    writes = []
    for output, last in export.outputs.items():
        sizes = f"copy({last.size}" if last.is_row_major else f"transpose({last.pixels}, {last.channels}"
        writes.append(f"  {sizes}, {arena} + {export.offset_of(last)}, {output});\n")
    modes = (
        "/* The mode is set and restored outside of the functions that compute, so that no computation leaves it. */"
    )
    parameters = ", ".join(export.parameter(part, "real") for part in export.memory)
    flag, once = "", ""
    if export.static_arena and "transformed" in export.memory:
        flag = "  static int is_transformed = 0;\n"
        once = f"  if (!is_transformed) {name}_transforms(transformed);\n  is_transformed = 1;\n"
    run = f"""\
NOINLINE void {name}_run({parameters}) {{
{flag}  const arithmetic before = set_arithmetic();
{once}  {name}_layers({", ".join(export.memory)});
  restore_arithmetic(before);
}}"""
    body = f"{{\n  {read}\n  {name}_run({memory});\n{''.join(writes)}}}"
    *transform, predict, predict_uint8 = export.prototypes
    transforms = [
        f"{head} {{\n  const arithmetic before = set_arithmetic();\n  {name}_transforms(transformed);\n"
        "  restore_arithmetic(before);\n}"
        for head in transform
    ]
    return f"{owned}{modes}\n" + "\n\n".join((run, *transforms, f"{predict} {body}", f"{predict_uint8} {body}"))


def _string(text: str) -> str:
    """Returns text as a string of C, in UTF-8, without trigraphs."""
    plain = (chr(byte) if 32 <= byte < 127 and byte not in b'"?\\' else f"\\{byte:03o}" for byte in text.encode())
    return f'"{"".join(plain)}"'


def values(export: Export) -> str:
    """Returns the table of all layers' outputs."""
    rows = ",\n".join(
        f"  {{{_string(layer)}, {export.offset_of(tensor)}, {tensor.pixels}, {tensor.channels}}}"
        for layer, tensor in export.program.outputs
    )
    return f"const {export.name}_value {export.name}_values[{export.macro}_VALUES] = {{\n{rows}\n}};"


def class_names(export: Export) -> str:
    """Returns the table of the names of the classes."""
    return f"{_class_table(export)} = {{\n" + ",\n".join(f"  {_string(name)}" for name in export.classes) + "\n};"


def _class_table(export: Export, linkage: str = "") -> str:
    return f"{linkage}const char *const {export.name}_classes[{len(export.classes)}]"
