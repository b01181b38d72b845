"""The C functions of exported files, in the files of the folder c: a file gets those that it uses, in their order.

Each is a chunk: lines without an empty one, which define one name, or a few in one #if. A chunk is used if the model,
or a used chunk, contains a name that it defines. A chunk that defines no name is always used.

No C is parsed: regular expressions find the names in the text (DEFINED, WORD). So a definition begins at the start of
its line, with the words that DEFINED knows, and a word in a string counts as a use.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from minidl_c import get_include

FOLDER = Path(__file__).parent / "c"
FLOAT_FILES = (
    "basics", "numbers", "soft_fma", "soft_sqrt", "fma", "vectors", "elementary", "activations", "shapes", "reduce",
    "sums", "convolutions", "winograd", "pools", "norms", "recurrent",
)  # fmt: skip
FILES = {
    "float32": FLOAT_FILES,
    "float64": FLOAT_FILES,
    "int8": ("basics", "integers", "shapes", "integer_sums", "integer_values"),
}
TYPES = {
    "float32": """\
typedef float real;
typedef uint32_t bits;                 /* of a real */
#define MANTISSA 23                    /* bits below the exponent */
#define BIAS 127                       /* of the exponent */
#define SIGN_BIT 0x80000000u
#define QUIET_NAN 0x7fc00000u
#define SMALLEST 0x1p-126f             /* normal number */
#define SHRINK 0x1p-80f                /* factor of numbers whose squares are large */
#define MOST 0x1p100f                  /* sum of squares of others */
#define LIBRARY(function) function##f
#define X86_TYPE "ps"
#define ARM_TYPE "4s"
#define ARM_FP_BIT 4                   /* of __ARM_FP: 32-bit ARM has instructions for reals */
#if defined __FP_FAST_FMAF || defined __FMA__ || defined __aarch64__ || (defined __ARM_FEATURE_FMA && (__ARM_FP & 4))
#define FMA_INSTRUCTION                /* a fused multiply-add is an instruction, not a function of the C library */
#endif""",
    "float64": """\
typedef double real;
typedef uint64_t bits;                 /* of a real */
#define MANTISSA 52                    /* bits below the exponent */
#define BIAS 1023                      /* of the exponent */
#define SIGN_BIT 0x8000000000000000u
#define QUIET_NAN 0x7ff8000000000000u
#define SMALLEST 0x1p-1022             /* normal number */
#define SHRINK 0x1p-640                /* factor of numbers whose squares are large */
#define MOST 0x1p900                   /* sum of squares of others */
#define LIBRARY(function) function
#define X86_TYPE "pd"
#define ARM_TYPE "2d"
#define ARM_FP_BIT 8                   /* of __ARM_FP: 32-bit ARM has instructions for reals */
#if defined __FP_FAST_FMA || defined __FMA__ || defined __aarch64__ || (defined __ARM_FEATURE_FMA && (__ARM_FP & 8))
#define FMA_INSTRUCTION                /* a fused multiply-add is an instruction, not a function of the C library */
#endif""",
}
DEFINED = (
    re.compile(r"^#define (\w+)", re.M),
    re.compile(r"^(?:static|INLINE|NOINLINE)\b[^=(]*?(\w+)(?:\[[^]]*\])?(?:\(| =)", re.M),
    re.compile(r"^typedef (?!struct)[^;\[(]*?(\w+)(?: __attribute__.*)?;", re.M),
    re.compile(r"^typedef struct {[^}]*} (\w+);", re.M),
)
COMMENT = re.compile(r"/\*.*?\*/", re.S)
WORD = re.compile(r"\b[A-Za-z_]\w*\b")


@dataclass(frozen=True)
class Chunk:
    """Some lines of C: the names that they define, and those that they contain."""

    file: str
    text: str
    defines: frozenset[str]
    contains: frozenset[str]


def functions_for(code: str, dtype: str) -> str:
    """Returns the C that `code` needs, before it; the first lines are the types of a float dtype."""
    chunks = _chunks(dtype)
    used = {number for number, chunk in enumerate(chunks) if not chunk.defines}
    wanted = _words(code).union(*(chunks[i].contains for i in used))
    while new := {i for i, chunk in enumerate(chunks) if i not in used and chunk.defines & wanted}:
        used |= new
        wanted = wanted.union(*(chunks[i].contains for i in new))
    parts, last = [TYPES[dtype]] if dtype in TYPES else [], ""
    for i in sorted(used):
        if chunks[i].file != last:
            last = chunks[i].file
            parts.append(f"/* ---- {last} */")
        parts.append(chunks[i].text)
    return "\n\n".join(parts)


@cache
def _chunks(dtype: str) -> list[Chunk]:
    """Returns the chunks of all files, in order."""
    texts = {name: (FOLDER / f"{name}.c").read_text(encoding="utf-8") for name in FILES[dtype]}
    if dtype == "int8":
        texts["shapes"] = re.sub(r"\breal\b", "int8_t", texts["shapes"])
    else:
        texts["elementary"] = f"{_coefficients(dtype)}\n\n{texts['elementary']}"
    return [_chunk(name, part) for name in FILES[dtype] for part in texts[name].split("\n\n") if not _is_title(part)]


def _is_title(part: str) -> bool:
    return not COMMENT.sub("", part).strip()


def _chunk(file: str, text: str) -> Chunk:
    code = COMMENT.sub("", text)
    defines = frozenset(name for pattern in DEFINED for name in pattern.findall(code))
    return Chunk(file, text.strip("\n"), defines, _words(code) - defines)


def _words(code: str) -> frozenset[str]:
    return frozenset(WORD.findall(COMMENT.sub("", code)))


def _coefficients(dtype: str) -> str:
    """Returns the tables of lane_math.h, the kernels' own, without the suffixes of their names."""
    header = (Path(get_include()) / "minidl_c/simd/lane_math.h").read_text(encoding="utf-8")
    suffix, kind = {"float32": ("_f32", "float"), "float64": ("_f64", "double")}[dtype]
    tables = re.findall(rf"^static const {kind} (\w+){suffix}\[\] = (\{{[^}}]*\}});", header, re.M)
    return "\n\n".join(f"static const real {name}[] = {COMMENT.sub('', values)};" for name, values in tables)
