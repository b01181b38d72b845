"""Builds the kernels of this folder against the installed minidl: python setup.py build_ext --inplace"""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

import minidl_c

flags = minidl_c.build_flags(minidl_c.isa)  # headers and flags for equal bits, for this processor
kernels = [Extension(path.stem, [path.name], **flags) for path in sorted(Path().glob("*.pyx"))]
directives = {"language_level": 3, "boundscheck": False, "cdivision": True, "freethreading_compatible": True}
setup(
    name="custom-kernels",
    ext_modules=cythonize(kernels, include_path=[minidl_c.get_include()], compiler_directives=directives),
)
