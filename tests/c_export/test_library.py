"""Files get the functions that they use, and no others."""

import re
from pathlib import Path

import pytest

from minidl.c_export import library
from minidl.layers import join
from minidl.layers.activations import FUNCTIONS
from minidl_c.kernels.pad2d import MODES

NAMES = re.compile(r"\b(?:static|INLINE|NOINLINE)[^;{=]*?(\w+)\(")


def functions(code, dtype="float32"):
    return set(NAMES.findall(library.functions_for(code, dtype)))


def test_what_a_function_needs_comes_with_it():
    found = functions("y = silu(x);")
    assert {"silu", "real_sigmoid", "real_exp", "reduced", "polynomial", "real_fma"} <= found
    assert not found & {"gelu", "softmax", "convolve", "real_log", "permute"}


def test_definitions_come_before_their_uses():
    text = library.COMMENT.sub("", library.functions_for("gelu(x); convolve_winograd(); log_softmax();", "float64"))
    defined = {}
    for match in re.finditer(r"^(?:static|INLINE|NOINLINE)[^;{=\n]*?(\w+)\(", text, re.M):
        defined.setdefault(match[1], match.start())
    macros = set(re.findall(r"#define (\w+)", text))
    for name, start in defined.items():
        if name in macros:  # flush, which is a function on some machines
            continue
        uses = [m.start() for m in re.finditer(rf"\b{name}\(", text)]
        assert min(uses) >= start, name


def test_comments_are_no_uses():
    assert "softmax" not in functions("relu(x); /* not softmax(x) */")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_coefficients_are_those_of_the_kernels(dtype):
    text = library.functions_for("real_exp(x); real_log1p(x); normal_cdf(x);", dtype)
    tables = {"ln2", "exp_ends", "exp_terms", "artanh_terms", "tail_numerator", "tail_denominator"}
    assert set(re.findall(r"static const real (\w+)\[\]", text)) == tables


def test_every_function_in_the_files_is_used_by_a_layer_or_another():
    """What nothing calls is dead."""
    writers = "".join(path.read_text(encoding="utf-8") for path in library.FOLDER.parent.rglob("*.py"))
    writers += " ".join([*FUNCTIONS.values(), *(f"pad_{mode}" for mode in MODES)])
    writers += " ".join(f" {name}_all {name}_broadcast" for name in join.FUNCTIONS)
    sources = {path: path.read_text(encoding="utf-8") for path in library.FOLDER.glob("*.c")}
    for text in sources.values():
        for name in NAMES.findall(text):
            calls = sum(len(re.findall(rf"\b{name}\b", other)) for other in [writers, *sources.values()])
            assert calls > 1, name


def test_the_guide_lists_every_function_of_a_number():
    internal = {"reduced", "power_of_2", "split", "log_ratio", "plus_ln2", "power_of_magnitude"}
    files = [library.FOLDER / f"{name}.c" for name in ("fma", "elementary", "activations")]
    found = set().union(
        *(re.findall(r"^INLINE real (\w+)\(", file.read_text(encoding="utf-8"), re.M) for file in files)
    )
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "export-c.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \| ", page.partition("| function | result |")[2].partition("\n\n")[0], re.M)
    assert {name for row in rows for name in re.findall(r"`(\w+)\(", row)} == found - internal
