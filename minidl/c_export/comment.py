"""The comment at the head of an exported file: what the file computes and needs, and how it is compiled."""

from __future__ import annotations

import hashlib
import json
import re
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from minidl.c_export.exported import Export
from minidl.c_export.identifiers import comment_text
from minidl.c_export.stack import stack_bytes
from minidl.quantization.program import Program
from minidl.utils.arrays import Array
from minidl_c import __version__


def weights_hash(state: Mapping[str, Array]) -> str:
    """Returns the SHA-256 of all arrays of a state, one after the other, in little-endian bytes."""
    digest = hashlib.sha256()
    for array in state.values():
        digest.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()


def comment(export: Export) -> str:
    """Returns the comment at the head of the file."""
    quantized = export.quantized
    title, about, sizes, uses = _of_floats(export) if quantized is None else _of_integers(export, quantized)
    named = len(export.classes) == export.output_size  # a single score has two classes
    plain, vectors = stack_bytes(export.program)
    flags = "-O2 -ffp-contract=off" if quantized is None else "-O2"
    lines = [
        f"{export.stem}.c: {title}. Written by minidl {__version__}.",
        "",
        *(f"    {prototype}" for prototype in export.prototypes),
        "",
        *about,
        *(["", "The outputs are " + comment_text(", ".join(export.classes)) + "."] if named else []),
        *(["", "Metadata:", "", *_json_lines(export.metadata)] if export.metadata else []),
        "",
        *sizes,
        f"stack: at most about {plain} bytes with gcc -O2, {vectors} with gcc -O3 and vectors of AVX-512",
        f"SHA-256 of the weights {weights_hash(export.state)}",
        "",
        *uses,
    ]
    if export.test is not None:
        defines = f"-D{export.macro}_TEST -D{export.macro}_MAIN"
        library = " -lm" if quantized is None else ""
        equal = "bits" if quantized is None else "scores"
        lines += [
            "",
            f"Whether the {equal} are equal on a machine:",
            "",
            f"    cc {flags} {defines} {export.stem}.c{library} && ./a.out && echo equal",
        ]
    if export.static_arena:
        lines += ["", "Not for several threads at a time: the arena is one."]
    return "/* " + "\n".join(_filled(lines)).replace("\n", "\n * ").replace(" * \n", " *\n") + "\n */"


Parts = tuple[str, list[str], list[str], list[str]]  # what the file is; its input and output; sizes; how it is compiled


def _of_floats(export: Export) -> Parts:
    once = export.program.transformed * np.dtype(export.program.dtype).itemsize
    transformed = f" and transformed weights {once} bytes, of the first call" if once else ""
    uses = {
        "-O3 -march=native -ffp-contract=off": "for this processor",
        "-O2 -ffp-contract=off": "for any",
        f"-O2 -ffp-contract=off -D{export.macro}_SOFT_FMA": "without fma and sqrt of the C library",
    }
    shapes = "; ".join(f"{name}: {tensor.shape}" for name, tensor in export.outputs.items())
    about = [
        f"x: {export.input.shape}, as `{export.function}` takes it in Python; bytes are not scaled. {shapes}, "
        f"with the bits of `{export.function}`. All are in row-major order."
    ]
    if export.sums_directly:
        about += ["", 'The bits are those of a model whose convolutions have `algorithm="direct"`.']
    needs = f"Link with -lm, unless it is compiled with -D{export.macro}_SOFT_FMA.{_other_file(export)}"
    compiled = "C99. Equal bits need IEEE arithmetic, without a compiler's fast math. GCC and clang:"
    lines = [compiled, "", *_commands(export, uses), "", needs]
    return "a trained model", about, [_memory(export, transformed)], lines


def _of_integers(export: Export, program: Program) -> Parts:
    macro, scores = export.macro, export.outputs["scores"]
    about = [
        f"x: {export.input.shape}, quantized, or bytes, which are what the model takes in Python. scores: "
        f"{scores.shape}, with the values of `{export.function}`. All are in row-major order.",
        "",
        "All arithmetic is on integers. A number q of x stands for "
        f"{macro}_INPUT_SCALE * (q - {macro}_INPUT_ZERO_POINT), and one of scores for "
        f"{macro}_SCORE_SCALE * (q - {macro}_SCORE_ZERO_POINT). Sums are exact in 32 bits; what rounds is their "
        "product with a multiplier and a power of 2, where a half is rounded up.",
        "",
        f"With -D{macro}_FLOAT, {export.name}_quantize and {export.name}_score convert from and to real numbers.",
    ]
    sizes = [_memory(export), f"multiply-adds of a prediction: {program.multiply_adds}"]
    uses = {"-O2": "for any", f"-O2 -D{macro}_PLAIN_C": "without the DSP and vector instructions of ARM"}
    other = _other_file(export).strip()
    lines = ["C99, without a library. GCC and clang:", "", *_commands(export, uses), *(["", other] if other else [])]
    return "a quantized net", about, sizes, lines


def _memory(export: Export, transformed: str = "") -> str:
    tables = sum(array.nbytes for array in export.program.arrays.values())
    arena = export.arena_size * np.dtype(export.program.dtype).itemsize
    where = "in the file" if export.static_arena else "passed by the caller"
    return f"tables {tables} bytes; arena {arena} bytes{transformed}, {where}"


def _commands(export: Export, uses: Mapping[str, str]) -> list[str]:
    width = max(map(len, uses))
    return [f"    cc {options:{width}} -c {export.stem}.c    {use}" for options, use in uses.items()]


def _other_file(export: Export) -> str:
    return f" The tables are in {export.stem}.inc." if export.separate_tables else ""


def _json_lines(value: Mapping[str, Any]) -> list[str]:
    """Returns JSON as lines that can stand in a comment of C: slashes that would begin or end one are escaped."""
    text = re.sub(r"(?<=[*?])/|/(?=\*)", r"\\u002f", json.dumps(value, indent=2))
    return [f"    {line}" for line in text.splitlines()]


def _filled(lines: Iterable[str]) -> list[str]:
    wrapped = (textwrap.wrap(line, 110) or [""] if not line.startswith("    ") else [line] for line in lines)
    return [part for parts in wrapped for part in parts]
