"""C files of quantized nets: `export_c` calls it for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from minidl.c_export.exported import Export
from minidl.c_export.files import files_for, write
from minidl.c_export.integer import draw, generate
from minidl.quantization.program import Int8, Program
from minidl.saving.atomic import Path


def export_program(
    program: Program,
    predict: Callable[[Int8], Int8],
    path: Path,
    name: str | None = None,
    *,
    arena: str = "static",
    weights: str = "text",
    header: bool = False,
    keep_values: bool = False,
    classes: Sequence[str] = (),
    names_classes: bool = False,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Writes the program of a quantized net as one C99 file of integers, whose scores are those of `predict`.

    The file includes stdint.h and string.h alone. `digits_predict` takes the quantized input as int8_t, and
    `digits_predict_uint8` bytes; both return int8_t. predict: the scores of quantized inputs (n, c, h, w), for the test
    in the file. classes: the names of the scores, or none; names_classes: whether the file has a table of them. All
    other arguments are those of `export_c`.

    Raises TypeError or ValueError for other arguments, and ValueError, naming the layer, for sums that may not fit 32
    bits; OSError if a file cannot be written. Nothing is written then.
    """
    if not isinstance(program, Program):
        raise TypeError(f"program: expected a Program, got {type(program).__name__}")
    files = files_for(path, name, arena, weights, header, keep_values)
    c_program, first, outputs = generate(program, files.name)
    export = Export(
        stem=files.stem,
        function="predict_int8",
        classes=classes,
        metadata=dict(metadata or {}),
        program=c_program,
        input=first,
        outputs=outputs,
        output_names=list(outputs),
        state=c_program.arrays,
        static_arena=files.static_arena,
        keeps_values=files.keeps_values,
        names_classes=names_classes,
        separate_tables=files.separate_tables,
        sums_directly=False,
        test=draw(program, predict),
        quantized=program,
    )
    write(files, export)
