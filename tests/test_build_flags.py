"""minidl_c.build_flags: what a custom kernel is compiled with, and that it does not compile without."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import minidl_c


@pytest.mark.skipif(not minidl_c.build_info()["limited_api"], reason="a free-threaded Python has one API")
def test_a_kernel_without_the_limited_api_does_not_compile(tmp_path):
    """Its objects would crash the process when they are freed."""
    shutil.copy(Path(__file__).parent / "user_kernel" / "swish.pyx", tmp_path)
    (tmp_path / "setup.py").write_text("""
import minidl_c
from Cython.Build import cythonize
from setuptools import Extension, setup

flags = minidl_c.build_flags() | {"define_macros": [], "py_limited_api": False}
kernel = Extension("swish", ["swish.pyx"], **flags)
modules = cythonize(kernel, include_path=[minidl_c.get_include()], language_level=3, quiet=True)
setup(name="swish", ext_modules=modules)
""")
    done = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(minidl_c.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode != 0
    assert 'error "compile kernels with all arguments of minidl_c.build_flags(): define_macros, which' in done.stderr


def test_kernels_build_for_a_single_instruction_set():
    flags = minidl_c.build_flags(isa=minidl_c.isa)
    assert set(minidl_c.build_flags()["extra_compile_args"]) <= set(flags["extra_compile_args"])
    with pytest.raises(ValueError, match=r"isa: expected one of .* got 'v9'"):
        minidl_c.build_flags(isa="v9")
