"""docs/reference/kernels.md lists what the headers of kernels define: fields of structs, and vector functions."""

import re
from pathlib import Path

import minidl_c


def structs_of_op_h():
    """Returns the names of the fields of each struct in op.h, by the name of the struct."""
    header = (Path(minidl_c.get_include()) / "minidl_c" / "op.h").read_text(encoding="utf-8")
    code = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    found = re.findall(r"typedef struct \{(.*?)\n\} (\w+);", code, re.S)
    found += [(body, "op") for body in re.findall(r"\nstruct op \{(.*?)\n\};", code, re.S)]
    structs = {}
    for body, name in found:
        names = structs[name] = set()
        flat = re.sub(r"\b(?:union|struct) \{|\}", "", body)  # members of unnamed unions
        for field in filter(None, map(str.strip, flat.split(";"))):
            function = re.search(r"\(\*(\w+)\)", field)
            names |= {function[1]} if function else {re.search(r"\w+$", part.strip())[0] for part in field.split(",")}
    return structs


INTERNAL = {"reduced", "power_of_2", "log_ratio", "plus_ln2", "split", "whole"}  # parts of exp, log and power


def test_the_reference_lists_every_vector_function():
    root = Path(__file__).parents[1]
    page = (root / "docs" / "reference" / "kernels.md").read_text(encoding="utf-8")
    section = page.partition("\n## Vector functions\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \| ", section, re.M)
    listed = {name for cell in cells for name in re.findall(r"`(\w+)\(", cell)}
    simd = Path(minidl_c.get_include()) / "minidl_c" / "simd"
    math, lanes = ((simd / name).read_text(encoding="utf-8") for name in ("lane_math.h", "lanes.h"))
    defined = set(re.findall(r"^INLINE V FN\((\w+)\)", math, re.M)) - INTERNAL
    assert listed == defined | set(re.findall(r"^INLINE (?:vector|mask)_f32 (\w+)_f32\(", lanes, re.M))


def test_the_reference_lists_every_field():
    path = Path(__file__).parents[1] / "docs" / "reference" / "kernels.md"
    sections = re.split(r"^##+ ", path.read_text(encoding="utf-8"), flags=re.M)
    listed = {}
    for section in sections:
        cells = re.findall(r"^\| (`.*?) \| ", section, re.M)
        listed[section.partition("\n")[0]] = {name for cell in cells for name in re.findall(r"`([\w.]+)[(`]", cell)}
    structs = structs_of_op_h()
    groups = sorted(name.removeprefix("op_") for name in structs if name.startswith("op_"))
    assert groups == ["blocked", "branch", "fusion", "loss", "memory", "per_example", "plan", "reduce"]
    assert listed["The struct op"] == structs["op"] - set(groups)
    assert listed["The struct tile"] == structs["tile"]
    assert listed["The struct batch_view"] == structs["batch_view"]
    for group in groups:
        assert listed[group] == {f"{group}.{field}" for field in structs[f"op_{group}"]}, group
