"""The compiled arithmetic of minidl.

Every module here (`minidl_c.kernels.conv2d`, ...) is compiled once per instruction set, into the folders
v2, v3 and v4 (x86-64) or base (other processors). On import the best folder that this processor
can run goes first into the package's `__path__`, so that every `import minidl_c.kernels.conv2d`, and every
`cimport minidl_c.kernels.conv2d` of a user's own kernel, means the same build. The environment variable
MINIDL_ISA forces a folder.
"""

import json
import os
from pathlib import Path
from typing import Any

from minidl_c import cpu

__all__ = ["__version__", "build_flags", "build_info", "get_include", "isa"]
__version__ = "0.1.0"

_HERE = Path(__file__).resolve().parent
_INFO = "build.json"  # written last into each folder, with what setup.py knew


def _built() -> list[str]:
    return [name for name in cpu.known() if (_HERE / name / _INFO).is_file()]


def _choose() -> str:
    built, wanted = _built(), os.environ.get("MINIDL_ISA")
    runnable = [name for name in built if name in cpu.supported()]
    if wanted:
        if wanted in runnable:
            return wanted
        raise ImportError(
            f"MINIDL_ISA={wanted}: this installation of minidl has {', '.join(built) or 'none'}, "
            f"of which this processor runs {', '.join(runnable) or 'none'}"
        )
    if not built and (_HERE.parent / "setup.py").is_file():
        raise ImportError(
            f"{_HERE.parent} is the source of minidl, without kernels: build them here "
            f"(`pip install --editable .`), or start Python in another folder to use an installed minidl"
        )
    if not runnable:
        raise ImportError(
            f"no kernels of minidl for this processor: this installation has "
            f"{', '.join(built) or 'none'}; build it again here (`pip install .` in the source)"
        )
    return runnable[0]


isa: str = _choose()
"""The folder in use: "v2", "v3", "v4" or "base"."""

__path__.insert(0, str(_HERE / isa))


def build_info() -> dict[str, Any]:
    """How the folder in use was built.

    Returns a dict with the keys isa, compiler, cython, openmp (bool), compile_args, isa_args and
    link_args.
    """
    return _info(isa)


def get_include() -> str:
    """The folder from which a kernel of your own includes our headers and cimports our .pxd files.

    In C `#include "minidl_c/simd/lane_math.h"`, in Cython `from minidl_c.op cimport op`.
    """
    return str(_HERE.parent)


def build_flags(isa: str | None = None) -> dict[str, Any]:
    """Keyword arguments of `setuptools.Extension` for a kernel of your own.

    They hold the folder of `get_include`, and the flags that equal bits depend on (`-ffp-contract=off` above all)::

        kernel = Extension("swish", ["swish.pyx"], **minidl_c.build_flags())
        setup(ext_modules=cythonize(kernel, include_path=[minidl_c.get_include()]))

    Without `isa` the kernel runs on every processor of this kind. `isa=minidl_c.isa` compiles it
    for the instruction set in use here: faster, and only for processors that have it. The bits are
    the same, x86-64-v2 apart.

    Raises ValueError when this installation has no such `isa`.
    """
    if isa is not None and isa not in _built():
        raise ValueError(f"isa: expected one of {', '.join(_built())}, got {isa!r}")
    info = build_info() if isa is None else _info(isa)
    return {
        "include_dirs": [get_include()],
        "libraries": ["m"],
        "extra_compile_args": info["compile_args"] + (info["isa_args"] if isa else []),
        "extra_link_args": info["link_args"],
    }


def _info(name: str) -> dict[str, Any]:
    info: dict[str, Any] = json.loads((_HERE / name / _INFO).read_text(encoding="utf-8"))
    return info
