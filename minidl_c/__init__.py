"""The compiled arithmetic of minidl.

Every module (`minidl_c.kernels.conv2d`, ...) is compiled once per instruction set, into the folders v2, v3 and v4
(x86-64) or base (other processors). On import, the best folder that this processor can run is put first into the
package's `__path__`. So `import minidl_c.kernels.conv2d`, and the cimports of a user's kernel, all use the same build.
The environment variable MINIDL_ISA selects another folder.
"""

import json
import os
from pathlib import Path
from typing import Any

__all__ = ["__version__", "build_flags", "build_info", "get_include", "isa"]
__version__ = "0.1.0"

_HERE = Path(__file__).resolve().parent
_INFO = "build.json"  # compiler and flags; setup.py writes it last, so a folder with it is complete


def _no_kernels() -> ImportError:
    if (_HERE.parent / "setup.py").is_file():
        return ImportError(
            f"{_HERE.parent} is the source of minidl, without kernels for this Python: build them here "
            f"(`pip install --editable .`), or start Python in another folder to use an installed minidl"
        )
    return ImportError(f"{_HERE} has no kernels for this Python: install minidl again, with this Python's pip")


try:
    import minidl_c.cpu as cpu
except ImportError:
    raise _no_kernels() from None


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
    if not built:
        raise _no_kernels()
    if not runnable:
        raise ImportError(
            f"no kernels of minidl for this processor: this installation has {', '.join(built)}; "
            f"build it again here (`pip install .` in the source)"
        )
    return runnable[0]


isa: str = _choose()
"""The folder in use: "v2", "v3", "v4" or "base"."""

__path__.insert(0, str(_HERE / isa))
from minidl_c.openmp_wait import load_openmp  # noqa: E402, needs the path

thread_wait: str = load_openmp()
"""How OpenMP's threads wait for each other, and why; it means nothing without OpenMP."""


def build_info() -> dict[str, Any]:
    """Returns how the folder in use was built.

    Returns
    -------
    dict
        `isa`, `compiler` and `cython` are strings, and so is `commit`, "" if it was not known. `openmp` is a bool,
        `limited_api` the value of Py_LIMITED_API, or None. `compile_args`, `isa_args` and `link_args` are lists of
        flags.

    Examples
    --------
    >>> import minidl_c
    >>> info = minidl_c.build_info()
    >>> info["isa"] == minidl_c.isa, "-ffp-contract=off" in info["compile_args"]
    (True, True)
    """
    return {"commit": ""} | _info(isa)


def get_include() -> str:
    """Returns the include directory for custom kernels.

    In C: `#include "minidl_c/simd/lane_math.h"`; in Cython: `from minidl_c.op cimport op`.

    Returns
    -------
    str
        The folder that has the folder `minidl_c`.

    Examples
    --------
    >>> import os
    >>> import minidl_c
    >>> os.path.isfile(os.path.join(minidl_c.get_include(), "minidl_c", "simd", "lane_math.h"))
    True
    """
    return str(_HERE.parent)


def build_flags(isa: str | None = None) -> dict[str, Any]:
    """Returns keyword arguments of `setuptools.Extension` for a custom kernel.

    They contain the folder of `get_include`, the flags that equal bits depend on, above all `-ffp-contract=off`, and
    CPython's limited API, with which minidl itself was compiled: a kernel does not compile without it::

        kernel = Extension("swish", ["swish.pyx"], **minidl_c.build_flags())
        setup(ext_modules=cythonize(kernel, include_path=[minidl_c.get_include()]))

    Parameters
    ----------
    isa : str or None, default None
        None compiles for every processor of this architecture. On x86-64, these have no fused multiply-add, so the bits
        differ. `minidl_c.isa` compiles for the instruction set in use: faster, with the bits of minidl's own kernels,
        for processors that have it.

    Returns
    -------
    dict
        `include_dirs`, `define_macros`, `py_limited_api`, `libraries`, `extra_compile_args` and `extra_link_args`.

    Raises
    ------
    ValueError
        If this installation does not have `isa`.

    Examples
    --------
    >>> import minidl_c
    >>> flags = minidl_c.build_flags()
    >>> flags["include_dirs"] == [minidl_c.get_include()], "-ffp-contract=off" in flags["extra_compile_args"]
    (True, True)
    """
    if isa is not None and (not isinstance(isa, str) or isa not in _built()):
        raise ValueError(f"isa: expected one of {', '.join(_built())}, got {isa!r}")
    info = build_info() if isa is None else _info(isa)
    limited_api = info["limited_api"]
    return {
        "include_dirs": [get_include()],
        "define_macros": [("Py_LIMITED_API", limited_api)] if limited_api else [],
        "py_limited_api": bool(limited_api),
        "libraries": ["m"],
        "extra_compile_args": info["compile_args"] + (info["isa_args"] if isa else []),
        "extra_link_args": info["link_args"],
    }


def _info(name: str) -> dict[str, Any]:
    info: dict[str, Any] = json.loads((_HERE / name / _INFO).read_text(encoding="utf-8"))
    return info
