"""minidl_c.cpu: the instruction sets of this processor, compared with what Linux reports."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import minidl_c
from minidl_c import cpu

# Features of the levels of x86-64 (psABI, table 3.1), by their names in /proc/cpuinfo; a level includes those below it.
V2 = {"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"}
V3 = V2 | {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"}
V4 = V3 | {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}


def features():
    """Returns the flags of the first processor, or an empty set on other systems."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return set(next((line for line in lines if line.startswith("flags")), "").split())


@pytest.mark.skipif(not features(), reason="not Linux on x86-64")
def test_the_levels_are_those_that_linux_reports():
    assert cpu.known() == ["v4", "v3", "v2"]
    assert cpu.supported() == [isa for isa, needed in (("v4", V4), ("v3", V3), ("v2", V2)) if needed <= features()]


@pytest.mark.skipif(not features(), reason="not Linux on x86-64")
def test_products_of_bytes_are_those_that_linux_reports():
    assert cpu.has_vnni() == (features() >= V4 | {"avx512_vnni"})


def test_the_best_build_is_in_use():
    code = "import minidl_c; print(minidl_c.isa)"
    environment = {name: value for name, value in os.environ.items() if name != "MINIDL_ISA"}
    environment["PYTHONPATH"] = str(Path(minidl_c.__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    folder = Path(minidl_c.__file__).parent
    built = [isa for isa in cpu.supported() if (folder / isa / "build.json").exists()]
    assert done.stdout.strip() == built[0]
