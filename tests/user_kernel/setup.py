"""Builds the kernels of this folder as a user does: against the installed package, outside its source tree."""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

import minidl_c

flags = minidl_c.build_flags()
kernels = [Extension(path.stem, [path.name], **flags) for path in sorted(Path().glob("*.pyx"))]
setup(
    name="user-kernel",
    ext_modules=cythonize(
        kernels, include_path=[minidl_c.get_include()], language_level=3, compiler_directives={"cdivision": True}
    ),
)
