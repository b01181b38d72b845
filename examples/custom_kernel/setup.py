"""Builds silu.pyx against the installed minidl: python setup.py build_ext --inplace"""

from Cython.Build import cythonize
from setuptools import Extension, setup

import minidl_c

flags = minidl_c.build_flags(minidl_c.isa)  # headers and flags for equal bits, for this processor
kernel = Extension("silu", ["silu.pyx"], **flags)
directives = {"language_level": 3, "boundscheck": False, "cdivision": True, "freethreading_compatible": True}
setup(
    name="silu",
    ext_modules=cythonize(kernel, include_path=[minidl_c.get_include()], compiler_directives=directives),
)
